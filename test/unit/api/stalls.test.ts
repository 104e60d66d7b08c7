/** Stalls: each that lasts longer than `stallMs` is reported, whatever was waited for before it. */

import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { within } from "../../support/planted.ts";

const pause = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

/** In which of these waits, one behind the other, a stall was reported. */
async function reportedIn(stallMs: number, waitsMs: readonly number[]): Promise<number[]> {
  const reported: number[] = [];
  let at = 0;
  const onStall = (): void => void reported.push(at);
  const world = await createWorld({ backend: sim(), size: 2, stallMs, onStall });
  const run = world.run(async (comm) => {
    for (const [wait, waitMs] of waitsMs.entries()) {
      if (comm.rank === 1) {
        at = wait;
        await pause(waitMs);
      }
      await comm.barrier();
    }
  });
  await within(5000, run).finally(() => world.close());
  return reported;
}

test("a stall that ends before the next regular check is reported", async () => {
  // Looks are due after 1, 2, 4 .. 128 and 256 ms.
  expect(await reportedIn(140, [235])).toEqual([0]);
});

test("a stall between two checks of an earlier one is reported", async () => {
  expect(await reportedIn(50, [300, 170])).toEqual([0, 1]);
});

test("short waits do not add up to a stall", async () => {
  expect(await reportedIn(600, new Array<number>(8).fill(100))).toEqual([]);
});
