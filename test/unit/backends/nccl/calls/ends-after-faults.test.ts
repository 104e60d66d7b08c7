/** Ends of communicators on which something goes wrong: what else there is goes all the same, and in its order. */
import { type Communicator, createWorld, type DeviceBuffer, type Graph, type World } from "twinccl";
import { expect, test, vi } from "vitest";
import {
  cudaError,
  type FakeGpus,
  fakeGpus,
  ncclError,
} from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, seen, turns } from "../gpus.ts";
import { joinAll } from "../job/joined.ts";
import { outcome } from "./watched-world.ts";

quickTime();

test("close reports a communicator that NCCL does not free", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "off", gpus);
  const planned = ncclError("ncclCommAbort", 3, "ncclInternalError");
  const { calls: nccl } = gpus.nccl;
  const { abortInBackground } = nccl;
  nccl.abortInBackground = async (handle) => {
    await abortInBackground(handle);
    throw planned;
  };
  const closing = await Promise.allSettled(ranks.map(({ comm }) => comm.close()));
  for (const [rank, end] of closing.entries()) {
    expect((end as PromiseRejectedResult).reason).toEqual(seen(planned, { rank, size: 2 }));
  }
  expect(gpus.machine.count("abortInBackground")).toBe(2);
  expect(gpus.nccl.ends.size).toBe(0);
});

/** Ends a world's communicator under a call that its ranks have open; gives what that call came to on each of them. */
async function abortUnder(
  gpus: FakeGpus,
  world: World,
  prepare: (comm: Communicator) => Promise<() => PromiseLike<unknown>>,
): Promise<string[]> {
  return await world.run(async (comm) => {
    const call = await prepare(comm);
    await comm.barrier();
    gpus.machine.hold();
    const op = outcome(call());
    await turns();
    if (comm.rank === 0) comm.abort(new Error("enough"));
    return await op;
  });
}

const aborted = ["ERR_COMM_ABORTED", "ERR_COMM_ABORTED"];

test.each([
  ["all can be given back", []],
  ["one of them cannot be given back", ["an error"]],
])("recordings are released before the aborted communicator, where %s", async (_, planned) => {
  const gpus = fakeGpus();
  const { calls: nccl } = gpus.nccl;
  const { abortInBackground } = nccl;
  const given: number[] = [];
  nccl.abortInBackground = (handle) => {
    given.push(gpus.machine.count("graphDestroy"));
    return abortInBackground(handle);
  };
  await inWorld(gpus, 2, async (world) => {
    const codes = await abortUnder(gpus, world, async (comm) => {
      const data = comm.alloc("int32", 1);
      const record = () => comm.capture(() => void comm.allReduce({ send: data, op: "sum" }));
      const recordings = [await record(), await record()];
      for (const what of planned) {
        gpus.machine.failNext("graphDestroy", cudaError("cudaGraphExecDestroy", 700, what));
      }
      return () => (recordings[0] as Graph).replay();
    });
    expect(codes).toEqual(aborted);
    await turns();
    expect(given).toEqual([4, 4]);
    expect(gpus.nccl.ends.size).toBe(0);
  });
});

test("a closed communicator ends where its devices cannot be queried, and close reports it", async () => {
  const gpus = cleanGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 2 });
  const planned = cudaError("cudaStreamQuery", 719, "cudaErrorLaunchFailure");
  await world.run(async (comm) => {
    const child = await comm.split({ color: 0 });
    const data = child.alloc("int8", 1, { symmetric: true });
    await child.allReduce({ send: data, op: "sum" });
    await comm.barrier();
    if (comm.rank === 0) gpus.machine.failNext("streamDone", planned);
    await child.close();
  });
  await expect(world.close()).rejects.toBe(planned);
  expect(gpus.nccl.ends.size).toBe(0);
});

test.each([0, 2])(
  "a replay that some devices alone launch ends its communicator, after %i others",
  async (count) => {
    const gpus = cleanGpus();
    const planned = cudaError("cudaGraphLaunch", 2, "cudaErrorMemoryAllocation");
    const codes = await inWorld(gpus, 2, (world) =>
      world.run(async (comm) => {
        const child = await comm.split({ color: 0 });
        const data = comm.alloc("int32", 1);
        const graph = await child.capture(() => void child.allReduce({ send: data, op: "sum" }));
        for (let replay = 0; replay < count; replay++) await graph.replay();
        await comm.barrier();
        // The first device launches it.
        if (comm.rank === 0) gpus.machine.failNext("graphLaunch", planned, 1);
        const failed = await outcome(graph.replay());
        const behind = await outcome(child.allReduce({ send: data, op: "sum" }));
        await turns();
        return [failed, behind, await outcome(comm.allReduce({ send: data, op: "sum" }))];
      }),
    );
    expect(codes).toEqual([0, 1].map(() => ["ERR_COMM_CUDA", "ERR_COMM_ABORTED", "done"]));
  },
);

test("the newest communicators end first", async () => {
  const gpus = cleanGpus();
  const ended: bigint[] = [];
  const { abortInBackground } = gpus.nccl.calls;
  gpus.nccl.calls.abortInBackground = (handle) => {
    ended.push(handle);
    return abortInBackground(handle);
  };
  let made: bigint[] = [];
  await inWorld(gpus, 1, async (world) => {
    await world.run(async (comm) => {
      const child = await comm.split({ color: 0 });
      await child.split({ color: 0 });
    });
    made = [...gpus.nccl.ends.keys()];
  });
  expect(made).toHaveLength(3);
  expect(ended).toEqual(made.reverse());
});

test("failed releases after the loss of the devices are not reported again", async () => {
  const gpus = fakeGpus();
  const lost = cudaError("cudaStreamQuery", 700, "cudaErrorIllegalAddress");
  const world = await createWorld({ backend: gpus.backend(), size: 1 });
  const fail = (): never => {
    throw lost;
  };
  Object.assign(gpus.setup.libraries.cuda, { streamDone: fail, eventDone: fail });
  Object.assign(gpus.setup.libraries.cuda, { free: fail, streamDestroy: fail });
  await world.close();
});

test("memory stays allocated when NCCL's abort does not return", async () => {
  const gpus = fakeGpus();
  const world = await createWorld({ backend: gpus.backend(), size: 2 });
  const memory: DeviceBuffer[] = [];
  const codes = await abortUnder(gpus, world, async (comm) => {
    const data = comm.alloc("int8", 1, { symmetric: true });
    memory.push(data);
    const call = () => comm.allReduce({ send: data, op: "sum" });
    await call();
    gpus.nccl.hangAborts();
    return call;
  });
  expect(codes).toEqual(aborted);
  for (const each of memory) each.dispose();
  gpus.machine.release();
  for (let i = 0; i < 20; i++) {
    await vi.advanceTimersByTimeAsync(1_000);
    await turns();
  }
  expect(gpus.machine.count("memFree")).toBe(0);
});
