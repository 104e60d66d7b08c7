/** Seeds: each safe integer is one of its own, and those of 32 bits keep the orders they have always had. */

import { createWorld } from "twinccl";
import type { CallSet, RankCall } from "twinccl/backend";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { StreamTimes } from "../../../../src/backends/sim/call-times.ts";
import { SimClock, SimScheduler } from "../../../../src/backends/sim/scheduler.ts";

/** Orders for many keys, as one text: equal for two seeds only when they are the same seed. */
function orders(seed: number): string {
  const scheduler = schedulerOf(seed, 16);
  return Array.from({ length: 8 }, () => scheduler.wakeOrder(undefined).join()).join(";");
}

function schedulerOf(seed: number, size: number): SimScheduler {
  return new SimScheduler(size, seed, "fair", new SimClock(size, new StreamTimes(), undefined));
}

/** Call `number` of all ranks of a world. */
function callOf(size: number, number: number): CallSet {
  const ranks = Array.from({ length: size }, (_, rank) => rank);
  const calls = ranks.map((rank) => ({ rank }) as RankCall);
  const comm = { id: 0, name: "world", ranks, local: ranks };
  return { comm, number, collective: "barrier", calls };
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
      const order = schedulerOf(seed, 16).wakeOrder(callOf(16, 3));
      expect(order.toSorted((a, b) => a - b)).toEqual(ranks);
    }
  });

  test("of 32 bits keeps its order", () => {
    expect(schedulerOf(0, 8).wakeOrder(undefined)).toEqual([2, 7, 4, 0, 5, 3, 1, 6]);
    const order = schedulerOf(4_000_000_000, 8).wakeOrder(callOf(8, 5));
    expect(order).toEqual([0, 1, 3, 7, 6, 5, 4, 2]);
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
