/** Ends of communicators that once kept the ends of others, or all that the process did with NCCL later. */
import { createWorld } from "twinccl";
import { expect, test } from "vitest";
import { fakeGpus, ncclError } from "../support/fake-gpus/index.ts";
import { expectHealthy } from "../support/planted.ts";
import { cleanGpus, inWorld, seen } from "../unit/backends/nccl/gpus.ts";

test("a failed end of one rank kept later communicators open, and the error named none", async () => {
  const gpus = cleanGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 3 });
  const [, second] = gpus.nccl.ends.keys();
  const planned = ncclError("ncclCommAbort", 3, "ncclInternalError");
  gpus.machine.failNext("abortInBackground", planned, 1);
  const facts = { rank: 1, size: 3, comm: "world", device: "cuda:1" };
  await expect(world.close()).rejects.toEqual(seen(planned, facts));
  expect([...gpus.nccl.ends.keys()]).toEqual([second]);
  await gpus.nccl.calls.abortInBackground(second as bigint);
  await inWorld(gpus, 3, expectHealthy);
});

test("a communicator that had failed was destroyed, which left a group of NCCL open for ever", async () => {
  const gpus = fakeGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 2 });
  const failure = ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");
  const [, second] = gpus.nccl.ends.values();
  if (second !== undefined) second.failure = failure;
  const facts = { rank: 1, size: 2, comm: "world", device: "cuda:1" };
  await expect(world.close()).rejects.toEqual(seen(failure, facts));
  expect(gpus.machine.complaints).toEqual([]);
  expect(gpus.machine.leaks()).toEqual([]);
  expect(gpus.machine.count("abortInBackground")).toBe(2);
  await inWorld(gpus, 2, expectHealthy);
});
