/** Ends of communicators, which are meetings of ranks in several processes: in whatever order these come, and called off. */
import type { Communicator } from "twinccl";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { turns } from "./gpus.ts";
import { type Joined, joinAll, onAll } from "./joined.ts";

/** NCCL's end of a communicator is waited for five times as long. */
const soonMs = 2_000;

/** Does something that is to take no longer than ranks need that are all there; nobody is told of one that is missing. */
async function soon<T>(work: () => Promise<T>): Promise<T> {
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const began = performance.now();
  const made = await work();
  expect(performance.now() - began).toBeLessThan(soonMs);
  expect(warn.mock.calls).toEqual([]);
  return made;
}

/** Splits that all ranks join, by rank. */
const splits = (ranks: readonly Joined[], count: number): Promise<Communicator[][]> =>
  onAll(ranks, async ({ comm }) => {
    const made: Communicator[] = [];
    for (let at = 0; at < count; at++) {
      made.push((await comm.split({ color: 0 })) as Communicator);
    }
    return made;
  });

describe("ranks that are all in close()", () => {
  test.each<[string, orders: readonly (readonly number[])[]]>([
    ["close a split, or leave it to the world", [[], [0]]],
    ["close one split each, and leave the others to the world", [[0], [1], []]],
    ["close their splits in other orders, not all of them", [[0, 1], [2, 1], [1, 2, 0], [2]]],
  ])("%s", async (_, orders) => {
    const ranks = await joinAll(orders.length);
    const made = await splits(ranks, 3);
    await soon(() =>
      onAll(ranks, async ({ comm }) => {
        for (const at of orders[comm.rank] ?? []) {
          await made[comm.rank]?.[at]?.close();
          await turns(comm.rank);
        }
        await comm.close();
      }),
    );
  });
});
