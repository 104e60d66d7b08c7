/** When the communicators of a job are freed: while no kernel of the rank runs, and at once where their own may run for ever. */
import type { Communicator } from "twinccl";
import { expect, onTestFinished, test, vi } from "vitest";
import { SubmissionHold } from "../../../../../src/backends/nccl/device/submission-hold.ts";
import {
  cudaError,
  type FakeGpus,
  fakeGpus,
  ncclError,
} from "../../../../support/fake-gpus/index.ts";
import { LivingTimers } from "../../../../support/living-timers.ts";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { fragile, place } from "../../../job/stores.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

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

/** The ends of communicators that NCCL frees from now on, each with whether a kernel of its rank runs. */
function watchFrees({ machine, nccl }: FakeGpus): (readonly [number, boolean])[] {
  const frees: (readonly [number, boolean])[] = [];
  const { abortInBackground } = nccl.calls;
  nccl.calls.abortInBackground = (handle) => {
    const device = nccl.ends.get(handle)?.device ?? -1;
    machine.pump();
    const streams = [...machine.streams.values()].filter((each) => each.device === device);
    frees.push([device, streams.some(({ idle }) => !idle)]);
    return abortInBackground(handle);
  };
  return frees;
}

/** Has the first two ranks sum on streams of their own, one after the other. */
async function sums(ranks: readonly Joined[]): Promise<(rank: number) => PromiseLike<unknown>> {
  const apart = await onAll(ranks, ({ comm }) =>
    comm.split({ color: comm.rank < 2 ? 0 : 1, stream: "own" }),
  );
  return (rank) => {
    const comm = apart[rank] as Communicator;
    return comm.allReduce({ send: comm.alloc("int32", 1), op: "sum", timeoutMs: 60_000 });
  };
}

test("a communicator that one rank alone has closed is freed while no kernel of the rank runs", async () => {
  const gpus = cleanGpus();
  const warn = vi.spyOn(process, "emitWarning").mockReturnValue(undefined);
  onTestFinished(() => warn.mockRestore());
  const ranks = await joinAll(2, undefined, gpus);
  const sum = await sums(ranks);
  const [child] = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const frees = watchFrees(gpus);
  const early = sum(0);
  await turns();
  await child?.close();
  // The kernel runs for longer than the other ranks are waited for.
  await turns(10_000);
  expect(warn).toHaveBeenCalledTimes(1);
  expect(frees).toEqual([]);
  await Promise.all([early, sum(1)]);
  await turns(20);
  expect(frees).toEqual([[0, false]]);
  await closeAll(ranks);
});

test.each([
  ["ahead of the first close", 0],
  ["behind the close of one", 1],
  ["behind the close of all", 3],
])(
  "a communicator with a rank that is lost %s is freed while no kernel runs",
  async (_, closers) => {
    const gpus = fakeGpus();
    const members = await fragile(await place(3), 3);
    const given = members.map(({ member }) => member);
    const ranks = await joinAll(3, undefined, gpus, 5_000, given);
    const sum = await sums(ranks);
    const children = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
    const frees = watchFrees(gpus);
    const early = sum(0);
    await turns();
    for (const child of children.slice(0, closers)) await child.close();
    await turns(50);
    members[2]?.cut();
    await turns(200);
    await children[0]?.close();
    await turns(200);
    expect(frees.filter(([device]) => device === 0)).toEqual([]);
    await Promise.all([early, sum(1)]);
    await turns(20);
    expect(frees).toContainEqual([0, false]);
    await Promise.allSettled(ranks.map(({ comm }) => comm.close()));
  },
);

test("close resolves where NCCL ends no first connection, and does not abort its communicator", async () => {
  const timers = new LivingTimers();
  const gpus = fakeGpus();
  const ranks = await joinAll(2, undefined, gpus);
  const children = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const [idle] = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const { calls } = gpus.nccl;
  calls.connectInBackground = () => new Promise(() => undefined);
  const errors = children.map((child) =>
    errorOf(child.allToAll({ send: child.alloc("int32", 2), recv: child.alloc("int32", 2) })),
  );
  await turns(50);
  idle?.abort(new Error("enough of this"));
  gpus.nccl.hangAborts();
  children[0]?.abort(new Error("enough of this"));
  for (const error of errors) expect(await error).toMatchObject({ code: "ERR_COMM_ABORTED" });
  await within(200_000, Promise.all(ranks.map(({ comm }) => comm.close())));
  expect(timers.count()).toBe(0);
});

test("a first connection that is cancelled as the hold ends does not begin", async () => {
  const hold = new SubmissionHold();
  const stop = new AbortController();
  let isBegun = false;
  const connecting = hold.connect(async () => {
    isBegun = true;
  }, stop.signal);
  stop.abort();
  expect([await connecting, isBegun]).toEqual([false, false]);
});
