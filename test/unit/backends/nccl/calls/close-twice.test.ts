/** Ends that two ask for, such as a signal's handler and the program: the second waits for the same end. */
import { type CommError, createWorld } from "twinccl";
import { expect, test } from "vitest";
import { fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { cleanGpus } from "../gpus.ts";

test("both close() calls of a split resolve when its calls are done", async () => {
  const gpus = cleanGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 2 });
  const orders = await world.run(async (comm) => {
    const order: string[] = [];
    const child = await comm.split({ color: 0 });
    const send = comm.alloc("float32", 8);
    if (comm.rank === 0) {
      gpus.machine.hold();
      setTimeout(() => gpus.machine.release(), 100);
    }
    void child.allReduce({ send, op: "sum" }).then(() => order.push("call"));
    const first = child.close().then(() => order.push("first"));
    await child.close().then(() => order.push("second"));
    await first;
    return order;
  });
  await world.close();
  expect(orders).toEqual([0, 1].map(() => ["call", "first", "second"]));
});

test("both close() calls of a world resolve after its release; the first reports the fault", async () => {
  const gpus = fakeGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 2 });
  await world.run((comm) => void comm.alloc("float32", 8));
  gpus.machine.failNext("abortInBackground", ncclError("ncclCommAbort", 3, "ncclInternalError"), 1);
  const first = world.close().then(null, (error) => error);
  await world.close();
  expect(gpus.machine.leaks().filter((what) => !what.includes("communicator"))).toEqual([]);
  expect(await first).toMatchObject({ code: "ERR_COMM_NCCL", rank: 1 });
  await world.close();
});

test("a world may be closed in its own program, and beside it", async () => {
  const gpus = cleanGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 2 });
  const seen = await world.run(async (comm) => {
    const barrier = comm.barrier();
    await Promise.all([world.close(), world.close()]);
    return barrier.then(
      () => "done",
      (error) => (error as CommError).code,
    );
  });
  expect(seen.every((end) => ["done", "ERR_COMM_CLOSED"].includes(end))).toBe(true);
});
