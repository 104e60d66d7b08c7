/** Checks of trainers' arguments: others are refused by name, such as a world, or a model around its parameters. */
import type { CommErrorFacts, Communicator } from "../api/index.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { ParameterSet } from "./parameter-set.ts";

/** The facts of an error on a rank of a communicator. */
export function factsOf({ rank, size, name }: Communicator): CommErrorFacts {
  return { rank, size, comm: name };
}

/** True for a whole number of at least `least`. */
export function isCount(value: unknown, least = 0): value is number {
  return Number.isSafeInteger(value) && (value as number) >= least;
}

/** Refuses a value that is not a whole number, or too small. */
export function assertCount(action: string, field: string, value: unknown, least: number): void {
  if (isCount(value, least)) return;
  throw invalid(action, field, textOf(value), `an integer of at least ${least}`);
}

/** Refuses a value that is none of these texts. */
export function assertOneOf(
  action: string,
  field: string,
  value: unknown,
  allowed: readonly string[],
  facts?: CommErrorFacts,
): void {
  if (allowed.some((each) => each === value)) return;
  const needed = allowed.map((each) => `"${each}"`).join(" or ");
  throw invalid(action, field, textOf(value), needed, undefined, facts);
}

/** Refuses a value that is not a communicator. */
export function assertCommunicator(action: string, comm: Communicator, field = "comm"): void {
  if (isObject(comm) && typeof comm.allGather === "function") return;
  throw invalid(
    action,
    field,
    textOf(comm),
    "a communicator",
    "world.run hands every rank its own; in a job connect gives it",
  );
}

/** Refuses a value that is not a `ParameterSet`. */
export function assertParameters(action: string, parameters: ParameterSet): void {
  if (parameters instanceof ParameterSet) return;
  throw invalid(
    action,
    "parameters",
    textOf(parameters),
    "a ParameterSet",
    parametersHint(parameters),
  );
}

/** The argument to pass in place of the found one. */
export function parametersHint(found: unknown): string {
  const isModel = isObject(found) && found["parameters"] instanceof ParameterSet;
  return isModel ? "pass the model's parameters: model.parameters" : "new ParameterSet([…])";
}

/** Refuses an object without functions of these names. */
export function assertHasFunctions(
  action: string,
  field: string,
  found: unknown,
  names: readonly string[],
): void {
  const has = (name: string): boolean => isObject(found) && typeof found[name] === "function";
  const lacks = names.find((name) => !has(name));
  if (lacks === undefined) return;
  throw invalid(
    action,
    field,
    `${textOf(found)} without ${lacks}()`,
    `an object with ${names.join(" and ")}`,
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
