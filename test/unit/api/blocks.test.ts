/** Blocks in a buffer: packed they fill it exactly, with offsets they lie where the caller says and nothing else moves. */

import { type CommError, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { expect, test } from "vitest";

const size = 3;
const counts = [1, 2, 3];
/** Places of the blocks in a buffer of 10, out of order and with gaps. */
const offsets = [8, 1, 4];

async function inWorld<T>(program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

const own = (rank: number): Int32Array => new Int32Array(counts[rank] ?? 0).fill(rank + 1);
const blank = (): Int32Array => new Int32Array(10).fill(-1);
const placed = [-1, 2, 2, -1, 3, 3, 3, -1, 1, -1];

test("an all-gatherv writes its blocks and nothing between them", async () => {
  const results = await inWorld(async (comm) => {
    const recv = blank();
    await comm.allGatherv({
      send: own(comm.rank),
      recv,
      recvCounts: counts,
      recvOffsets: offsets,
    });
    return [...recv];
  });
  expect(results).toEqual([placed, placed, placed]);
});

test("a gather writes its blocks and nothing between them", async () => {
  const results = await inWorld(async (comm) => {
    const recv = blank();
    const root = { recv, recvCounts: counts, recvOffsets: offsets };
    await comm.gather({ send: own(comm.rank), root: 1, ...(comm.rank === 1 ? root : {}) });
    return [...recv];
  });
  expect(results[1]).toEqual(placed);
});

test("a scatter reads blocks at their offsets, also overlapping ones", async () => {
  const results = await inWorld(async (comm) => {
    const recv = new Int32Array(counts[comm.rank] ?? 0);
    const send = Int32Array.from({ length: 10 }, (_, index) => index);
    const root = { send, sendCounts: counts, sendOffsets: [9, 2, 3] };
    await comm.scatter({ recv, root: 0, ...(comm.rank === 0 ? root : {}) });
    return [...recv];
  });
  expect(results).toEqual([[9], [2, 3], [3, 4, 5]]);
});

test.each([5, 7])("packed blocks of 6 elements need a buffer of 6, not of %i", async (length) => {
  const codes = await inWorld(async (comm) => {
    const fault = (error: unknown): string => {
      const { code, field } = error as CommError;
      return `${code} ${field}`;
    };
    const buffer = new Int32Array(length);
    const mine = own(comm.rank);
    const gathered = comm.allGatherv({ send: mine, recv: buffer, recvCounts: counts });
    const root = comm.rank;
    const gather = comm.gather({ send: mine, recv: buffer, recvCounts: counts, root });
    const scatter = comm.scatter({ send: buffer, recv: mine, sendCounts: counts, root });
    return Promise.all([gathered, gather, scatter].map((op) => op.then(() => "ok", fault)));
  });
  const faults = ["ERR_COMM_ARG recv", "ERR_COMM_ARG recv", "ERR_COMM_ARG send"];
  expect(codes).toEqual([faults, faults, faults]);
});
