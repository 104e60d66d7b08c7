/** What hooks throw behind an operation: whoever looks at it is told, and a failure that nobody looks at is no secret. */

import { type CommError, type CommOp, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { within } from "../../support/planted.ts";

async function inWorld<T>(size: number, program: (comm: Communicator) => T | PromiseLike<T>) {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await within(3000, world.run(program));
  } finally {
    await world.close();
  }
}

const messageOf = (op: PromiseLike<unknown>): PromiseLike<string> =>
  op.then(
    () => "done",
    (error) => (error as Error).message,
  );

const tooLate = (): never => {
  throw new Error("too late");
};

const swap = (comm: Communicator): CommOp => {
  const peer = comm.size - 1 - comm.rank;
  return comm.sendRecv({ send: new Int8Array(1), recv: new Int8Array(1), to: peer, from: peer });
};

describe.each([1, 2])("what an after hook of %i ranks throws", (size) => {
  const calls = {
    "a call": (comm: Communicator) => comm.barrier(),
    "a call in halves": swap,
    "a group": (comm: Communicator) =>
      comm.group(() => {
        void comm.barrier();
      }),
    "a group of messages": (comm: Communicator) =>
      comm.group(() => {
        void swap(comm);
      }),
    "a group in a group": (comm: Communicator) =>
      comm.group(() => {
        void comm.group(() => void comm.barrier());
      }),
  };

  test.each(Object.entries(calls))("fails %s, once", async (_, call) => {
    const outcomes = await inWorld(size, async (comm) => {
      const off = comm.hooks.after(tooLate);
      const message = await messageOf(call(comm));
      off();
      await comm.barrier();
      return [message, comm.stats().failures];
    });
    expect(outcomes).toEqual(outcomes.map(() => ["too late", 1]));
  });

  test.each(Object.entries(calls))("fails %s that nobody awaits, and the run", async (_, call) => {
    const counts: number[] = [];
    const run = inWorld(size, async (comm) => {
      const off = comm.hooks.after(tooLate);
      const op = call(comm);
      while (op.pending) await new Promise((resolve) => setTimeout(resolve, 1));
      off();
      counts.push(comm.stats().failures);
      expect(await messageOf(comm.barrier())).toMatch(/failed and nobody awaited it/);
    });
    await expect(run).rejects.toMatchObject({ name: "WorldError" });
    expect(counts).toEqual(new Array(size).fill(1));
  });

  test("fails a replay of messages", async () => {
    const outcomes = await inWorld(size, async (comm) => {
      const graph = await comm.capture(() => void swap(comm));
      const off = comm.hooks.after(tooLate);
      const message = await messageOf(graph.replay());
      off();
      return [message, comm.stats().failures];
    });
    expect(outcomes).toEqual(outcomes.map(() => ["too late", 1]));
  });
});

test("an operation that failed before its hooks were told keeps its error", async () => {
  const outcomes = await inWorld(2, async (comm) => {
    comm.hooks.after(tooLate);
    const send = new Int8Array(comm.rank + 1);
    const code = await comm
      .allReduce({ send, op: "sum" })
      .catch((error) => (error as CommError).code);
    return [code, comm.stats().failures];
  });
  expect(outcomes).toEqual(outcomes.map(() => ["ERR_COMM_MISMATCH", 1]));
});

test("what a callback of whenSettled throws counts as what a hook throws", async () => {
  const outcomes = await inWorld(2, async (comm) => {
    const op = comm.barrier();
    if (comm.rank === 0) op.whenSettled(tooLate);
    return [await messageOf(op), comm.stats().failures];
  });
  expect(outcomes).toEqual([
    ["too late", 1],
    ["done", 0],
  ]);
});
