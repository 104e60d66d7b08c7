/** A call that fails on one rank while those of other processes are at it: the rank must not go on as if it were in step. */
import type { CommError, Communicator, ConnectedCommunicator } from "twinccl";
import { expect, test } from "vitest";
import { cudaError, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { connected } from "../job/connected.ts";

quickTime();

const deadline = { timeoutMs: 500 };

test.each<[string, string, (comm: ConnectedCommunicator) => PromiseLike<unknown>]>([
  [
    "a receiver that cannot hold what is sent to it",
    "ERR_COMM_MISMATCH",
    (comm) =>
      comm.allToAllv({
        ...{ send: comm.alloc("int8", 4), sendCounts: [2, 2], ...deadline },
        ...(comm.rank === 0 && { recv: comm.alloc("int8", 3) }),
      }),
  ],
  [
    "a call that NCCL refuses",
    "ERR_COMM_NCCL",
    (comm) => comm.broadcast({ recv: comm.alloc("int8", 4), root: 1, ...deadline }),
  ],
  [
    "a recording that CUDA does not take",
    "ERR_COMM_CUDA",
    (comm) =>
      comm
        .capture(() => void comm.allReduce({ send: comm.alloc("int8", 4), op: "sum" }))
        .then((graph) => graph.replay(deadline)),
  ],
])("%s ends the communicator there", async (_, code, call) => {
  const gpus = cleanGpus();
  const [a, b] = (await connected(2, "off", gpus)) as [
    ConnectedCommunicator,
    ConnectedCommunicator,
  ];
  if (code === "ERR_COMM_NCCL") {
    gpus.machine.failNext("broadcast", ncclError("ncclBroadcast", 5, "ncclInvalidUsage"));
  }
  if (code === "ERR_COMM_CUDA") {
    gpus.machine.failNext("instantiation", cudaError("cudaGraphInstantiate", 2, "cudaErrorMemory"));
  }
  const errors = [a, b].map((comm) => call(comm).then(null, (error) => error as CommError));
  expect(await errors[0]).toMatchObject({ code });
  // What it would do next, the other one would take for the call that it waits in.
  await expect(a.barrier()).rejects.toMatchObject({ code: "ERR_COMM_ABORTED", ranks: [0] });
  expect(await errors[1]).toMatchObject({ code: "ERR_COMM_TIMEOUT" });
});

test("calls on two communicators in opposite orders wait for each other until one has a deadline", async () => {
  const gpus = cleanGpus();
  const worlds = await connected(2, "off", gpus);
  const splits = await Promise.all(worlds.map((comm) => comm.split({ color: 0 })));
  const code = (call: PromiseLike<unknown>) =>
    call.then(
      () => "done",
      (error: CommError) => error.code,
    );
  const ofWorld = (rank: number) => code((worlds[rank] as Communicator).barrier(deadline));
  const ofSplit = (rank: number) => code((splits[rank] as Communicator).barrier());
  const made = [ofWorld(0), ofSplit(0), ofSplit(1), ofWorld(1)];
  await turns();
  expect(gpus.machine.stuck()).toHaveLength(2);
  const late = "ERR_COMM_TIMEOUT";
  expect(await Promise.all(made)).toEqual([late, "done", "done", late]);
});
