/**
 * Invariance by running: every count of a range is a call of the simulation, and the bits of every element tell its fold.
 *
 * All elements of a rank's buffer are equal, so that elements of one result differ by their folds alone. Several contents in
 * turn make up an element's print: unequal prints are unequal folds. Shares no code with the proof, nor with its oracle beside
 * it: only the public interface of a world.
 */
import {
  type Communicator,
  createWorld,
  type DeviceBuffer,
  type DType,
  type HostArray,
  type ReduceOp,
} from "twinccl";
import type { Answer, LibraryName } from "twinccl/algorithms";
import { sim } from "twinccl/sim";
import { randomWords } from "../../../support/seed.ts";

/** Calls of one kind. */
export interface RunKind {
  readonly collective: "allReduce" | "reduceScatter" | "reduce";
  readonly ranks: number;
  readonly dtype: DType;
  readonly op: ReduceOp;
  readonly variables: Readonly<Record<string, string>>;
  readonly like?: LibraryName | undefined;
  /** Hosts of one GPU each. */
  readonly hosts?: boolean | undefined;
}

/** Prints of all elements, by output block. */
type Prints = readonly Uint32Array[];

/** Significand bits after the first. */
const digits: Partial<Record<DType, number>> = {
  float16: 10,
  bfloat16: 7,
  float32: 23,
  float64: 52,
  float8e4m3: 3,
  float8e5m2: 2,
};

/** The contents of a call: a number for each rank. */
type Contents = readonly number[];

/** Contents that tell orders apart: a number that two others swallow, and numbers of several magnitudes. */
export function contentsFor({ dtype, op, ranks }: RunKind, sets: number, seed: number): Contents[] {
  const next = randomWords(seed);
  const significand = digits[dtype] ?? 4;
  return Array.from({ length: sets }, (_, at) => {
    const drawn = Array.from({ length: ranks }, () => {
      // Doubles have more bits than are drawn, so that their magnitudes lie further apart.
      const spread = dtype === "float64" ? 45 : Math.min(significand, 8) + 2;
      const exponent = op === "prod" ? 0 : (next() >>> 0) % spread;
      const bits = 2 ** Math.min(significand, 30);
      const fraction = 1 + ((next() >>> 0) % bits) / bits;
      const value = digits[dtype] === undefined ? (next() >>> 0) % 16 : fraction * 2 ** exponent;
      return next() % 2 === 0 || digits[dtype] === undefined ? value : -value;
    });
    if (at % 2 === 0 || ranks < 3 || op === "prod" || digits[dtype] === undefined) return drawn;
    const large = 2 ** (significand + 2);
    const order = drawn.map((_, rank) => rank).sort(() => (next() % 2 === 0 ? 1 : -1));
    return drawn.map((_, rank) => [large, -large, 1][order.indexOf(rank)] ?? 0);
  });
}

/** The prints of calls of every count, by count. Ranks from `present` on contribute the neutral element. */
export async function printsOf(
  kind: RunKind,
  counts: readonly number[],
  contents: readonly Contents[],
): Promise<ReadonlyMap<number, Prints>> {
  const { ranks, variables, like = "nccl-2.28", hosts = false } = kind;
  const topology = hosts ? "h200-hosts" : "h200x8";
  const backend = sim({ like, topology, plan: { variables } });
  const world = await createWorld({ backend, size: ranks });
  try {
    const byRank = await world.run((comm) => rankPrints(comm, kind, counts, contents));
    return new Map(
      counts.map((count, at) => {
        const all = byRank.map((prints) => prints[at] as Uint32Array);
        return [count, kind.collective === "reduceScatter" ? all : all.slice(0, 1)];
      }),
    );
  } finally {
    await world.close();
  }
}

async function rankPrints(
  comm: Communicator,
  { collective, dtype, op, ranks }: RunKind,
  counts: readonly number[],
  contents: readonly Contents[],
): Promise<Uint32Array[]> {
  const found: Uint32Array[] = [];
  for (const count of counts) {
    const prints = new Uint32Array(count);
    const blocks = collective === "reduceScatter" ? ranks : 1;
    const send = comm.alloc(dtype, blocks * count);
    const recv = comm.alloc(dtype, count);
    for (const values of contents) {
      send.fill(values[comm.rank] ?? neutralOf(dtype, op));
      await make(comm, { collective, op }, { send, recv });
      // Only a reduce-scatter has a block on each rank.
      if (blocks > 1 || comm.rank === 0) addPrints(prints, await recv.toHost());
    }
    send.dispose();
    recv.dispose();
    found.push(prints);
  }
  return found;
}

/** Adds the bytes of all elements to their prints. */
function addPrints(prints: Uint32Array, { buffer, BYTES_PER_ELEMENT: width }: HostArray): void {
  const bytes = new Uint8Array(buffer as ArrayBuffer);
  for (let byte = 0; byte < width; byte++) {
    for (let element = 0, at = byte; element < prints.length; element++, at += width) {
      prints[element] = Math.imul((prints[element] as number) ^ (bytes[at] as number), 0x01000193);
    }
  }
}

