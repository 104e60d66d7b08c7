/** nccl-tests' factors and sizes, and that the rows read the collectives as the specifications do. */
import { type SpecifiedCollective, specifications } from "twinccl";
import { findCollective, measuredCollectives } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { type CallShape, recvLength } from "../../../src/bench/collectives.ts";
import { openRanks } from "../../../src/bench/job.ts";
import { Oracle } from "../../../src/bench/oracle.ts";
import { runTrial } from "../../../src/bench/trial.ts";

const skew = { spread: 0, seed: 0 };

test.each([
  ["allReduce", 2 * (7 / 8), 1000, 1000],
  ["reduce", 1, 1000, 1000],
  ["broadcast", 1, 1000, 1000],
  ["allGather", 7 / 8, 125, 1000],
  ["reduceScatter", 7 / 8, 125, 1000],
  ["allToAll", 7 / 8, 125, 1000],
  ["allToAllv", 7 / 8, 1000, 1000],
  ["gather", 7 / 8, 125, 1000],
  ["scatter", 7 / 8, 125, 1000],
  ["sendRecv", 1, 1000, 1000],
])("%s: bus factor %f, count %d, size %d", (name, factor, count, size) => {
  const row = findCollective(name)!;
  expect(row.busFactor(8)).toBe(factor);
  expect(row.shape(1000, 8, skew)).toMatchObject({ count, sizeElements: size });
});

test("a size is at most the requested one when blocks are equal", () => {
  for (const row of measuredCollectives.filter(({ moves }) => moves)) {
    expect(row.shape(1003, 8, skew).sizeElements).toBeLessThanOrEqual(1003 + 8);
  }
  expect(findCollective("allGather")?.shape(1003, 8, skew)).toEqual({
    count: 125,
    sizeElements: 1000,
  });
});

test("names are found in any spelling", () => {
  for (const name of ["allReduce", "all-reduce", "all_reduce", "allreduce", "ALLREDUCE"]) {
    expect(findCollective(name)?.collective).toBe("allReduce");
  }
  expect(findCollective("all reduce")).toBeUndefined();
  const none = undefined as never;
  expect(() => findCollective(none)).toThrow("findCollective: name: found undefined");
});

/** Two independent readings of one text must agree, block by block. */
describe("the meaning of a row is that of the specification", () => {
  const specified = Object.keys(specifications) as SpecifiedCollective[];
  test("every specified collective is measured", () => {
    const measured = measuredCollectives.map(({ collective }) => collective);
    expect(specified.filter((name) => !measured.includes(name))).toEqual([]);
  });
  test.each(specified)("%s", (name) => {
    const spec = specifications[name];
    const row = findCollective(name)!;
    expect({ reduces: row.reduces, rooted: row.rooted }).toEqual({
      reduces: spec.reduces,
      rooted: spec.rooted,
    });
    for (const ranks of [1, 2, 3, 5]) {
      const root = spec.rooted ? ranks - 1 : -1;
      const shape: CallShape = { ...row.shape(4 * ranks * ranks, ranks, skew), ranks, root };
      for (let rank = 0; rank < ranks; rank++) {
        const inBlocks = spec.inBlocks(ranks, rank, root);
        const outBlocks = spec.outBlocks(ranks, rank, root);
        const length = row.moves
          ? Math.max(row.sendLength(shape, rank), recvLength(row, shape, rank)) /
            Math.max(inBlocks, outBlocks)
          : 0;
        expect(row.sendLength(shape, rank)).toBe(inBlocks * length);
        const expected = Array.from({ length: length > 0 ? outBlocks : 0 }, (_, block) => {
          const [source] = spec.expected(ranks, rank, block, root);
          const from = spec.reduces ? "fold" : source!.rank;
          return { at: block * length, length, from, index: source!.block * length };
        });
        expect(row.arrives(shape, rank)).toEqual(expected);
      }
    }
  });
});

test.each(measuredCollectives)(
  "$collective is right on 1 to 9 ranks, whatever the root",
  async (row) => {
    for (let ranks = 1; ranks <= 9; ranks++) {
      const job = await openRanks({ backend: sim(), ranks });
      for (const root of row.rooted ? Array.from({ length: ranks }, (_, rank) => rank) : [-1]) {
        const shape: CallShape = {
          ...row.shape(7 * ranks + 3, ranks, { spread: 0.5, seed: 1 }),
          ranks,
          root,
        };
        const oracle = new Oracle(row, shape, "float32", "sum", 1);
        const trial = {
          row,
          shape,
          dtype: "float32",
          op: "sum",
          oracle,
          iterations: 1,
          warmup: 0,
          issue: { mode: "eager", latency: false, symmetric: false },
        } as const;
        for (const inPlace of row.inPlace === undefined ? [false] : [false, true]) {
          const { nwrong, checked } = await runTrial(job, { ...trial, inPlace, check: true });
          expect({ ranks, root, nwrong }).toEqual({ ranks, root, nwrong: 0 });
          expect(checked).toBeGreaterThan(0);
        }
      }
      await job.close();
    }
  },
);
