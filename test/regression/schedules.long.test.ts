/** Interleavings of ranks that share JavaScript state: those that seeds could not reach. */
import type { Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { marks, pipeline, threeSteps } from "../support/marks.ts";

const immediate = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Ranks that also wait for turns of the event loop. */
async function withTurns(comm: Communicator, mark: (text: string) => void): Promise<void> {
  for (let step = 0; step < 8; step++) {
    if ((step + comm.rank) % 3 === 0) await immediate();
    mark(`${comm.rank}`);
    await comm.barrier();
  }
}

test.each(["random", "virtual-time"] as const)(
  "the schedule %s gives one order beside other worlds, once another one",
  async (schedule) => {
    const orders = async (): Promise<string[]> => {
      const found: string[] = [];
      for (let seed = 0; seed < 10; seed++) {
        found.push(await marks({ schedule, seed, size: 3 }, withTurns));
      }
      return found;
    };
    const alone = await orders();
    let isOver = false;
    const beside = [1, 2].map((seed) =>
      marks({ schedule: "random", seed, size: 2 }, async (comm) => {
        while (!isOver) {
          await comm.barrier();
          await immediate();
        }
        comm.abort();
      }).catch(() => undefined),
    );
    expect(await orders()).toEqual(alone);
    isOver = true;
    await Promise.all(beside);
  },
);

describe("seeds with the schedule random", () => {
  test("reach all 20 interleavings of two independent ranks with three steps each, once only 2", async () => {
    const found = new Map<string, number>();
    for (let seed = 0; seed < 200; seed++) {
      const order = await marks({ schedule: "random", seed, size: 2 }, threeSteps);
      found.set(order, (found.get(order) ?? 0) + 1);
    }
    expect(found.size).toBe(20);
    for (const order of found.keys()) expect([...order].sort().join("")).toBe("000111");
  });

  test("reach many interleavings of a pipeline, once only 1, and no message precedes its send", async () => {
    const found = new Set<string>();
    for (let seed = 0; seed < 100; seed++) {
      found.add(await marks({ schedule: "random", seed, size: 3 }, pipeline));
    }
    expect(found.size).toBeGreaterThan(10);
    for (const order of found) {
      const seen = [0, 0, 0];
      for (const rank of order) {
        const nth = (seen[Number(rank)] as number) + 1;
        seen[Number(rank)] = nth;
        if (rank !== "0") expect(seen[Number(rank) - 1]).toBeGreaterThanOrEqual(nth);
      }
    }
  });

  test("start ranks one at a time, so that one may be done before another begins", async () => {
    const found = new Set<string>();
    for (let seed = 0; seed < 64; seed++) {
      const order = await marks({ schedule: "random", seed, size: 2 }, async ({ rank }, mark) => {
        mark(`b${rank}`);
        for (let hop = 0; hop < 20; hop++) await undefined;
        mark(`e${rank}`);
      });
      found.add(order);
    }
    expect([...found].sort()).toEqual(["b0e0b1e1", "b1e1b0e0"]);
  });
});
