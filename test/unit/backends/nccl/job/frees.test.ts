/** When the communicators of a job are freed: while no kernel of the rank runs, and at once where their own may run for ever. */
import type { Communicator } from "twinccl";
import { expect, test } from "vitest";
import { cudaError, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, errorOf, joinAll, onAll } from "./joined.ts";

quickTime();

test.each([
  [
    "NCCL refuses after its first part",
    "reduce",
    ncclError("ncclReduce", 1, "ncclUnhandledCudaError"),
    1,
  ],
  [
    "CUDA does not wait for",
    "eventRecord",
    cudaError("cudaEventRecord", 2, "cudaErrorMemoryAllocation"),
    0,
  ],
] as const)(
  "a call that %s leaves the device with its communicator",
  async (_, name, fault, after) => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, undefined, gpus);
    const [first] = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
    const child = first as Communicator;
    const [send, recv] = [child.alloc("int32", 2), child.alloc("int32", 1)];
    gpus.machine.failNext(name, fault, after);
    const call = child.reduceScatterv({ send, recv, sendCounts: [1, 1], op: "sum" });
    expect(await errorOf(call)).toMatchObject({ code: fault.code });
    child.abort(new Error("enough of this"));
    await turns(20);
    expect(gpus.machine.count("abortInBackground")).toBe(1);
    await onAll(ranks, ({ comm }) => comm.barrier());
    await closeAll(ranks);
  },
);
