/** Calls of a job that wait for another rank: CUDA blocks the thread that launches about a thousand of them. */
import type { Communicator } from "twinccl";
import { expect, test } from "vitest";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

const count = 1_500;

interface Deadline {
  readonly timeoutMs?: number;
}

type MakeCalls = (rank: Joined, deadline: Deadline) => Promise<() => PromiseLike<unknown>>;

/** The calls of a rank. */
const kinds: Readonly<Record<string, MakeCalls>> = {
  "repeated calls": async ({ comm }: Joined, deadline: Deadline) => {
    const send = comm.alloc("int32", 1);
    return () => comm.allReduce({ send, op: "sum", ...deadline });
  },
  "calls of many lengths": async ({ comm }: Joined, deadline: Deadline) => {
    const send = comm.alloc("int32", count);
    let length = 0;
    return () => {
      const part = send.subarray(0, 1 + (length++ % count));
      return comm.allReduce({ send: part, op: "sum", ...deadline });
    };
  },
  "repeated messages": async ({ comm }: Joined, deadline: Deadline) => {
    const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
    const peer = 1 - comm.rank;
    return () => comm.sendRecv({ send, recv, to: peer, from: peer, ...deadline });
  },
  // Each that is held is compared with the order of those before it.
  "repeated messages of two communicators": async ({ comm }: Joined, deadline: Deadline) => {
    const comms = [comm, await comm.split({ color: 0 })];
    const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
    const ends = { send, recv, to: 1 - comm.rank, from: 1 - comm.rank };
    for (const each of comms) await each.sendRecv(ends);
    let made = 0;
    return () => (comms[made++ % 2] as Communicator).sendRecv({ ...ends, ...deadline });
  },
  "calls of several launches": async ({ comm }: Joined, deadline: Deadline) => {
    const [send, recv] = [comm.alloc("int32", 2), comm.alloc("int32", 1)];
    const sendCounts = [1, 1];
    return () => comm.reduceScatterv({ send, recv, sendCounts, op: "sum", ...deadline });
  },
  "calls with arrays": async ({ comm }: Joined, deadline: Deadline) => {
    const send = new Int32Array(1);
    return () => comm.allReduce({ send, op: "sum", ...deadline });
  },
  "calls on another stream behind writes": async ({ comm }: Joined, deadline: Deadline) => {
    const own = await comm.split({ color: 0, stream: "own" });
    return () => own.allReduce({ send: comm.alloc("int32", 1), op: "sum", ...deadline });
  },
  replays: async ({ comm }: Joined, deadline: Deadline) => {
    const send = comm.alloc("int32", 1);
    const graph = await comm.capture(() => {
      comm.allReduce({ send, op: "sum" });
    });
    return () => graph.replay(deadline);
  },
};

const names = Object.keys(kinds);

async function setUp(what: string, deadline: Deadline = {}) {
  const { machine, ...gpus } = cleanGpus({ staging: "copy" });
  const ranks = await joinAll(2, undefined, { machine, ...gpus });
  const calls = await onAll(ranks, (rank) => (kinds[what] as MakeCalls)(rank, deadline));
  const makeAll = (rank: number) =>
    Promise.allSettled(Array.from({ length: count }, () => calls[rank]?.()));
  await onAll(ranks, ({ comm }) => calls[comm.rank]?.() as PromiseLike<unknown>);
  const deepest = () => Math.max(...Array.from(machine.streams.values(), (each) => each.deepest));
  return { ranks, makeAll, deepest };
}

test.each(names)("%s are launched in parts, and all complete", async (what) => {
  const { ranks, makeAll, deepest } = await setUp(what);
  const early = makeAll(0);
  await turns(20);
  // Below what CUDA takes, and enough for the GPU to have work while the thread is in other code.
  expect(deepest()).toBeGreaterThan(500);
  expect(deepest()).toBeLessThan(800);
  const all = [...(await makeAll(1)), ...(await early)];
  expect(all.filter(({ status }) => status === "rejected")).toEqual([]);
  await closeAll(ranks);
});

test.each(names)("%s that another rank does not make miss their deadlines", async (what) => {
  const { ranks, makeAll, deepest } = await setUp(what, { timeoutMs: 2_000 });
  const all = await makeAll(0);
  expect(deepest()).toBeLessThan(800);
  const codes = all.map((each) => each.status === "rejected" && each.reason.code);
  expect(codes[0]).toBe("ERR_COMM_TIMEOUT");
  // The first one ends the communicator, and with it those behind.
  const ends = ["ERR_COMM_TIMEOUT", "ERR_COMM_ABORTED"];
  expect(codes.filter((code) => !ends.includes(code))).toEqual([]);
  await closeAll(ranks);
});

test("calls that wait by the hundred delay none on another stream", async () => {
  const ranks = await joinAll(2);
  const [first, second] = ranks as [Joined, Joined];
  const apart = await onAll(ranks, ({ comm }) => comm.split({ color: 0, stream: "own" }));
  const early = Array.from({ length: count }, () => first.comm.barrier());
  await turns(20);
  await Promise.all(apart.map((each) => each.barrier({ timeoutMs: 2_000 })));
  const late = Array.from({ length: count }, () => second.comm.barrier());
  await Promise.all([...early, ...late]);
  await closeAll(ranks);
});
