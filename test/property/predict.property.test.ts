/** Predictions: every rank gives the time of all ranks together, and wirings lead where they should. */
import fc from "fast-check";
import { specifications } from "twinccl";
import {
  algorithmsOf,
  builtCollectives,
  fabricOf,
  fatTree,
  layoutOf,
  linkModel,
  linkOf,
  predict,
  runEvents,
  torus,
  trafficOf,
  type Wiring,
  writtenLanes,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { holds, isAll } from "../support/seed.ts";

const rows = builtCollectives.flatMap((collective) =>
  algorithmsOf(collective).map((algorithm) => ({ collective, name: algorithm.name, algorithm })),
);

/** Wirings of up to 32 ranks. */
const wirings: fc.Arbitrary<{ ranks: number; wiring: Wiring | undefined }> = fc.oneof(
  fc.integer({ min: 1, max: 20 }).map((ranks) => ({ ranks, wiring: undefined })),
  fc
    .record({
      ranks: fc.oneof(fc.integer({ min: 1, max: 24 }), fc.constantFrom(8, 12, 16, 24, 32)),
      groups: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 3 }),
      over: fc.constantFrom(1, 2, 5),
    })
    .map(({ ranks, groups, over }) => ({ ranks, wiring: fatTree(ranks, groups, over) })),
  fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 2 }).map((dimensions) => ({
    ranks: dimensions.reduce((all, size) => all * size, 1),
    wiring: torus(dimensions),
  })),
);

describe("a prediction is the time of all ranks together", () => {
  const calls = fc.record({
    on: wirings,
    pieces: fc.nat({ max: 6 }),
    more: fc.constantFrom(0, 0, 0, 1),
    latencyNs: fc.nat({ max: 40 }),
    overheadPs: fc.nat({ max: 500 }),
    hopLatencyPs: fc.nat({ max: 9000 }),
    credits: fc.constantFrom(undefined, undefined, 1, 3),
  });

  const folds = new Set<string>();
  test.each(rows)("$collective $name", async ({ collective, algorithm }) => {
    await holds(
      calls,
      ({ on: { ranks, wiring }, pieces, more, latencyNs, overheadPs, hopLatencyPs, credits }) => {
        const root = specifications[collective].rooted ? ranks >> 1 : -1;
        const link = linkOf({ latencyNs, gigabytesPerSecond: 7 });
        const count = pieces * algorithm.chunksPerBlock(ranks) + more;
        const found = predict({
          ...{ collective, algorithm, ranks, root, count, bytesPerElement: 4 },
          ...{ link, topology: wiring, overheadPs, hopLatencyPs, credits },
        });
        const source = writtenLanes(collective, algorithm, ranks, root);
        const traffic = trafficOf(source, layoutOf(source, { count }));
        const cost = { gigabytesPerSecond: 7, hopLatencyPs };
        const fabric = wiring && fabricOf(wiring, cost, 4);
        const { latency, occupancy } = linkModel(link, 4);
        const model = {
          latency,
          occupancy: (elements: number) => overheadPs + occupancy(elements),
        };
        const { finished, sentElements } = runEvents(traffic, model, { fabric, credits });
        expect(found).toEqual({
          timePs: Math.max(...finished),
          sentElements: Math.max(...sentElements),
          messages: traffic.messages,
          engine: found.engine,
        });
        if (found.engine === "fold") folds.add(wiring?.name.split(" ")[0] ?? "crossbar");
      },
      60,
    );
  });

  test("some predictions time a few ranks for all, on every wiring", () => {
    const kinds = ["crossbar", "fat", "ring", "torus"];
    if (isAll) expect([...folds].sort()).toEqual(kinds);
    else expect(folds.size).toBeGreaterThan(1);
  });
});

/** Links on the way, in their order. */
function way(wiring: Wiring, from: number, to: number): number[] {
  const links: number[] = [];
  for (let link = wiring.link(from, to, 0); link >= 0; link = wiring.link(from, to, links.length)) {
    links.push(link);
  }
  return links;
}

describe("wirings", () => {
  test("of a fat tree route up to the lowest common switch, and down again", () => {
    const tree = fatTree(16, [2, 4], 4);
    // Up-links of 8 leaves, then of 2 groups of them; down-links after those ten.
    expect(tree.links).toBe(20);
    expect(way(tree, 0, 1)).toEqual([]);
    expect(way(tree, 1, 2)).toEqual([0, 11]);
    expect(way(tree, 7, 0)).toEqual([3, 10]);
    expect(way(tree, 5, 15)).toEqual([2, 8, 19, 17]);
    // Two ports share half a port's width below, eight share two above.
    expect([0, 8, 17, 19].map((link) => tree.width(link))).toEqual([0.5, 2, 0.5, 2]);
  });

  test("of a torus route from neighbour to neighbour along the shorter way", async () => {
    await holds(
      fc.array(fc.integer({ min: 1, max: 6 }), { minLength: 1, maxLength: 3 }),
      (dimensions) => {
        const wiring = torus(dimensions);
        const strides = dimensions.map((_, at) =>
          dimensions.slice(0, at).reduce((all, size) => all * size, 1),
        );
        const ranks = dimensions.reduce((all, size) => all * size, 1);
        const place = (rank: number, at: number) =>
          Math.floor(rank / strides[at]!) % dimensions[at]!;
        for (let from = 0; from < ranks; from += 1 + Math.floor(ranks / 12)) {
          for (let to = 0; to < ranks; to += 1 + Math.floor(ranks / 12)) {
            let node = from;
            const links = way(wiring, from, to);
            for (const link of links) {
              const at = Math.floor(link / 2) % dimensions.length;
              expect(Math.floor(link / 2 / dimensions.length)).toBe(node);
              const size = dimensions[at]!;
              const next = (place(node, at) + (link % 2 === 0 ? 1 : size - 1)) % size;
              node += (next - place(node, at)) * strides[at]!;
            }
            expect(node).toBe(to);
            const distances = dimensions.map((size, at) => {
              const apart = Math.abs(place(from, at) - place(to, at));
              return Math.min(apart, size - apart);
            });
            expect(links.length).toBe(distances.reduce((sum, each) => sum + each, 0));
          }
        }
      },
      60,
    );
  });

  test("with invalid fields are refused by name", () => {
    expect(() => fatTree(8, [])).toThrow("fatTree: groups: found none");
    expect(() => fatTree(8, [2.5])).toThrow("fatTree: groups: found 2.5");
    expect(() => fatTree(8, [2], 0.5)).toThrow("fatTree: oversubscription: found 0.5");
    expect(() => torus([4, 0])).toThrow("torus: dimensions: found 0");
  });
});
