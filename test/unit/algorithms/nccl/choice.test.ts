/** The cost table and the switch points of nccl-internals 8.2, and the choice under settings. */
import { describe, expect, test } from "vitest";
import { choose, costEntry } from "../../../../src/algorithms/nccl/choice.ts";
import type { NcclCollective } from "../../../../src/algorithms/nccl/rules.ts";
import { h200x8 } from "../../../../src/algorithms/nccl/topology.ts";

/** Tree LL, LL128, Simple, Ring LL, LL128, Simple: latency/bandwidth as printed with one digit. */
const entries: Record<number, string> = {
  2: "8.0/61.1 16.5/180.6 16.4/232.2 7.8/141.0 17.8/331.2 15.2/360.0",
  3: "9.2/58.1 19.0/171.7 24.4/220.8 9.0/105.8 21.6/248.4 22.0/270.0",
  4: "10.4/43.6 21.5/128.8 32.4/165.6 10.2/94.0 25.4/220.8 28.8/240.0",
  5: "11.6/43.6 24.0/128.8 40.4/165.6 11.4/88.1 29.2/207.0 35.6/225.0",
  6: "12.8/43.6 26.5/128.8 48.4/165.6 12.6/84.6 33.0/198.7 42.4/216.0",
  7: "14.0/43.6 29.0/128.8 56.4/165.6 13.8/82.2 36.8/193.2 49.2/210.0",
  8: "15.2/43.6 31.5/128.8 64.4/165.6 15.0/80.6 40.6/189.3 56.0/205.7",
};

test.each(Object.entries(entries))("all-reduce entries of %s ranks", (n, row) => {
  const found = (["Tree", "Ring"] as const).flatMap((algorithm) =>
    (["LL", "LL128", "Simple"] as const).map((protocol) => {
      const { latency, bandwidth } = costEntry("allReduce", algorithm, protocol, h200x8(Number(n)));
      return [latency, bandwidth];
    }),
  );
  const stated = row.split(" ").map((cell) => cell.split("/").map(Number));
  found.flat().forEach((figure, i) => {
    expect(Math.abs(figure - (stated.flat()[i] as number))).toBeLessThan(0.0501);
  });
});

/** From which byte on each protocol is taken; Ring always. Bytes as the model counts them. */
const reduceSwitch = { Simple: 1_066_192 };
const switches: [NcclCollective, number, Record<string, number>][] = [
  ["allReduce", 2, { Simple: 1_715_179 }],
  ["allReduce", 3, { Simple: 2_259_863 }],
  ["allReduce", 4, { LL128: 2_488_006, Simple: 9_384_014 }],
  ["allReduce", 5, { LL128: 2_731_487, Simple: 16_560_001 }],
  ["allReduce", 6, { LL128: 3_005_249, Simple: 23_349_621 }],
  ["allReduce", 7, { LL128: 3_294_152, Simple: 29_945_990 }],
  ["allReduce", 8, { LL128: 3_591_707, Simple: 36_432_028 }],
  ["reduceScatter", 2, { Simple: 2_132_384 }],
  ["reduceScatter", 3, { Simple: 2_572_768 }],
  ["reduceScatter", 4, { Simple: 3_152_220 }],
  ["reduceScatter", 5, { Simple: 3_766_439 }],
  ["reduceScatter", 6, { LL128: 4_095_389, Simple: 9_439_211 }],
  ["reduceScatter", 7, { LL128: 4_354_009, Simple: 16_422_012 }],
  ["reduceScatter", 8, { LL128: 4_629_935, Simple: 23_184_021 }],
  ...[2, 3, 4, 5, 6, 7, 8].map((n): [NcclCollective, number, Record<string, number>] => [
    "reduce",
    n,
    reduceSwitch,
  ]),
];

/**
 * Near a switch the two times differ by less than a float can tell, so the choice flickers for a few bytes, and where
 * it first changes hangs on the rounding of each intermediate. Ours is that of NCCL's declarations (floats throughout);
 * the stated bytes are those of a model that rounds once.
 */
const flicker = 20;

test.each(switches)("%s on %i ranks switches at the stated byte", (collective, n, stated) => {
  const topology = h200x8(n);
  const at = (size: number): string =>
    choose({ collective, topology, dtype: "uint8", channels: 24, size }).protocol;
  const found: Record<string, number> = {};
  let low = 1;
  let protocol = at(low);
  expect(protocol).toBe("LL");
  while (at(2 ** 30) !== protocol) {
    let high = 2 ** 30;
    for (let high2 = low * 2; high2 < high; high2 *= 2) if (at(high2) !== protocol) high = high2;
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (at(middle) === protocol) low = middle;
      else high = middle;
    }
    // Times are floats: near the switch the choice flickers for some bytes.
    let first = high;
    for (let size = high; size > high - 100; size--) if (at(size) !== protocol) first = size;
    protocol = at(first);
    found[protocol] = first;
    low = high + 100;
  }
  expect(Object.keys(found)).toEqual(Object.keys(stated));
  for (const [name, byte] of Object.entries(stated)) {
    expect(Math.abs((found[name] as number) - byte), name).toBeLessThanOrEqual(flicker);
  }
});

describe("forced", () => {
  const topology = h200x8(8);
  const question = { topology, dtype: "float32", channels: 24, size: 4096 } as const;
  test("algorithm or protocol alone leaves the other to NCCL", () => {
    const forced = { algorithm: "Tree" } as const;
    expect(choose({ ...question, collective: "allReduce", forced })).toEqual({
      algorithm: "Tree",
      protocol: "LL",
    });
    expect(choose({ ...question, collective: "allReduce", forced: { protocol: "LL128" } })).toEqual(
      { algorithm: "Tree", protocol: "LL128" },
    );
  });
  test("Tree serves all-reduces only", () => {
    const forced = { algorithm: "Tree" } as const;
    expect(() => choose({ ...question, collective: "reduce", forced })).toThrow(/no Tree/);
  });
  test("Tree is never NCCL's own choice on this node", () => {
    for (let n = 2; n <= 8; n++) {
      for (let size = 1; size < 2 ** 32; size = Math.ceil(size * 1.07)) {
        const choice = choose({ ...question, topology: h200x8(n), collective: "allReduce", size });
        expect(choice.algorithm).toBe("Ring");
      }
    }
  });
});