async function make(
  comm: Communicator,
  { collective, op }: Pick<RunKind, "collective" | "op">,
  { send, recv }: { readonly send: DeviceBuffer; readonly recv: DeviceBuffer },
): Promise<void> {
  if (collective === "allReduce") await comm.allReduce({ send, recv, op });
  else if (collective === "reduceScatter") await comm.reduceScatter({ send, recv, op });
  else if (comm.rank === 0) await comm.reduce({ send, recv, op, root: 0 });
  else await comm.reduce({ send, op, root: 0 });
}

/** The contribution that changes no other one. */
function neutralOf(dtype: DType, op: ReduceOp): number {
  if (op === "prod") return 1;
  if (op !== "max") return -0;
  if (dtype === "int32") return -(2 ** 31);
  return dtype === "float8e4m3" ? -448 : Number.NEGATIVE_INFINITY;
}

/** The smallest count under which an element has another print than under a smaller one. */
export function sizeSeen(prints: ReadonlyMap<number, Prints>): number | undefined {
  const known: Uint32Array[] = [];
  for (const [count, blocks] of prints) {
    for (const [block, found] of blocks.entries()) {
      const own = known[block] ?? new Uint32Array();
      const shared = Math.min(own.length, found.length);
      for (let i = 0; i < shared; i++) if (own[i] !== found[i]) return count;
      if (found.length > own.length) known[block] = found;
    }
  }
  return undefined;
}

/** The smallest count with two places, rows apart, of different prints. */
export function placesSeen(prints: ReadonlyMap<number, Prints>, row: number): number | undefined {
  for (const [count, [first = new Uint32Array(), ...others]] of prints) {
    if (others.some((found) => found.some((print, i) => print !== first[i]))) return count;
    if (first.some((print, i) => i >= row && print !== first[i % row])) return count;
  }
  return undefined;
}

/** The smallest count under which two kinds of call have different prints of an element. */
export function kindsSeen(
  prints: ReadonlyMap<number, Prints>,
  others: ReadonlyMap<number, Prints>,
): number | undefined {
  for (const [count, blocks] of prints) {
    const other = others.get(count) ?? [];
    const isOther = blocks.some((found, block) => {
      const beside = other[block];
      return beside !== undefined && found.some((print, i) => print !== beside[i]);
    });
    if (isOther) return count;
  }
  return undefined;
}

/** The contradiction of an answer to what the runs have shown; `undefined` where there is none. */
export async function contradiction(
  { isInvariant, folds, witness }: Answer,
  seen: number | undefined,
  kinds: readonly [RunKind, RunKind],
): Promise<string | undefined> {
  if (isInvariant) return seen === undefined ? undefined : `count ${seen} differs`;
  const least = folds && Math.max(...folds.map(({ count }) => count));
  if (seen !== undefined && least !== undefined && seen < least) {
    return `count ${seen} differs, before ${least}`;
  }
  if (folds === undefined) return undefined;
  // Two orders of a plain sum differ for some contributions.
  if (witness === undefined) return kinds[0].op === "sum" ? "nothing shows the folds" : undefined;
  for (const [side, { variables, ranks, count, block, element }] of folds.entries()) {
    const kind = { ...(kinds[side] as RunKind), variables, ranks };
    const bits = await bitsOf(kind, count, witness.contributions, { block, element });
    const promised = witness.results[side];
    if (bits !== promised) return `element ${element} of ${count} is ${bits}, not ${promised}`;
  }
  return undefined;
}

/** Bits of an element of a call with these contents. */
async function bitsOf(
  kind: RunKind,
  count: number,
  contents: Contents,
  { block, element }: { readonly block: number; readonly element: number },
): Promise<string> {
  const { ranks, variables, like = "nccl-2.28", hosts = false, collective, dtype, op } = kind;
  const topology = hosts ? "h200-hosts" : "h200x8";
  const world = await createWorld({
    backend: sim({ like, topology, plan: { variables } }),
    size: ranks,
  });
  try {
    const outputs = await world.run(async (comm) => {
      const send = comm.alloc(dtype, (collective === "reduceScatter" ? ranks : 1) * count);
      const recv = comm.alloc(dtype, count);
      // Witnesses have +0 where the laws have -0: their sums are no zeros of either sign alone.
      send.fill(contents[comm.rank] ?? (op === "prod" ? 1 : 0));
      await make(comm, { collective, op }, { send, recv });
      const { buffer, BYTES_PER_ELEMENT: width } = (await recv.toHost()) as HostArray;
      return [...new Uint8Array(buffer as ArrayBuffer, element * width, width)];
    });
    const bytes = (outputs[block] as number[]).reverse();
    return `0x${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  } finally {
    await world.close();
  }
}
