/** Ranks that disagree: the same typed error on all of them, naming the odd rank and the field. */

import { type CollectiveMismatchError, createWorld, type WorldError } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { type Expected, expectPlanted, type Planted } from "../../support/planted.ts";

function mismatch(field: string, ranks: readonly number[], more: object = {}): () => Expected {
  const facts = { name: "CollectiveMismatchError", code: "ERR_COMM_MISMATCH" };
  return () => ({ ...facts, field, ranks, ...more });
}

const corpus: readonly Planted[] = [
  {
    wrong: "one rank calls another collective",
    size: 4,
    expected: mismatch("collective", [2], { call: 0 }),
    program: (comm, guard) => {
      const send = guard.buffer(comm, "float32", 8);
      return comm.rank === 2 ? comm.barrier() : comm.allReduce({ send, op: "sum" });
    },
  },
  {
    wrong: "two ranks swap the order of two calls",
    size: 3,
    expected: mismatch("collective", [1], { call: 1 }),
    program: async (comm, guard) => {
      await comm.barrier();
      const send = guard.buffer(comm, "int32", 4);
      if (comm.rank === 1) await comm.broadcast({ recv: send, root: 0 });
      await comm.allReduce({ send, op: "sum" });
      if (comm.rank !== 1) await comm.broadcast({ recv: send, root: 0 });
    },
  },
  {
    wrong: "one rank has another dtype of the same width",
    size: 3,
    expected: mismatch("dtype", [0], { collective: "allReduce" }),
    program: (comm, guard) => {
      const dtype = comm.rank === 0 ? "uint32" : "int32";
      return comm.allReduce({ send: guard.buffer(comm, dtype, 8), op: "max" });
    },
  },
  {
    wrong: "bfloat16 meets float16, both in Uint16Array",
    size: 2,
    expected: mismatch("dtype", [1]),
    program: (comm, guard) => {
      const dtype = comm.rank === 0 ? "bfloat16" : "float16";
      return comm.allReduce({ send: guard.buffer(comm, dtype, 8), op: "max" });
    },
  },
  {
    wrong: "one rank has another count",
    size: 5,
    expected: mismatch("count", [4]),
    program: (comm, guard) =>
      comm.allReduce({ send: guard.buffer(comm, "float64", comm.rank === 4 ? 7 : 8), op: "sum" }),
  },
  {
    wrong: "one rank passes nothing (count 0)",
    size: 3,
    expected: mismatch("count", [1]),
    program: (comm, guard) =>
      comm.allReduce({ send: guard.buffer(comm, "int8", comm.rank === 1 ? 0 : 3), op: "sum" }),
  },
  {
    wrong: "one rank has another operator",
    size: 4,
    expected: mismatch("op", [3]),
    program: (comm, guard) =>
      comm.allReduce({
        send: guard.buffer(comm, "float32", 8),
        op: comm.rank === 3 ? "avg" : "sum",
      }),
  },
  {
    wrong: "a sum meets a pre-multiplied sum",
    size: 3,
    expected: mismatch("op", [0]),
    program: (comm, guard) =>
      comm.allReduce({
        send: guard.buffer(comm, "float32", 8),
        op: comm.rank === 0 ? { preMul: 1 } : "sum",
      }),
  },
  {
    wrong: "ranks disagree about the root",
    size: 4,
    expected: mismatch("root", [2], { collective: "broadcast" }),
    program: (comm, guard) =>
      comm.broadcast({ recv: guard.buffer(comm, "int32", 4), root: comm.rank === 2 ? 2 : 0 }),
  },
  {
    wrong: "the root sends another dtype than is received",
    size: 3,
    expected: mismatch("dtype", [1]),
    program: (comm, guard) =>
      comm.broadcast({
        recv: guard.buffer(comm, comm.rank === 1 ? "int32" : "float32", 4),
        root: 1,
      }),
  },
  {
    wrong: "a receiver of a broadcast has too short a buffer",
    size: 3,
    expected: mismatch("count", [2]),
    program: (comm, guard) =>
      comm.broadcast({ recv: guard.buffer(comm, "int32", comm.rank === 2 ? 3 : 4), root: 0 }),
  },
  {
    wrong: "blocks of an all-to-all have different lengths",
    size: 3,
    expected: mismatch("count", [1]),
    program: (comm, guard) => {
      const length = 3 * (comm.rank === 1 ? 2 : 4);
      const send = guard.buffer(comm, "uint8", length);
      return comm.allToAll({ send, recv: guard.buffer(comm, "uint8", length) });
    },
  },
  {
    wrong: "split sizes are no transposes",
    size: 3,
    expected: mismatch("sendCounts[2]", [0, 2], { collective: "allToAllv" }),
    program: (comm, guard) => {
      const counts = [1, 1, 1];
      const recvCounts = comm.rank === 2 ? [2, 1, 1] : counts;
      const send = guard.buffer(comm, "int32", 3);
      const recv = guard.buffer(comm, "int32", 4);
      return comm.allToAllv({ send, recv, sendCounts: counts, recvCounts });
    },
  },
  {
    wrong: "recvCounts are given on some ranks only",
    size: 4,
    expected: mismatch("recvCounts", [3]),
    program: (comm, guard) => {
      const sendCounts = [1, 1, 1, 1];
      const send = guard.buffer(comm, "int32", 4);
      const recv = guard.buffer(comm, "int32", 4);
      const given = comm.rank === 3 ? { recvCounts: sendCounts } : {};
      return comm.allToAllv({ send, recv, sendCounts, ...given });
    },
  },
  {
    wrong: "a recv is too short for what is sent to it",
    size: 3,
    expected: mismatch("recv.length", [1]),
    program: (comm, guard) => {
      const send = guard.buffer(comm, "int32", 6);
      const recv = guard.buffer(comm, "int32", comm.rank === 1 ? 5 : 6);
      return comm.allToAllv({ send, recv, sendCounts: [2, 2, 2] });
    },
  },
  {
    wrong: "an all-to-all meets an all-to-allv",
    size: 2,
    expected: mismatch("collective", [1]),
    program: (comm, guard) => {
      const send = guard.buffer(comm, "int32", 2);
      if (comm.rank === 0) return comm.allToAll({ send, recv: guard.buffer(comm, "int32", 2) });
      return comm.allToAllv({ send, sendCounts: [1, 1] });
    },
  },
];

