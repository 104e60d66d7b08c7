/** The states of parts, checked to survive being written as text. */
import { InvalidArgumentError } from "../../api/index.ts";
import type { State, Stateful, StateValue } from "../state.ts";

/** The states of all parts. */
export function statesOf(parts: Readonly<Record<string, Stateful>>): Record<string, State> {
  const states = byName(Object.entries(parts)).map(([name, part]): [string, State] => {
    if (name === "" || name.includes("/")) {
      throw fault(name, "found that name", 'a name without "/" that is not empty');
    }
    const state = part.state();
    for (const [field, value] of Object.entries(state.values)) assertKept(name, field, value);
    return [name, state];
  });
  return Object.fromEntries(states);
}

/** Entries in the order of names, by code units. */
export function byName<T>(entries: readonly (readonly [string, T])[]): (readonly [string, T])[] {
  return [...entries].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Refuses what is no number of a step. */
export function assertStep(step: number): void {
  if (Number.isSafeInteger(step) && step >= 0) return;
  throw new InvalidArgumentError(
    { headline: `save: step: found ${String(step)}, needs an integer of at least 0` },
    { field: "step" },
  );
}

/** Refuses values that JSON would change: it has no NaN, no infinity and no -0. */
function assertKept(part: string, field: string, value: StateValue | undefined): void {
  if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0))) {
    const found = Object.is(value, -0) ? "-0" : String(value);
    throw fault(part, `${field} is ${found}`, "values that JSON carries; keep others in tensors");
  }
  if (typeof value === "object" && value !== null) {
    for (const [inner, each] of Object.entries(value)) assertKept(part, `${field}.${inner}`, each);
  } else if (!["string", "number", "boolean"].includes(typeof value) && value !== null) {
    throw fault(part, `${field} is ${typeof value}`, "values that JSON carries");
  }
}

function fault(part: string, found: string, needed: string): InvalidArgumentError {
  return new InvalidArgumentError(
    { headline: `save: part "${part}": ${found}, needs ${needed}` },
    { field: part },
  );
}
