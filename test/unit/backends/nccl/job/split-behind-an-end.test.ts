/** Splits behind the end of a communicator, whose memory CUDA frees only once no kernel of the device waits for another rank. */
import { expect, test } from "vitest";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, joinAll, onAll } from "./joined.ts";

quickTime();

test("a split begins once NCCL has freed the communicators that were closed before it", async () => {
  const gpus = cleanGpus();
  const { calls } = gpus.nccl;
  const { destroyInBackground } = calls;
  let free = (): void => undefined;
  const freed = new Promise<void>((resolve) => {
    free = resolve;
  });
  calls.destroyInBackground = (handle) => freed.then(() => destroyInBackground(handle));
  const ranks = await joinAll(2, undefined, gpus);
  await onAll(ranks, async ({ comm }) => (await comm.split({ color: 0 })).close());
  await turns(20);
  const splits = gpus.machine.count("splitInBackground");
  const next = onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  await turns(20);
  expect(gpus.machine.count("splitInBackground")).toBe(splits);
  free();
  const [first] = await next;
  expect([first?.size, gpus.machine.count("splitInBackground")]).toEqual([2, splits + 2]);
  await closeAll(ranks);
});
