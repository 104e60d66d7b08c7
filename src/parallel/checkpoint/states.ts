/** The states of a job's parts: copied, checked, and compared between ranks before they are saved. */

import { withArticle } from "../../api/error-text.ts";
import { bytesOf, type Communicator, isDType } from "../../api/index.ts";
import { nearest } from "../../api/nearest.ts";
import { assertOptions, invalid, textOf } from "../../api/option-kinds.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import {
  elementsOf,
  isRecord,
  isState,
  type RankStateful,
  type State,
  type Stateful,
  type StateTensor,
  type StateValue,
} from "../state.ts";
import { isPartName, type Manifest, sha256Of } from "./manifest.ts";
import type { States } from "./rank-file.ts";

/** The state in a checkpoint, by names that are the same in saving and loading. */
export interface CheckpointParts {
  /** State that is the same on all ranks: parameters, optimizer, schedule, sampler. Compared before it is saved. */
  readonly shared: Readonly<Record<string, Stateful>>;
  /** State that differs between ranks: random numbers, the trainer with its residuals. */
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
    const state = part.state();
    if (!isState(state)) {
      const needed = "{ values, tensors }, and { dtype, shape, data } of each tensor";
      throw invalid("save", name, `${textOf(state)} as its state`, needed);
    }
    const { values, tensors } = state;
    for (const [tensor, each] of Object.entries(tensors)) assertTensor(name, tensor, each);
    const kept = jsonRecord(name, "", values) as State["values"];
    return [name, { values: kept, tensors }];
  });
  return Object.fromEntries(states);
}

/** Refuses parts of other kinds, and misspelled names, which would lose their parts silently. Unrelated names are allowed. */
export function assertParts(action: string, parts: CheckpointParts): void {
  const kinds = { shared: "object", perRank: "object" } as const;
  const entries = Object.entries(parts ?? {});
  const misspelled = entries.filter(([name]) => nearest(name, Object.keys(kinds)).length > 0);
  const isObject = typeof parts === "object" && parts !== null;
  assertOptions(action, isObject ? (Object.fromEntries(misspelled) as typeof parts) : parts, kinds);
  if (parts.shared === undefined) {
    throw invalid(action, "shared", "undefined", "an object of parts by name, or {} for none");
  }
  for (const [kind, of] of Object.entries<object>({
    shared: parts.shared,
    perRank: parts.perRank ?? {},
  })) {
    if (isRecord(of)) continue;
    throw invalid(action, kind, withArticle(of.constructor.name), "an object of parts by name");
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

/** Refuses data that do not fit their dtype and shape: the rest of them would not be saved. */
function assertTensor(part: string, name: string, { dtype, shape, data }: StateTensor): void {
  if (!isDType(dtype))
    throw invalid("save", part, `tensor "${name}" of dtype ${textOf(dtype)}`, "a dtype");
  const count = elementsOf(shape);
  if (data.length === count && data.byteLength === count * bytesOf(dtype)) return;
  const found = `tensor "${name}" with ${data.length} elements of ${data.BYTES_PER_ELEMENT} bytes`;
  throw invalid("save", part, found, `those of ${dtype} [${shape.join(", ")}]`);
}

/** A copy of a value. Refuses values that JSON would change: NaN, infinity, -0, and objects with other than named fields. */
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
  const found =
    typeof value === "object" ? withArticle(`${value?.constructor?.name}`) : typeof value;
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

// State that all ranks share: listed as in the manifest, and compared before it is saved.

/** Bytes of one hash: several run in parallel, and Node hashes less than 2 GiB at a time. */
const PIECE_BYTES = 2 ** 24;

/** The shared parts as lines of the manifest. */
export function sharedParts(shared: States): Manifest["shared"] {
  return Object.entries(shared).map(([part, { values, tensors }]) => {
    const entries = byName(Object.entries(tensors));
    return [
      part,
      { values, tensors: entries.map(([name, { dtype, shape }]) => [name, { dtype, shape }]) },
    ];
  });
}

/** Refuses shared state that differs between ranks. All checksums start immediately, of the present contents. */
export async function assertShared(
  comm: Communicator,
  step: number,
  shared: States,
  perRank: readonly string[],
): Promise<void> {
  const lines = new Map<string, string>([["step", String(step)]]);
  for (const part of perRank) lines.set(`perRank ${part}`, "present");
  const digests: Promise<void>[] = [];
  for (const [part, { values, tensors }] of Object.entries(shared)) {
    lines.set(`${part}: values`, JSON.stringify(values));
    for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      const take = (sha256: string): void => {
        lines.set(`${part}/${name}`, `${dtype} [${shape.join(", ")}] ${sha256}`);
      };
      digests.push(fingerprint(bytes).then(take));
    }
  }
  await Promise.all(digests);
  await assertSameOnRanks(comm, {
    action: "save",
    kind: "shared state",
    lines,
    hint: "ranks have gone apart: what differs belongs to perRank, or the run is wrong",
  });
}

/** The checksum of a tensor's present bytes; with several pieces, of their checksums. */
async function fingerprint(bytes: Uint8Array): Promise<string> {
  if (bytes.length <= PIECE_BYTES) return sha256Of(bytes);
  const pieces = Array.from({ length: Math.ceil(bytes.length / PIECE_BYTES) }, (_, at) =>
    sha256Of(bytes.subarray(at * PIECE_BYTES, (at + 1) * PIECE_BYTES)),
  );
  return sha256Of(new TextEncoder().encode((await Promise.all(pieces)).join()));
}
