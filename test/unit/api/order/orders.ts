/** Programs that make calls of several communicators in chosen orders, and the outcome of each call. */
import {
  type Backend,
  type CallOrderError,
  type CommOp,
  type Communicator,
  createWorld,
  type DeviceBuffer,
  type World,
} from "twinccl";
import { sim } from "twinccl/sim";
import { expect, onTestFinished } from "vitest";
import { fakeGpus } from "../../../support/fake-gpus/index.ts";
import { within } from "../../../support/planted.ts";

/** Backends with all ranks in one process. The fakes must have nothing to complain about at the end of the test. */
export const backends: Readonly<Record<string, () => Backend>> = {
  "the simulation": () => sim(),
  "fake GPUs": () => {
    const gpus = fakeGpus();
    onTestFinished(() => expect(gpus.machine.complaints).toEqual([]));
    return gpus.backend();
  },
};

export const turns = async (count = 4): Promise<void> => {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
};

/** The outcome of a call: `done`, or the error. */
export type Outcome = "done" | CallOrderError;

/** Observes every call at once, and waits for all of them. */
export async function outcomesOf(ops: readonly PromiseLike<unknown>[]): Promise<Outcome[]> {
  const results = await Promise.allSettled(ops);
  return results.map((each) => (each.status === "fulfilled" ? "done" : each.reason));
}

/** The same in short: `done`, or the code of the error. */
export async function codesOf(ops: readonly PromiseLike<unknown>[]): Promise<string[]> {
  return (await outcomesOf(ops)).map((each) => (each === "done" ? each : each.code));
}

/** Runs a program in a world of its own; `callSites` as in `createWorld`. */
export async function inWorld<T>(
  size: number,
  program: (comm: Communicator, world: World) => Promise<T>,
  { backend = sim(), callSites = false }: { backend?: Backend; callSites?: boolean } = {},
): Promise<T[]> {
  const world = await createWorld({ backend, size, callSites });
  try {
    return await within(
      20_000,
      world.run((comm) => program(comm, world)),
    );
  } finally {
    await within(20_000, world.close());
  }
}

/** Communicators of all ranks. */
export async function wholes(comm: Communicator, count: number): Promise<Communicator[]> {
  const made: Communicator[] = [];
  for (let i = 0; i < count; i++) made.push(await comm.split({ color: 0 }));
  return made;
}

/** The contents of buffers of each rank, by a call on a healthy communicator: reading one rejects where its last call failed. */
export async function heldIn(
  comm: Communicator,
  ...buffers: readonly DeviceBuffer<"float32">[]
): Promise<number[][]> {
  const held: number[][] = [];
  for (const send of buffers) {
    const all = comm.alloc("float32", send.length * comm.size);
    await comm.allGather({ send, recv: all });
    const begin = comm.rank * send.length;
    held.push(Array.from((await all.toHost()) as Float32Array).slice(begin, begin + send.length));
  }
  return held;
}

/** A kind of call: what it needs is prepared on all ranks, then the call is made, with one operation or several. */
export type Kind = (
  comm: Communicator,
  buffer: DeviceBuffer<"float32">,
) => Promise<() => readonly CommOp<unknown>[]>;

const sum = (comm: Communicator, send: DeviceBuffer<"float32">): CommOp<unknown> =>
  comm.allReduce({ send, op: "sum" });

/** The next rank's block, from the rank before. */
const around = ({ rank, size }: Communicator) =>
  ({ to: (rank + 1) % size, from: (rank + size - 1) % size }) as const;

/** Every kind of call that waits for other ranks. */
export const callKinds: Readonly<Record<string, Kind>> = {
  allReduce: async (comm, buffer) => () => [sum(comm, buffer)],
  barrier: async (comm) => () => [comm.barrier()],
  broadcast: async (comm, recv) => () => [comm.broadcast({ recv, root: 0 })],
  allToAllv: async (comm) => {
    const send = comm.alloc("float32", comm.size);
    return () => [comm.allToAllv({ send, sendCounts: new Array(comm.size).fill(1) })];
  },
  "allReduce made three times before": async (comm) => {
    const own = { send: comm.alloc("float32", 2).fill(0), op: "sum" } as const;
    for (let i = 0; i < 3; i++) await comm.allReduce(own);
    return () => [comm.allReduce(own)];
  },
  "batch of an allReduce made before": async (comm) => {
    const own = { send: comm.alloc("float32", 2).fill(0), op: "sum" } as const;
    for (let i = 0; i < 3; i++) await comm.allReduce(own);
    return () => [comm.allReduce(own), comm.allReduce(own), comm.allReduce(own)];
  },
  "prepared allReduce": async (comm, send) => {
    const prepared = comm.prepare(() => comm.allReduce({ send, op: "sum" }));
    return () => [prepared.start()];
  },
  "send and recv": async (comm, buffer) => () => {
    const { rank, size } = comm;
    // Rank 0 sends to all others: each has a message in common with it.
    if (rank > 0) return [comm.recv({ recv: buffer, peer: 0 })];
    const peers = Array.from({ length: size - 1 }, (_, at) => at + 1);
    return peers.map((peer) => comm.send({ send: buffer, peer }));
  },
  sendRecv: async (comm, buffer) => () => {
    const recv = comm.alloc("float32", 2);
    return [comm.sendRecv({ send: buffer, recv, ...around(comm) })];
  },
  "group of messages": async (comm, recv) => () => {
    const { to, from } = around(comm);
    const send = comm.alloc("float32", 2);
    return [
      comm.group(() => {
        void comm.send({ send, peer: to });
        void comm.recv({ recv, peer: from });
      }),
    ];
  },
  "group of a collective call and messages": async (comm, recv) => () => {
    const { to, from } = around(comm);
    const send = comm.alloc("float32", 2);
    return [
      comm.group(() => {
        void comm.barrier();
        void comm.send({ send, peer: to });
        void comm.recv({ recv, peer: from });
      }),
    ];
  },
  split: async (comm) => () => [comm.split({ color: 0 })],
  capture: async (comm, buffer) => () => [comm.capture(() => void sum(comm, buffer))],
  "capture of messages": async (comm, recv) => () => {
    const send = comm.alloc("float32", 2);
    return [comm.capture(() => void comm.sendRecv({ send, recv, ...around(comm) }))];
  },
  replay: async (comm, buffer) => {
    const graph = await comm.capture(() => void sum(comm, buffer));
    return () => [graph.replay()];
  },
  "replay of messages": async (comm, recv) => {
    const send = comm.alloc("float32", 2);
    const graph = await comm.capture(() => void comm.sendRecv({ send, recv, ...around(comm) }));
    return () => [graph.replay()];
  },
};
