/** Wrong arguments of every collective and of point to point: refused where they were given, by field, unposted. */

import type { Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { type Expected, expectPlanted, type Guard } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: wrong types are the point
type Wrong = any;
type Changes = (comm: Communicator, guard: Guard) => object;

const size = 3;

/** A range of host memory with guarded surroundings and contents. */
function ints(guard: Guard, length: number): Int32Array {
  return guard.array(new Int32Array(length + 4).fill(7)).subarray(2, 2 + length);
}

/** Two ranges of one guarded array, as `[begin, length]`. */
function within(guard: Guard, send: [number, number], recv: [number, number]): object {
  const whole = guard.array(new Int32Array(16).fill(7));
  const part = ([begin, length]: [number, number]) => whole.subarray(begin, begin + length);
  return { send: part(send), recv: part(recv) };
}

const floats = (guard: Guard, length: number) => guard.array(new Float32Array(length).fill(7));
const root = (comm: Communicator, args: object): object => (comm.rank === 0 ? args : {});

/** Every call on three ranks with right arguments, which a case changes. */
const right: Readonly<Record<string, Changes>> = {
  reduce: (comm, guard) => ({
    send: ints(guard, 6),
    op: "sum",
    root: 0,
    ...root(comm, { recv: ints(guard, 6) }),
  }),
  broadcast: (comm, guard) => ({
    root: 0,
    recv: ints(guard, 6),
    ...root(comm, { send: ints(guard, 6) }),
  }),
  allGather: (_, guard) => ({ send: ints(guard, 2), recv: ints(guard, 6) }),
  allGatherv: ({ rank }, guard) => ({
    send: ints(guard, rank + 1),
    recv: ints(guard, 6),
    recvCounts: [1, 2, 3],
  }),
  reduceScatter: (_, guard) => ({ send: ints(guard, 6), recv: ints(guard, 2), op: "sum" }),
  reduceScatterv: ({ rank }, guard) => ({
    send: ints(guard, 6),
    recv: ints(guard, rank + 1),
    op: "sum",
    sendCounts: [1, 2, 3],
  }),
  gather: (comm, guard) => ({
    send: ints(guard, 2),
    root: 0,
    ...root(comm, { recv: ints(guard, 6) }),
  }),
  scatter: (comm, guard) => ({
    recv: ints(guard, 2),
    root: 0,
    ...root(comm, { send: ints(guard, 6) }),
  }),
  send: ({ rank }, guard) => ({ send: ints(guard, 2), peer: (rank + 1) % size }),
  recv: ({ rank }, guard) => ({ recv: ints(guard, 2), peer: (rank + 1) % size }),
  sendRecv: ({ rank }, guard) => ({
    send: ints(guard, 2),
    recv: ints(guard, 2),
    to: (rank + 1) % size,
    from: (rank + 2) % size,
  }),
  split: () => ({ color: 0 }),
};

/** A fault in one call: on all ranks, or `on` one alone, whose peers wait for it. */
interface Case {
  readonly collective: string;
  readonly wrong: string;
  readonly field: string | ((rank: number) => string);
  readonly changes: Changes;
  readonly on?: number;
  readonly name?: string;
}

const isNoRank: readonly unknown[] = [3, -1, 0.5, Number.NaN, 2 ** 53, "0", 0n, null, undefined];

const ranks: readonly Case[] = [
  ["reduce", "root"],
  ["gather", "root"],
  ["scatter", "root"],
  ["broadcast", "root"],
  ["send", "peer"],
  ["recv", "peer"],
  ["sendRecv", "to"],
  ["sendRecv", "from"],
].flatMap(([collective = "", field = ""]) =>
  isNoRank.map((value) => ({
    collective,
    wrong: `${field} ${typeof value} ${String(value)}`,
    field,
    changes: () => ({ [field]: value }),
  })),
);

const areNoCounts: readonly (readonly [unknown, string])[] = [
  [[1, 1.5, 3], "[1]"],
  [[1, 2, Number.NaN], "[2]"],
  [[-1, 2, 3], "[0]"],
  [[1, 2, 2 ** 53], "[2]"],
  [[1, Number.POSITIVE_INFINITY, 3], "[1]"],
  [[1, "2", 3], "[1]"],
  [[1n, 2, 3], "[0]"],
  [Object.assign(new Array(3), { 0: 1, 2: 3 }), "[1]"],
  [[1, 2], ""],
  [[1, 2, 3, 0], ""],
  [[], ""],
  [Int32Array.of(1, 2, 3), ""],
  ["123", ""],
  [6, ""],
  [null, ""],
];

const counts: readonly Case[] = [
  ["allGatherv", "recvCounts", undefined],
  ["allGatherv", "recvOffsets", undefined],
  ["reduceScatterv", "sendCounts", undefined],
  ["gather", "recvCounts", 0],
  ["gather", "recvOffsets", 0],
  ["scatter", "sendCounts", 0],
  ["scatter", "sendOffsets", 0],
].flatMap(([collective, field, on]) =>
  areNoCounts.map(([value, place]) => ({
    collective: collective as string,
    wrong: `${field} ${typeof value} ${String(value)}${place}`,
    field: `${field}${place}`,
    changes: () => ({ [field as string]: value }),
    ...(on === undefined ? {} : { on: on as number }),
  })),
);

const lengths: readonly Case[] = [
  ["reduce", "recv one short", "recv", (g: Guard) => ({ recv: ints(g, 5) }), 0],
  ["reduce", "recv one long", "recv", (g: Guard) => ({ recv: ints(g, 7) }), 0],
  ["reduce", "recv of another dtype", "recv", (g: Guard) => ({ recv: floats(g, 6) }), 0],
  ["reduce", "no send", "send", () => ({ send: undefined })],
  ["reduce", "recv away from the root", "recv", (g: Guard) => ({ recv: ints(g, 6) }), 2],
  ["reduce", "an operator that does not exist", "op", () => ({ op: "xor" })],
  ["allGather", "recv one short", "recv", (g: Guard) => ({ recv: ints(g, 5) })],
  ["allGather", "recv one long", "recv", (g: Guard) => ({ recv: ints(g, 7) })],
  ["allGather", "recv as long as send", "recv", (g: Guard) => ({ recv: ints(g, 2) })],
  ["allGather", "recv of another dtype", "recv", (g: Guard) => ({ recv: floats(g, 6) })],
  ["allGather", "no recv", "recv", () => ({ recv: undefined })],
  ["allGatherv", "send longer than its count", "send", (g: Guard) => ({ send: ints(g, 4) })],
  ["allGatherv", "send empty", "send", (g: Guard) => ({ send: ints(g, 0) })],
  ["allGatherv", "recv one short", "recv", (g: Guard) => ({ recv: ints(g, 5) })],
  ["allGatherv", "recv one long", "recv", (g: Guard) => ({ recv: ints(g, 7) })],
  ["allGatherv", "no counts", "recvCounts", () => ({ recvCounts: undefined })],
  ["allGatherv", "blocks that overlap", "recvOffsets[1]", () => ({ recvOffsets: [0, 0, 3] })],
  ["allGatherv", "a block outside", "recvOffsets[0]", () => ({ recvOffsets: [6, 0, 3] })],
  ["reduceScatter", "send one short", "send", (g: Guard) => ({ send: ints(g, 5) })],
  ["reduceScatter", "send one long", "send", (g: Guard) => ({ send: ints(g, 7) })],
  ["reduceScatter", "recv of another dtype", "send", (g: Guard) => ({ recv: floats(g, 2) })],
  ["reduceScatter", "no operator", "op", () => ({ op: undefined })],
  ["reduceScatterv", "send one short", "send", (g: Guard) => ({ send: ints(g, 5) })],
  ["reduceScatterv", "recv of the wrong length", "recv", (g: Guard) => ({ recv: ints(g, 4) })],
  ["reduceScatterv", "an operator that does not exist", "op", () => ({ op: { preMul: "2" } })],
  ["gather", "recv one short", "recv", (g: Guard) => ({ recv: ints(g, 5) }), 0],
  ["gather", "recv one long", "recv", (g: Guard) => ({ recv: ints(g, 7) }), 0],
  [
    "gather",
    "recv longer than its counts",
    "recv",
    (g: Guard) => ({ recv: ints(g, 7), recvCounts: [2, 2, 2] }),
    0,
  ],
  [
    "gather",
    "recv shorter than its offsets reach",
    "recvOffsets[1]",
    (g: Guard) => ({ recv: ints(g, 7), recvOffsets: [0, 6, 3] }),
    0,
  ],
  ["gather", "no recv at the root", "recv", () => ({ recv: undefined }), 0],
  ["gather", "recv of another dtype", "recv", (g: Guard) => ({ recv: floats(g, 6) }), 0],
  ["gather", "recv away from the root", "recv", (g: Guard) => ({ recv: ints(g, 6) }), 2],
  ["gather", "counts away from the root", "recvCounts", () => ({ recvCounts: [2, 2, 2] }), 1],
  ["gather", "offsets away from the root", "recvOffsets", () => ({ recvOffsets: [0, 2, 4] }), 1],
  ["gather", "blocks that overlap", "recvOffsets[2]", () => ({ recvOffsets: [0, 3, 4] }), 0],
  ["gather", "a block outside", "recvOffsets[2]", () => ({ recvOffsets: [0, 2, 5] }), 0],
  ["gather", "counts beyond recv", "recv", () => ({ recvCounts: [2, 2, 3] }), 0],
  ["scatter", "send one short", "send", (g: Guard) => ({ send: ints(g, 5) }), 0],
  ["scatter", "send one long", "send", (g: Guard) => ({ send: ints(g, 7) }), 0],
  [
    "scatter",
    "send longer than its counts",
    "send",
    (g: Guard) => ({ send: ints(g, 7), sendCounts: [2, 2, 2] }),
    0,
  ],
  ["scatter", "no send at the root", "send", () => ({ send: undefined }), 0],
  ["scatter", "no recv", "recv", () => ({ recv: undefined })],
  ["scatter", "send of another dtype", "send", (g: Guard) => ({ send: floats(g, 6) }), 0],
  ["scatter", "send away from the root", "send", (g: Guard) => ({ send: ints(g, 6) }), 1],
  ["scatter", "counts away from the root", "sendCounts", () => ({ sendCounts: [2, 2, 2] }), 2],
  ["scatter", "offsets away from the root", "sendOffsets", () => ({ sendOffsets: [0, 2, 4] }), 2],
  ["scatter", "a block outside", "sendOffsets[0]", () => ({ sendOffsets: [5, 0, 2] }), 0],
  ["scatter", "counts beyond send", "send", () => ({ sendCounts: [2, 2, 3] }), 0],
  ["send", "no data", "send", () => ({ send: undefined })],
  ["send", "a plain array", "send", () => ({ send: [1, 2] })],
  ["recv", "no data", "recv", () => ({ recv: undefined })],
  ["recv", "bits without a dtype", "recv", () => ({ recv: new Uint16Array(2) })],
  ["sendRecv", "no send", "send", () => ({ send: undefined })],
  ["sendRecv", "no recv", "recv", () => ({ recv: undefined })],
  ["send", "a deadline of 0", "timeoutMs", () => ({ timeoutMs: 0 })],
  ["recv", "a signal that is none", "signal", () => ({ signal: {} })],
  ["sendRecv", "a deadline that is NaN", "timeoutMs", () => ({ timeoutMs: Number.NaN })],
  ["split", "a negative color", "color", () => ({ color: -1 })],
  ["split", "a fraction for a color", "color", () => ({ color: 0.5 })],
  ["split", "null for a color", "color", () => ({ color: null })],
  ["split", "a word for a color", "color", () => ({ color: "red" })],
  ["split", "a fraction for a key", "key", () => ({ color: 0, key: 0.5 })],
  ["split", "an infinite key", "key", () => ({ color: 0, key: Number.NEGATIVE_INFINITY })],
].map(([collective, wrong, field, changes, on]) => ({
  collective: collective as string,
  wrong: wrong as string,
  field: field as string,
  changes: (_: Communicator, guard: Guard) => (changes as (guard: Guard) => object)(guard),
  ...(on === undefined ? {} : { on: on as number }),
}));

const places: readonly Case[] = [
  ["allGather", (rank: number, g: Guard) => within(g, [3 + 2 * rank, 2], [2, 6])],
  ["allGather", (rank: number, g: Guard) => within(g, [2 + 2 * ((rank + 1) % 3), 2], [2, 6])],
  [
    "allGatherv",
    (rank: number, g: Guard) =>
      within(g, [[1, 4, 6][rank] ?? 0, rank + 1], [rank === 0 ? 0 : 2, 6]),
  ],
  ["reduceScatter", (rank: number, g: Guard) => within(g, [2, 6], [1 + 2 * rank, 2])],
  ["reduceScatter", (rank: number, g: Guard) => within(g, [2, 6], [2 + 2 * ((rank + 1) % 3), 2])],
  [
    "reduceScatterv",
    (rank: number, g: Guard) => within(g, [2, 6], [[3, 4, 6][rank] ?? 0, rank + 1]),
  ],
  ["gather", (_: number, g: Guard) => within(g, [3, 2], [2, 6]), 0],
  ["scatter", (_: number, g: Guard) => within(g, [2, 6], [3, 2]), 0],
  ["reduce", (_: number, g: Guard) => within(g, [3, 6], [2, 6]), 0],
  ["broadcast", (_: number, g: Guard) => within(g, [2, 6], [3, 6]), 0],
  ["sendRecv", (_: number, g: Guard) => within(g, [2, 4], [5, 4])],
  ["sendRecv", (_: number, g: Guard) => within(g, [2, 4], [2, 4])],
].map(([collective, changes, on], index) => ({
  collective: collective as string,
  wrong: `a place that is not the in-place one (${index})`,
  field: "recv",
  changes: ({ rank }: Communicator, guard: Guard) =>
    (changes as (rank: number, guard: Guard) => object)(rank, guard),
  ...(on === undefined ? {} : { on: on as number }),
}));

const others: readonly Case[] = [
  ...[0, 1, 2].map((on) => ({
    collective: "send",
    wrong: `a send of rank ${on} to itself`,
    field: "peer",
    changes: () => ({ peer: on }),
    on,
  })),
  {
    collective: "recv",
    wrong: "a receive from itself",
    field: "peer",
    changes: ({ rank }) => ({ peer: rank }),
  },
  {
    collective: "allGatherv",
    wrong: "a huge count, still safe",
    field: (rank) => (rank === 2 ? "send" : "recv"),
    changes: () => ({ recvCounts: [1, 2, Number.MAX_SAFE_INTEGER] }),
  },
  {
    collective: "reduceScatterv",
    wrong: "counts whose sum is beyond safe integers",
    field: "send",
    changes: () => ({ sendCounts: new Array(3).fill(Number.MAX_SAFE_INTEGER) }),
  },
  ...["reduce", "allGather", "gather", "send", "sendRecv", "reduceScatterv"].map((collective) => ({
    collective,
    wrong: "a disposed send",
    field: "send",
    name: "CommClosedError",
    changes: (comm: Communicator) => {
      const send = comm.alloc("int32", 2);
      send.dispose();
      return { send };
    },
  })),
  {
    collective: "recv",
    wrong: "a disposed recv",
    field: "recv",
    name: "CommClosedError",
    changes: (comm) => {
      const recv = comm.alloc("int32", 2);
      recv.dispose();
      return { recv };
    },
  },
];

/** The required error of a rank: for its own fault, or for that of the one rank that is at fault. */
function expectation({ field, on, name, collective }: Case): (rank: number) => Expected {
  const code = name === "CommClosedError" ? "ERR_COMM_CLOSED" : "ERR_COMM_ARG";
  return (rank) =>
    on === undefined || on === rank
      ? {
          name: name ?? "InvalidArgumentError",
          code,
          field: typeof field === "string" ? field : field(rank),
          collective,
        }
      : { name: "RemoteRankError", code: "ERR_COMM_REMOTE", ranks: [on] };
}

describe.each([
  ["ranks that are none", ranks],
  ["counts that are none", counts],
  ["lengths and owners", lengths],
  ["places in memory", places],
  ["other faults", others],
])("%s", (_, cases) => {
  test.each(cases)("$collective: $wrong", (planted) => {
    const { collective, changes, on } = planted;
    const call = (comm: Communicator, guard: Guard): PromiseLike<unknown> => {
      const args = right[collective]?.(comm, guard);
      const wrong = on === undefined || on === comm.rank;
      return (comm as Wrong)[collective](wrong ? { ...args, ...changes(comm, guard) } : args);
    };
    const { wrong } = planted;
    return expectPlanted({ wrong, size, program: call, expected: expectation(planted) });
  });
});

test("the corpus has a case for every collective of the library", () => {
  const all = [...ranks, ...counts, ...lengths, ...places, ...others];
  const covered = new Set(all.map(({ collective }) => collective));
  expect([...covered].sort()).toEqual(Object.keys(right).sort());
});
