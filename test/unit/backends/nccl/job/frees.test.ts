/** When the communicators of a job are freed: while no kernel of the rank runs, and at once where their own may run for ever. */
import type { Communicator, DeviceBuffer, Graph } from "twinccl";
import { expect, onTestFinished, test, vi } from "vitest";
import { SubmissionHold } from "../../../../../src/backends/nccl/device/submission-hold.ts";
import type { Membership } from "../../../../../src/job/rendezvous.ts";
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

/** The ends of communicators that NCCL frees from now on, each with the number of streams of its rank on which kernels run. */
function watchFrees({ machine, nccl }: FakeGpus): (readonly [number, number])[] {
  const frees: (readonly [number, number])[] = [];
  const { abortInBackground } = nccl.calls;
  nccl.calls.abortInBackground = (handle) => {
    const device = nccl.ends.get(handle)?.device ?? -1;
    machine.pump();
    const streams = [...machine.streams.values()].filter((each) => each.device === device);
    frees.push([device, streams.filter(({ idle }) => !idle).length]);
    return abortInBackground(handle);
  };
  return frees;
}

/** Has the first two ranks sum on streams of their own, one after the other. */
async function sums(ranks: readonly Joined[]): Promise<(rank: number) => PromiseLike<unknown>> {
  const apart = await onAll(ranks, ({ comm }) =>
    comm.split({ color: comm.rank < 2 ? 0 : 1, stream: "own" }),
  );
  const buffers = apart.map((comm) => comm.alloc("int32", 1));
  return (rank) => {
    const send = buffers[rank] as DeviceBuffer;
    return (apart[rank] as Communicator).allReduce({ send, op: "sum", timeoutMs: 60_000 });
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
  expect(frees).toEqual([[0, 0]]);
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
    expect(frees).toContainEqual([0, 0]);
    await Promise.allSettled(ranks.map(({ comm }) => comm.close()));
  },
);

/** Two of three ranks call on each of some communicators, with own streams or without, which no other rank does. */
async function stuckCalls(ranks: readonly Joined[], streams: readonly (object | undefined)[]) {
  const stuck: Communicator[][] = [];
  for (const stream of streams) {
    stuck.push(await onAll(ranks, ({ comm }) => comm.split({ color: 0, ...stream })));
  }
  const errors = stuck.flatMap((children) =>
    children
      .slice(0, 2)
      .map((child) => errorOf(child.allReduce({ send: child.alloc("int32", 1), op: "sum" }))),
  );
  await turns();
  return { children: stuck.flat(), errors };
}

const own = { stream: "own" } as const;

test.each([
  ["a communicator", [undefined]],
  ["a communicator with a stream of its own", [own]],
  ["communicators on one stream and on others", [undefined, own, undefined, own]],
])(
  "%s, aborted with a call under way, is freed once no kernel runs on another stream",
  async (_, streams) => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, undefined, gpus);
    const sum = await sums(ranks);
    const { children, errors } = await stuckCalls(ranks, streams);
    const frees = watchFrees(gpus);
    const early = sum(0);
    await turns();
    for (const child of children) child.abort(new Error("enough of this"));
    for (const error of errors) expect(await error).toMatchObject({ code: "ERR_COMM_ABORTED" });
    await turns(50);
    expect(frees.filter(([device]) => device === 0)).toEqual([]);
    await Promise.all([early, sum(1)]);
    await turns(50);
    // Only their own streams are busy; the first of them that is freed ends kernels of the others.
    const most = Math.max(...frees.filter(([device]) => device === 0).map(([, busy]) => busy));
    expect(most).toBeLessThanOrEqual(
      streams.filter((each, at) => each === own || streams.indexOf(each) === at).length,
    );
    expect(frees).toHaveLength(3 * streams.length);
    await closeAll(ranks);
  },
);

