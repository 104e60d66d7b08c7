/**
 * The state of sharded training in checkpoints: each rank's ranges of values and optimizer state.
 *
 * Ranges of one parameter follow one another in the order of ranks, so another number of ranks joins them and cuts them again.
 */

import { invalid, textOf } from "../../api/option-kinds.ts";
import { isCount } from "../argument-checks.ts";
import type { Optimizer, Trainable } from "../optimizers/optimizer.ts";
import { type ParameterArray, type ParameterSet, zerosOf } from "../parameter-set.ts";
import {
  assertState,
  elementsOf,
  type State,
  type StateTensor,
  type StateValue,
} from "../state.ts";
import type { ShardRange } from "./flat-parameters.ts";

/** A range of a parameter with its live memory. */
export interface LiveShard extends Trainable, Pick<ShardRange, "begin" | "end"> {
  /** Shape of the whole parameter. */
  readonly whole: readonly number[];
}

/** This rank's part of the state; shares memory with it. */
export function shardState(
  step: number,
  ranges: readonly LiveShard[],
  optimizer: Optimizer,
): State {
  const own = optimizer.state();
  const values = ranges.map(({ name, dtype, shape, value }): [string, StateTensor] => [
    `value/${name}`,
    { dtype, shape, data: value },
  ]);
  const slots = Object.entries(own.tensors).map(([name, tensor]): [string, StateTensor] => [
    `optimizer/${name}`,
    tensor,
  ]);
  return {
    values: { step, optimizer: own.values, shapes: shapesOf(ranges) },
    tensors: Object.fromEntries([...values, ...slots]),
  };
}

/** Shapes of the whole parameters, to distinguish a part divided by a tensor axis from a range. */
function shapesOf(ranges: readonly LiveShard[]): Record<string, readonly number[]> {
  return Object.fromEntries(ranges.map(({ name, whole }) => [name, whole]));
}

/** Refuses ranges of a parameter of another shape; older saves have lengths alone, or neither. */
function assertShapes({ values }: State, ranges: readonly LiveShard[]): void {
  const table = (field: string): ReadonlyMap<string, StateValue> =>
    new Map(Object.entries((values[field] ?? {}) as Readonly<Record<string, StateValue>>));
  const [shapes, lengths] = [table("shapes"), table("lengths")];
  for (const { name, whole } of ranges) {
    const shape = JSON.stringify(shapes.get(name) ?? whole);
    const length = lengths.get(name) ?? elementsOf(whole);
    const needs = JSON.stringify(whole);
    if (shape === needs && length === elementsOf(whole)) continue;
    const finds = shape === needs ? `${textOf(length)} elements` : shape;
    throw invalid("restore", name, `a range of ${finds}`, `a range of ${needs}`);
  }
}

