/** Between which ranks calls send: what both of a pair work out apart, against the blocks that the test has drawn. */
import fc from "fast-check";
import type { CollectiveName } from "twinccl";
import type { RankCall } from "twinccl/backend";
import { describe, expect, test } from "vitest";
import { connectsAll, peersOf } from "../../../../../src/backends/nccl/calls/nccl-steps.ts";
import { holds } from "../../../../support/seed.ts";

const unused = { dtype: "int8", op: undefined, root: -1, split: undefined, recorded: undefined };

/** A rank's call of so many elements, sent from and received into memory of these lengths. */
function callOf(
  collective: CollectiveName,
  rank: number,
  { sends, recvs, ...more }: Partial<RankCall> & { sends?: number; recvs?: number },
): RankCall {
  const memory = (length?: number) => length !== undefined && { length, ptr: 0n, dtype: "int8" };
  const [send, recv] = [memory(sends) || undefined, memory(recvs) || undefined];
  return { ...unused, collective, rank, count: 0, send, recv, ...more } as unknown as RankCall;
}

/** The peers that every rank names. */
const named = (calls: readonly RankCall[]): number[][] =>
  calls.map((call) => [...peersOf(call, calls.length)].sort());

/** For every rank the others between which and it there is a block, in either direction, that is not empty. */
function blocksOf(matrix: readonly (readonly number[])[]): number[][] {
  return matrix.map((row, rank) =>
    row.flatMap((count, peer) => {
      const answer = matrix[peer]?.[rank] ?? 0;
      return peer !== rank && count + answer > 0 ? [peer] : [];
    }),
  );
}

const few = fc.oneof(fc.constant(0), fc.nat({ max: 5 }));
const rows = (size: number) => fc.array(few, { minLength: size, maxLength: size });
const sizes = fc.integer({ min: 1, max: 7 });
const squares = sizes.chain((size) => fc.array(rows(size), { minLength: size, maxLength: size }));
const lists = sizes.chain((size) => fc.tuple(rows(size), fc.nat({ max: size - 1 })));

const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);
const column = (matrix: readonly (readonly number[])[], to: number): number[] =>
  matrix.map((row) => row[to] as number);

describe("every rank names its peers with a non-empty block:", () => {
  test("of an all-to-allv", () =>
    holds(
      squares,
      (matrix) => {
        const calls = matrix.map((sendCounts, rank) => {
          const recvCounts = column(matrix, rank);
          return callOf("allToAllv", rank, { sendCounts, recvCounts, count: sum(sendCounts) });
        });
        expect(named(calls)).toEqual(blocksOf(matrix));
      },
      300,
    ));

  test("of an all-gatherv", () =>
    holds(
      lists,
      ([recvCounts]) => {
        const calls = recvCounts.map((count, rank) =>
          callOf("allGatherv", rank, { recvCounts, count, sends: count, recvs: sum(recvCounts) }),
        );
        expect(named(calls)).toEqual(
          blocksOf(recvCounts.map((count) => recvCounts.map(() => count))),
        );
      },
      100,
    ));

  test("of a gather of different lengths", () =>
    holds(
      lists,
      ([counts, root]) => {
        const calls = counts.map((count, rank) =>
          callOf("gather", rank, {
            ...{ root, count, sends: count },
            ...(rank === root && { recvCounts: counts, recvs: sum(counts) }),
          }),
        );
        const matrix = counts.map((count) => counts.map((_, to) => (to === root ? count : 0)));
        expect(named(calls)).toEqual(blocksOf(matrix));
      },
      100,
    ));

  test("of a scatter of different lengths", () =>
    holds(
      lists,
      ([counts, root]) => {
        const calls = counts.map((count, rank) =>
          callOf("scatter", rank, {
            ...{ root, count, recvs: count },
            ...(rank === root && { sendCounts: counts, sends: sum(counts) }),
          }),
        );
        const matrix = counts.map((_, from) => counts.map((count) => (from === root ? count : 0)));
        expect(named(calls)).toEqual(blocksOf(matrix));
      },
      100,
    ));

  test("of calls with blocks of one length", () =>
    holds(
      fc.tuple(sizes, few, fc.nat()),
      ([size, count, drawn]) => {
        const root = drawn % size;
        const ranks = Array.from({ length: size }, (_, rank) => rank);
        const matrix = (has: (from: number, to: number) => boolean) =>
          blocksOf(ranks.map((from) => ranks.map((to) => (has(from, to) ? count : 0))));
        const all = ranks.map((rank) => callOf("allToAll", rank, { count }));
        expect(named(all)).toEqual(matrix(() => true));
        const gathers = ranks.map((rank) =>
          callOf("gather", rank, { root, count, sends: count, recvs: size * count }),
        );
        expect(named(gathers)).toEqual(matrix((_, to) => to === root));
        const scatters = ranks.map((rank) =>
          callOf("scatter", rank, { root, count, sends: size * count, recvs: count }),
        );
        expect(named(scatters)).toEqual(matrix((from) => from === root));
      },
      100,
    ));
});

test.each([
  ["allToAllv", { sendCounts: [0, 0, 0], recvCounts: undefined }, true],
  ["allToAllv", { sendCounts: [1, 1, 1], recvCounts: [1, 1, 1] }, false],
  ["allToAll", { count: 1 }, true],
  ["allToAll", { count: 0 }, false],
  ["allReduce", { count: 1 }, false],
] as const)("all ranks connect at once for %s with %j: %s", (collective, given, expected) => {
  expect(connectsAll(callOf(collective, 1, given))).toBe(expected);
});

test.each([
  "allReduce",
  "reduce",
  "broadcast",
  "allGather",
  "reduceScatter",
  "barrier",
  "split",
  "capture",
  "replay",
] as const)("no peers for %s, which NCCL provides itself or moves no data", (collective) => {
  expect(peersOf(callOf(collective, 1, { count: 4, root: 0 }), 3)).toEqual(new Set());
});

test("no peers for a reduce-scatter of different lengths, which is reduces", () => {
  const sendCounts = [1, 0, 2];
  expect(peersOf(callOf("reduceScatterv", 1, { sendCounts, sends: 3, recvs: 0 }), 3)).toEqual(
    new Set(),
  );
});