test("a communicator aborted with a call under way is freed though work of another stream waits for that call", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, undefined, gpus);
  const [first] = await onAll(ranks, ({ comm }) => comm.split({ color: 0, stream: "own" }));
  const apart = first as Communicator;
  const buffer = ranks[0]?.comm.alloc("int32", 1).fill(1);
  const { children, errors } = await stuckCalls(ranks, [undefined]);
  // The fill waits in the main stream for the stuck call, and the sum for the fill.
  buffer?.fill(2);
  const sum = errorOf(apart.allReduce({ send: buffer as DeviceBuffer, op: "sum" }));
  await turns();
  const frees = watchFrees(gpus);
  for (const child of children) child.abort(new Error("enough of this"));
  await Promise.all(errors);
  await turns(10_000);
  expect(frees).toContainEqual([0, 1]);
  apart.abort(new Error("enough of this"));
  await sum;
  await closeAll(ranks);
});

/** Memberships with an answer about the state of a communicator that comes at once the first time, and later from then on. */
async function slowToAnswer(size: number): Promise<Membership[]> {
  const members = await (await place(size)).joinAll();
  return members.map((member) => {
    let asked = 0;
    const ask: Membership["ask"] = async (rank, question, ...rest) => {
      const answer = member.ask(rank, question, ...rest);
      if (question.startsWith("calls ") && ++asked >= size) await turns(200);
      return answer;
    };
    return new Proxy(member, {
      get(target, name) {
        const value = Reflect.get(target, name, target) as unknown;
        if (name === "ask") return ask;
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  });
}

test.each([
  ["one stream", [undefined, undefined]],
  ["streams of their own", [own, own]],
])(
  "communicators on %s that are aborted with calls under way are freed in one turn",
  async (_, streams) => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, undefined, gpus, 5_000, await slowToAnswer(3));
    const { children, errors } = await stuckCalls(ranks, streams);
    const frees = watchFrees(gpus);
    let begun = 0;
    const { abortInBackground } = gpus.nccl.calls;
    gpus.nccl.calls.abortInBackground = (handle) => {
      const ended = abortInBackground(handle);
      const here = () => frees.filter(([device]) => device === 0).length;
      if (here() === 1) setImmediate(() => (begun = here()));
      return ended;
    };
    for (const child of children.filter(({ rank }) => rank === 0)) child.abort(new Error("enough"));
    await Promise.all(errors);
    await turns(400);
    expect(begun).toBe(2);
    await closeAll(ranks);
  },
);

/** Has NCCL's aborts wait for all kernels of the device, as CUDA does; gives the calls that would block this thread until then. */
function blockingAborts({ machine, nccl, setup }: FakeGpus): string[] {
  const blocked: string[] = [];
  const aborting = new Set<number>();
  const isBusy = (device: number): boolean => {
    machine.pump();
    return [...machine.streams.values()].some((each) => each.device === device && !each.idle);
  };
  const { abortInBackground } = nccl.calls;
  nccl.calls.abortInBackground = async (handle) => {
    const device = nccl.ends.get(handle)?.device ?? -1;
    aborting.add(device);
    await abortInBackground(handle);
    while (isBusy(device)) await turns(1);
    aborting.delete(device);
  };
  const watch = (calls: object, name: string, deviceOf: (args: readonly unknown[]) => number) => {
    const call = Reflect.get(calls, name) as (...args: readonly unknown[]) => unknown;
    Reflect.set(calls, name, (...args: readonly unknown[]) => {
      const device = deviceOf(args);
      if (aborting.has(device) && isBusy(device)) blocked.push(name);
      return call(...args);
    });
  };
  const deviceOf = (stream: unknown): number => machine.stream(stream as bigint).device;
  watch(setup.libraries.cuda, "eventRecord", ([, stream]) => deviceOf(stream));
  watch(setup.libraries.cuda, "graphDestroy", () => machine.current);
  watch(nccl.calls, "deregisterWindow", () => machine.current);
  watch(setup.libraries.cuda, "malloc", () => machine.current);
  watch(nccl.data, "allReduce", (args) => deviceOf(args.at(-1)));
  return blocked;
}

test("work is held back for as long as an abort of NCCL may wait for kernels in CUDA", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, undefined, gpus);
  const sum = await sums(ranks);
  const { children, errors } = await stuckCalls(ranks, [undefined]);
  const worldSum = ({ comm }: Joined) =>
    comm.allReduce({ send: comm.alloc("int32", 1), op: "sum" });
  const behind = worldSum(ranks[0] as Joined);
  await turns();
  const blocked = blockingAborts(gpus);
  for (const child of children) child.abort(new Error("enough of this"));
  await Promise.all(errors);
  // The kernel behind the aborted one runs for longer than the abort is waited for.
  await turns(11_000);
  const later = sum(0);
  await turns(200);
  expect(blocked).toEqual([]);
  await Promise.all([behind, ...ranks.slice(1).map(worldSum), later, sum(1)]);
  await closeAll(ranks);
});