/** Restores a part from `shardState` and returns its step. A part that does not fit changes nothing. */
export function restoreShards(
  state: State,
  ranges: readonly LiveShard[],
  optimizer: Optimizer,
): number {
  assertState("restore", state);
  const { step, optimizer: values } = state.values;
  if (!isCount(step)) {
    throw invalid("restore", "step", textOf(step), "the state of a ShardedParallel");
  }
  for (const { name, dtype, shape } of ranges) {
    const found = state.tensors[`value/${name}`];
    const [finds, needs] = [
      found && text(found.dtype, found.data.length),
      text(dtype, shape[0] ?? 0),
    ];
    if (finds !== needs) throw invalid("restore", name, finds ?? "nothing", needs);
  }
  assertShapes(state, ranges);
  const known = new Set(ranges.map(({ name }) => `value/${name}`));
  const slots = Object.entries(state.tensors).filter(([name]) => !known.has(name));
  optimizer.restore({
    values: (values ?? {}) as Record<string, StateValue>,
    tensors: Object.fromEntries(
      slots.map(([name, tensor]) => [name.replace(/^optimizer\//, ""), tensor]),
    ),
  });
  for (const { name, value } of ranges) {
    value.set(state.tensors[`value/${name}`]?.data as ParameterArray);
  }
  return step;
}

/** Refuses the state of parameters that no rank would take over. */
export function assertNoneLost(states: readonly State[], { names }: ParameterSet): void {
  const known = new Set(names);
  for (const state of states) {
    assertState("reshard", state);
    const lost = Object.keys(state.tensors)
      .map(parameterOf)
      .find((name) => !known.has(name));
    if (lost === undefined) continue;
    const hint = "it would be lost: declare the parameters that were saved";
    throw invalid("restore", lost, "state of a parameter", "none of this name", hint);
  }
}

/** This rank's part of the state, from the parts of other ranks in their order. */
export function reshardStates(
  states: readonly State[],
  ranges: readonly LiveShard[],
  own: State,
): State {
  const ofParameter = new Map(ranges.map((range) => [range.name, range]));
  for (const state of states) {
    assertShapes(state, ranges);
    for (const key of Object.keys(state.tensors)) {
      const name = parameterOf(key);
      if (Object.hasOwn(own.tensors, key) || !ofParameter.has(name)) continue;
      throw invalid("restore", name, `"${key}"`, "no state of this name");
    }
  }
  const tensors = Object.keys(own.tensors).map((key): [string, StateTensor] => {
    const name = parameterOf(key);
    const { begin, end, whole, dtype } = ofParameter.get(name) as LiveShard;
    // Other stages of a pipeline have other parameters.
    const parts = states.flatMap(({ tensors: theirs }) => theirs[key] ?? []);
    const length = parts.reduce((sum, { data }) => sum + data.length, 0);
    const other = parts.find((part) => part.dtype !== dtype);
    const [finds, needs] = [text(other?.dtype ?? dtype, length), text(dtype, elementsOf(whole))];
    if (finds !== needs) throw invalid("restore", name, `"${key}" of ${finds}`, needs);
    const all = zerosOf(dtype, length);
    let at = 0;
    for (const { data } of parts) {
      all.set(data as ParameterArray, at);
      at += data.length;
    }
    return [key, { dtype, shape: [end - begin], data: all.subarray(begin, end) }];
  });
  const names = [...ofParameter.keys()];
  const held = holdersOf(states, new Set(names));
  const { values } = held[0] ?? own;
  const optimizer = optimizerOf(held, names);
  const shapes = shapesOf(ranges);
  return { values: { ...values, optimizer, shapes }, tensors: Object.fromEntries(tensors) };
}

/** The states that hold some of these parameters, all after one number of steps; every state where none holds any. */
function holdersOf(states: readonly State[], names: ReadonlySet<string>): readonly State[] {
  const holders = states.filter(({ tensors }) =>
    Object.keys(tensors).some((key) => names.has(parameterOf(key))),
  );
  const steps = [...new Set(holders.map(({ values }) => values["step"]))];
  if (steps.length > 1) {
    throw invalid("restore", "step", steps.join(" and "), "states after one number of steps");
  }
  return holders.length === 0 ? states : holders;
}

/** The parameter of a tensor in `shardState`. */
function parameterOf(key: string): string {
  return key.startsWith("value/")
    ? key.slice("value/".length)
    : key.slice("optimizer/".length, key.lastIndexOf("/"));
}

/** The optimizer's counts and rules for some parameters, from their earlier owners. */
function optimizerOf(states: readonly State[], names: readonly string[]): StateValue {
  type Table = Readonly<Record<string, StateValue>>;
  const all = states.map(({ values }) => (values["optimizer"] ?? {}) as Record<string, StateValue>);
  const of = (field: string): Table => {
    const tables = all.map((each) => (each[field] ?? {}) as Table);
    return Object.fromEntries(
      names.flatMap((name) => {
        const found = tables.find((table) => Object.hasOwn(table, name));
        return found === undefined ? [] : [[name, found[name] as StateValue]];
      }),
    );
  };
  return { steps: all[0]?.["steps"] ?? null, updates: of("updates"), rules: of("rules") };
}

function text(dtype: string, length: number): string {
  return `${dtype} with ${length} elements`;
}
