/** The partition, chunk and budget examples of nccl-internals sections 3.1 to 3.5. */
import { describe, expect, test } from "vitest";
import { channelBudget } from "../../../../src/algorithms/nccl/choice.ts";
import {
  chunkElements,
  partition,
  ringAllReduceChunks,
} from "../../../../src/algorithms/nccl/pieces.ts";
import {
  type NcclAlgorithm,
  type NcclCollective,
  type NcclProtocol,
  resolveSettings,
  rulesOf,
} from "../../../../src/algorithms/nccl/rules.ts";
import { h200x8 } from "../../../../src/algorithms/nccl/topology.ts";

const rules = rulesOf("2.28");

interface Case {
  readonly collective?: NcclCollective;
  readonly algorithm?: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly n: number;
  readonly count: number;
  readonly elementBytes?: number;
  readonly channels?: number;
}

function cut(input: Case): { budget: number; lengths: number[] } {
  const { collective = "allReduce", algorithm = "Ring", protocol, n, count } = input;
  const { elementBytes = 4, channels = 24 } = input;
  const bytes = count * elementBytes;
  const topology = h200x8(n);
  const budget = channelBudget({ collective, algorithm, protocol, topology, bytes, channels });
  const parts = partition({
    rules,
    collective,
    protocol,
    ranks: n,
    count,
    elementBytes,
    channels,
    budget,
  });
  let next = 0;
  // An assertion for each part would take most of the time.
  const wrong = parts.find((part, channel) => {
    const begin = next;
    next += part.length;
    return part.channel !== channel || part.offset !== begin || !(part.length > 0);
  });
  expect(wrong).toBeUndefined();
  expect(next).toBe(count);
  return { budget, lengths: parts.map((part) => part.length) };
}

const repeat = (times: number, length: number): number[] => new Array<number>(times).fill(length);

describe("parts", () => {
  const cases: [Case, number, number[]][] = [
    [{ protocol: "Simple", n: 4, count: 10_000 }, 1, [10_000]],
    [{ protocol: "LL", n: 4, count: 10_000 }, 2, [5120, 4880]],
    [{ protocol: "LL128", n: 4, count: 10_000 }, 7, [2048, 2048, 2048, 2048, 1808]],
    [{ protocol: "Simple", n: 8, count: 1_048_576 }, 24, [...repeat(23, 45_056), 12_288]],
    [{ protocol: "Simple", n: 4, count: 73_729 }, 9, [...repeat(9, 8192), 1]],
    [{ protocol: "Simple", n: 4, count: 196_609 }, 24, [...repeat(23, 8192), 8193]],
    [{ protocol: "Simple", n: 4, count: 100_000 }, 12, [...repeat(9, 10_240), 7840]],
    [{ protocol: "LL", n: 8, count: 0 }, 1, []],
    [{ protocol: "LL", n: 8, count: 300_007, channels: 1 }, 1, [300_007]],
  ];
  test.each(cases)("%j", (input, budget, lengths) => {
    expect(cut(input)).toEqual({ budget, lengths });
  });

  test("cells are as large as the table says", () => {
    const parts = (collective: NcclCollective, protocol: NcclProtocol, n: number, count: number) =>
      partition({
        rules,
        collective,
        protocol,
        ranks: n,
        count,
        elementBytes: 1,
        channels: 24,
        budget: 24,
      });
    // With one element more than a cell, the first of two parts is that cell.
    const cell = (collective: NcclCollective, protocol: NcclProtocol, n: number): number => {
      let count = 1;
      while (parts(collective, protocol, n, count).length < 2) count++;
      return parts(collective, protocol, n, count)[0]?.length ?? 0;
    };
    const both = (collective: NcclCollective, n: number): number[] => [
      cell(collective, "LL", n),
      cell(collective, "LL128", n),
    ];
    expect(both("allReduce", 5)).toEqual([2048, 8192]);
    expect([2, 3, 4, 8].map((n) => both("reduceScatter", n))).toEqual([
      [2048, 8192],
      [1376, 5472],
      [1024, 4096],
      [512, 2048],
    ]);
    expect(both("allGather", 4)).toEqual([1024, 4096]);
    expect(both("reduce", 4)).toEqual([4096, 16_384]);
    expect(both("broadcast", 4)).toEqual([4096, 16_384]);
  });

  test("counts that do not fill cells still add up", () => {
    for (const protocol of ["LL", "LL128", "Simple"] as const) {
      for (const collective of ["allReduce", "reduceScatter", "reduce"] as const) {
        for (const elementBytes of [1, 2, 4, 8]) {
          for (let n = 2; n <= 8; n++) {
            for (const channels of [1, 2, 5, 24]) {
              for (let count = 1; count < 3e6; count = Math.ceil(count * 3.3)) {
                const input = { protocol, collective, n, count, elementBytes, channels };
                expect(cut(input).lengths.length).toBeLessThanOrEqual(channels);
              }
            }
          }
        }
      }
    }
  });
});

