/** The states of parts as they are at this moment, checked to survive being written. */
import { bytesOf, isDType } from "../../api/index.ts";
import { nearest } from "../../api/nearest.ts";
import { assertOptions, invalid, textOf } from "../../api/option-kinds.ts";
import {
  elementsOf,
  type RankStateful,
  type State,
  type Stateful,
  type StateTensor,
  type StateValue,
} from "../state.ts";

/** The state in a checkpoint, by names that stay the same between saving and loading. */
export interface CheckpointParts {
  /** State that is the same on all ranks: parameters, optimizer, schedule, sampler. Compared before it is saved. */
  readonly shared: Readonly<Record<string, Stateful>>;
  /** State of each rank's own: random numbers, the trainer with its residuals. */
  readonly perRank?: Readonly<Record<string, RankStateful>> | undefined;
}

/**
 * The states of all parts. Values are copies with their names in order, so that equal ones make equal text; tensors share
 * memory with their parts.
 */
export function statesOf(parts: Readonly<Record<string, Stateful>>): Record<string, State> {
  const states = byName(Object.entries(parts)).map(([name, part]): [string, State] => {
    if (!isPartName(name)) {
      throw invalid("save", name, "the name", 'a name without "/" that is not empty');
    }
    const { values, tensors } = part.state();
    for (const [tensor, each] of Object.entries(tensors)) assertTensor(name, tensor, each);
    const kept = jsonRecord(name, "", values) as State["values"];
    return [name, { values: kept, tensors }];
  });
  return Object.fromEntries(states);
}

/** Names of parts have no "/": it parts them from the names of their tensors. */
export function isPartName(name: unknown): boolean {
  return typeof name === "string" && name !== "" && !name.includes("/");
}

/**
 * Refuses parts of other kinds, and near misses of their names, of which the parts would be lost in silence. Names of something else
 * may stand beside them.
 */
export function assertParts(action: string, parts: CheckpointParts): void {
  const kinds = { shared: "object", perRank: "object" } as const;
  const entries = Object.entries(parts ?? {});
  const meant = entries.filter(([name]) => nearest(name, Object.keys(kinds)).length > 0);
  const isObject = typeof parts === "object" && parts !== null;
  assertOptions(action, isObject ? (Object.fromEntries(meant) as typeof parts) : parts, kinds);
  if (parts.shared === undefined) {
    throw invalid(action, "shared", "undefined", "an object of parts by name");
  }
  assertMethods(action, parts.shared, ["state", "restore"]);
  assertMethods(action, parts.perRank ?? {}, ["state", "restore", "reshard"]);
}

function assertMethods(
  action: string,
  parts: Readonly<Record<string, unknown>>,
  methods: readonly string[],
): void {
  for (const [name, part] of Object.entries(parts)) {
    const found = (part ?? {}) as Readonly<Record<string, unknown>>;
    const lacks = methods.find((method) => typeof found[method] !== "function");
    if (lacks === undefined) continue;
    const what = `${textOf(part)} without ${lacks}()`;
    throw invalid(action, name, what, `a part with ${methods.join(", ")}`);
  }
}

/** Entries in the order of names, by code units. */
export function byName<T>(entries: readonly (readonly [string, T])[]): (readonly [string, T])[] {
  return [...entries].sort(([a], [b]) => (a < b ? -1 : 1));
}

/** Refuses what is no whole number, or too small a one. */
export function assertCount(action: string, field: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw invalid(action, field, textOf(value), `an integer of at least ${least}`);
}

/** Refuses data that are not those of their dtype and shape: the rest of them would not be kept. */
function assertTensor(part: string, name: string, { dtype, shape, data }: StateTensor): void {
  if (!isDType(dtype))
    throw invalid("save", part, `tensor "${name}" of dtype ${textOf(dtype)}`, "a dtype");
  const count = elementsOf(shape);
  if (data.length === count && data.byteLength === count * bytesOf(dtype)) return;
  const found = `tensor "${name}" with ${data.length} elements of ${data.BYTES_PER_ELEMENT} bytes`;
  throw invalid("save", part, found, `those of ${dtype} [${shape.join(", ")}]`);
}

/** A copy of a value; refuses what JSON would change: it has no NaN, no infinity, no -0, and objects of names only. */
function jsonCopy(part: string, field: string, value: unknown): StateValue {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") {
    if (Number.isFinite(value) && !Object.is(value, -0)) return value;
    const found = Object.is(value, -0) ? "-0" : String(value);
    throw invalid(
      "save",
      part,
      `${found} as ${field}`,
      "values that JSON carries; keep others in tensors",
    );
  }
  if (Array.isArray(value)) {
    // Not `map`, which passes over holes.
    return Array.from(value, (each, at) => jsonCopy(part, `${field}.${at}`, each));
  }
  if (isPlain(value)) return jsonRecord(part, `${field}.`, value);
  const found = typeof value === "object" ? `a ${value?.constructor?.name}` : typeof value;
  throw invalid("save", part, `${found} as ${field}`, "values that JSON carries");
}

function jsonRecord(part: string, path: string, record: object): Record<string, StateValue> {
  const entries = byName(Object.entries(record));
  return Object.fromEntries(
    entries.map(([name, each]) => [name, jsonCopy(part, `${path}${name}`, each)]),
  );
}

function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
