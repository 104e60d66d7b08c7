/** Seeds: each safe integer is one of its own, and those of 32 bits keep the orders they have always had. */
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { randomOrder } from "../../../../src/backends/sim/schedule.ts";

/** Orders for many keys, as one text: equal for two seeds only when they are the same seed. */
function orders(seed: number): string {
  return Array.from({ length: 8 }, (_, key) => randomOrder(16, seed, 1, key).join()).join(";");
}

const wide = 2 ** 32;

describe("a seed", () => {
  test.each([
    [0, wide],
    [7, 7 + wide],
    [7, 7 - wide],
    [-1, wide - 1],
    [1, 1 + 2 ** 52],
    [wide, 2 * wide],
    [Number.MAX_SAFE_INTEGER, -1],
    [Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER],
  ])("of %d differs from %d", (one, other) => {
    expect(orders(one)).not.toBe(orders(other));
    expect(orders(one)).toBe(orders(one));
  });

  test("gives permutations, whatever its size", () => {
    const ranks = Array.from({ length: 16 }, (_, rank) => rank);
    for (const seed of [0, -1, wide + 3, -(2 ** 40), Number.MAX_SAFE_INTEGER]) {
      expect(randomOrder(16, seed, 3).toSorted((a, b) => a - b)).toEqual(ranks);
    }
  });

  test("of 32 bits keeps its order", () => {
    expect(randomOrder(8, 0, 1, 0)).toEqual([2, 7, 4, 0, 5, 3, 1, 6]);
    expect(randomOrder(8, 4_000_000_000, 2, 0, 5)).toEqual([0, 1, 3, 7, 6, 5, 4, 2]);
  });

  test("decides the order in which ranks start", async () => {
    const startOrder = async (seed: number): Promise<string> => {
      const world = await createWorld({ backend: sim({ seed }), size: 16 });
      const order: number[] = [];
      await world.run((comm) => {
        order.push(comm.rank);
      });
      await world.close();
      return order.join();
    };
    expect(await startOrder(5 + wide)).not.toBe(await startOrder(5));
    expect(await startOrder(5 + wide)).toBe(await startOrder(5 + wide));
  });

  test.each([0.5, Number.NaN, Infinity, 2 ** 53, -(2 ** 53), "7", null, 7n])(
    "is refused by name when it is %s",
    (seed) => {
      expect(() => sim({ seed: seed as number })).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", field: "seed" }),
      );
    },
  );
});