describe("chunks", () => {
  const question = {
    collective: "allReduce",
    algorithm: "Ring",
    topology: { ranks: 4, nodes: 1 },
    elementBytes: 4,
    settings: resolveSettings(),
    ...{ size: 1e9, used: 1 },
  } as const;

  test("sizes follow from the buffers", () => {
    const bytes = (
      protocol: NcclProtocol,
      collective: NcclCollective = "allReduce",
      algorithm: NcclAlgorithm = "Ring",
      settings = {},
    ): number =>
      chunkElements(
        {
          ...question,
          protocol,
          collective,
          algorithm,
          elementBytes: 1,
          settings: resolveSettings(settings),
        },
        1e9,
      );
    expect(bytes("LL")).toBe(32_768);
    expect(bytes("LL128")).toBe(576_000);
    expect(bytes("Simple")).toBe(2_097_152);
    expect(bytes("Simple", "reduce")).toBe(524_288);
    expect(bytes("Simple", "allReduce", "Tree")).toBe(524_288);
    const small = { buffSize: 65_536, llBuffSize: 32_768, ll128BuffSize: 122_880 };
    expect(bytes("LL", "allReduce", "Ring", small)).toBe(2048);
    expect(bytes("LL128", "allReduce", "Ring", small)).toBe(13_440);
    expect(bytes("Simple", "allReduce", "Ring", small)).toBe(32_768);
    expect(bytes("Simple", "allReduce", "Ring", { buffSize: 262_144 })).toBe(131_072);
  });

  test("small parts of a Tree over LL128 take smaller ones, in whole grains", () => {
    const tree = { ...question, algorithm: "Tree", protocol: "LL128", elementBytes: 1 } as const;
    for (let length = 1; length < 1e9; length *= 3) {
      const chunk = chunkElements({ ...tree, topology: { ranks: 8, nodes: 1 } }, length);
      expect(chunk % 1920).toBe(0);
      expect(chunk).toBeGreaterThan(10_000);
    }
    expect(chunkElements(tree, 1)).toBeLessThan(chunkElements(tree, 1e9));
  });

  const lengths = (
    ranks: number,
    elementBytes: number,
    part: number,
    chunk: number,
  ): number[][] => {
    const loops: number[][] = [];
    for (const { loop, chunk: index, length } of ringAllReduceChunks(
      part,
      chunk,
      ranks,
      elementBytes,
    )) {
      const row = loops[loop] ?? [];
      loops[loop] = row;
      row[index] = length;
    }
    return loops;
  };

  test("the last loop shrinks them", () => {
    expect(lengths(4, 4, 1, 8192)).toEqual([[1, 0, 0, 0]]);
    expect(lengths(4, 4, 5, 8192)).toEqual([[4, 1, 0, 0]]);
    expect(lengths(3, 2, 100, 16_384)).toEqual([[40, 40, 20]]);
    expect(lengths(2, 2, 8, 16_384)).toEqual([[8, 0]]);
    expect(lengths(4, 4, 40_000, 8192)).toEqual([repeat(4, 8192), repeat(4, 1808)]);
    expect(lengths(4, 4, 2_500_000, 524_288)).toEqual([
      repeat(4, 524_288),
      [100_712, 100_712, 100_712, 100_712],
    ]);
    expect(lengths(4, 4, 50_000, 8192)).toEqual([repeat(4, 8192), [4308, 4308, 4308, 4308]]);
    expect(lengths(4, 4, 32_768, 8192)).toEqual([repeat(4, 8192)]);
  });
});