describe("ranks that disagree", () => {
  test.each(corpus)("$wrong", (planted) => expectPlanted(planted));

  test("the error lists every rank's value, and its text shows the odd one", async () => {
    const world = await createWorld({ backend: sim(), size: 3, name: "trainers" });
    const failure = await world
      .run((comm) => comm.allReduce({ send: new Float32Array(comm.rank === 1 ? 3 : 4), op: "sum" }))
      .catch((error: WorldError) => error.cause as CollectiveMismatchError);
    expect(failure).toMatchObject({ values: ["4", "3", "4"], comm: "trainers", size: 3 });
    expect(String(failure)).toMatch(/rank 1 differ/);
    expect(String(failure)).toMatch(/trainers/);
    await world.close();
  });

  test("the communicator stays in step: the calls after a mismatch still match", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const results = await world.run(async (comm) => {
      const send = comm.alloc("int32", 2).fill(comm.rank);
      const codes: unknown[] = [];
      for (const length of [2, comm.rank === 0 ? 1 : 2, 2]) {
        await comm
          .allReduce({ send: send.subarray(0, length), op: "max" })
          .then(() => codes.push("ok"))
          .catch((error) => codes.push(error.code));
      }
      return [codes, Array.from(await send.toHost())];
    });
    const codes = ["ok", "ERR_COMM_MISMATCH", "ok"];
    expect(results).toEqual([0, 1, 2].map(() => [codes, [2, 2]]));
    await world.close();
  });
});