test("recordings of an aborted communicator do not wait for a communicator that is freed beside their kernels", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, undefined, gpus);
  const apart = await onAll(ranks, ({ comm }) => comm.split({ color: 0, stream: "own" }));
  const buffers = apart.map((comm) => comm.alloc("int32", 1));
  const record = (comm: Communicator) => {
    const send = buffers[comm.rank] as DeviceBuffer;
    return comm.capture(() => void comm.allReduce({ send, op: "sum" }));
  };
  const [recording] = await Promise.all(apart.map(record));
  const { children, errors } = await stuckCalls(ranks, [undefined]);
  const replay = errorOf((recording as Graph).replay());
  await turns();
  const blocked = blockingAborts(gpus);
  for (const child of children) child.abort(new Error("enough of this"));
  await Promise.all(errors);
  await turns(1_500);
  apart[0]?.abort(new Error("enough of this"));
  expect(await replay).toMatchObject({ code: "ERR_COMM_ABORTED" });
  await turns(50);
  expect(blocked).toEqual([]);
  await closeAll(ranks);
});

test("the windows of a closed communicator do not wait for a communicator that is freed beside a kernel", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, undefined, gpus);
  const sum = await sums(ranks);
  const closed = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const symmetric = (comm: Communicator) =>
    comm.allReduce({ send: comm.alloc("int32", 1, { symmetric: true }), op: "sum" });
  await Promise.all(closed.map(symmetric));
  const [first] = await onAll(ranks, ({ comm }) => comm.split({ color: 0 }));
  const stuck = first as Communicator;
  const error = errorOf(stuck.barrier());
  const early = sum(0);
  await turns();
  const blocked = blockingAborts(gpus);
  const closing = closed.map((comm) => comm.close());
  stuck.abort(new Error("enough of this"));
  await error;
  await turns(2_000);
  expect(blocked).toEqual([]);
  await Promise.all([early, sum(1), ...closing]);
  await closeAll(ranks);
});

test("a call with exchanged counts that ends while a communicator is freed allocates nothing", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, undefined, gpus);
  const sum = await sums(ranks);
  const apart = await onAll(ranks, ({ comm }) => comm.split({ color: 0, stream: "own" }));
  const exchange = (comm: Communicator) =>
    comm.allToAllv({ send: comm.alloc("int32", 3), sendCounts: [1, 1, 1] });
  await Promise.all(apart.map(exchange));
  const { children, errors } = await stuckCalls(ranks, [undefined]);
  const early = sum(0);
  const exchanges = apart.slice(0, 1).map((comm) => errorOf(exchange(comm)));
  await turns();
  const blocked = blockingAborts(gpus);
  for (const child of children) child.abort(new Error("enough of this"));
  await Promise.all(errors);
  await turns(1_500);
  // The counts arrive while the sum runs beside the free.
  exchanges.push(...apart.slice(1).map((comm) => errorOf(exchange(comm))));
  await turns(200);
  apart[0]?.abort(new Error("enough of this"));
  await Promise.all(exchanges);
  await turns();
  expect(blocked).toEqual([]);
  await Promise.all([early, sum(1)]);
  await closeAll(ranks);
});

test("the communicators of a world that closes are freed side by side", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, undefined, gpus);
  for (let count = 0; count < 3; count += 1) {
    await onAll(ranks, ({ comm }) => comm.split({ color: 0, ...(count > 0 && { stream: "own" }) }));
  }
  const { calls } = gpus.nccl;
  const { abortInBackground } = calls;
  const waiting: (() => void)[] = [];
  calls.abortInBackground = async (handle) => {
    await new Promise<void>((resolve) => waiting.push(resolve));
    return abortInBackground(handle);
  };
  const closing = Promise.all(ranks.map(({ comm }) => comm.close()));
  await turns(50);
  expect(waiting).toHaveLength(8);
  for (const proceed of waiting) proceed();
  await closing;
});

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
