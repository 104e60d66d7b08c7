/** Ranks that disagree in the gathers, scatters, reductions and recordings: one error on all, nothing written. */

import { type CollectiveMismatchError, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { type Expected, expectPlanted, type Guard, type Planted } from "../../support/planted.ts";

function mismatch(field: string, ranks: readonly number[], more: object = {}): () => Expected {
  const facts = { name: "CollectiveMismatchError", code: "ERR_COMM_MISMATCH" };
  return () => ({ ...facts, field, ranks, ...more });
}

/** A range of guarded host memory, with guarded surroundings. */
function ints(guard: Guard, length: number): Int32Array {
  return guard.array(new Int32Array(length + 4).fill(7)).subarray(2, 2 + length);
}

function doubles(guard: Guard, length: number): Float64Array {
  return guard.array(new Float64Array(length + 2).fill(7.5)).subarray(1, 1 + length);
}

const reductions: readonly Planted[] = [
  {
    wrong: "a reduce whose root differs",
    size: 4,
    expected: mismatch("root", [3], { collective: "reduce", call: 0 }),
    program: (comm, guard) =>
      comm.reduce({ send: ints(guard, 4), op: "sum", root: comm.rank === 3 ? 3 : 1 }),
  },
  {
    wrong: "a reduce whose count differs",
    size: 3,
    expected: mismatch("count", [0], { collective: "reduce" }),
    program: (comm, guard) =>
      comm.reduce({ send: ints(guard, comm.rank === 0 ? 5 : 4), op: "sum", root: 0 }),
  },
  {
    wrong: "a reduce whose operator differs",
    size: 3,
    expected: mismatch("op", [1]),
    program: (comm, guard) =>
      comm.reduce({ send: ints(guard, 4), op: comm.rank === 1 ? "max" : "min", root: 2 }),
  },
  {
    wrong: "a reduce that meets an all-reduce",
    size: 4,
    expected: mismatch("collective", [0]),
    program: (comm, guard) =>
      comm.rank === 0
        ? comm.allReduce({ send: ints(guard, 4), op: "sum" })
        : comm.reduce({ send: ints(guard, 4), op: "sum", root: 1 }),
  },
  {
    wrong: "a reduce-scatter whose blocks differ in length",
    size: 3,
    expected: mismatch("count", [2], { collective: "reduceScatter" }),
    program: (comm, guard) => {
      const block = comm.rank === 2 ? 3 : 2;
      return comm.reduceScatter({
        send: ints(guard, 3 * block),
        recv: ints(guard, block),
        op: "sum",
      });
    },
  },
  {
    wrong: "a reduce-scatter whose dtype differs",
    size: 2,
    expected: mismatch("dtype", [1]),
    program: (comm, guard) =>
      comm.rank === 0
        ? comm.reduceScatter({ send: ints(guard, 2), recv: ints(guard, 1), op: "sum" })
        : comm.reduceScatter({ send: doubles(guard, 2), recv: doubles(guard, 1), op: "sum" }),
  },
  {
    wrong: "a reduce-scatterv whose counts differ between ranks, with the same sum",
    size: 3,
    expected: mismatch("sendCounts[0]", [1], { collective: "reduceScatterv" }),
    program: (comm, guard) => {
      const sendCounts = comm.rank === 1 ? [2, 1, 3] : [1, 2, 3];
      const recv = ints(guard, sendCounts[comm.rank] as number);
      return comm.reduceScatterv({ send: ints(guard, 6), recv, op: "sum", sendCounts });
    },
  },
  {
    wrong: "a reduce-scatterv whose counts differ in the last rank's block alone",
    size: 4,
    expected: mismatch("sendCounts[3]", [0]),
    program: (comm, guard) => {
      const sendCounts = [0, 1, 2, comm.rank === 0 ? 4 : 3];
      const send = ints(
        guard,
        sendCounts.reduce((a, b) => a + b),
      );
      const recv = ints(guard, sendCounts[comm.rank] as number);
      return comm.reduceScatterv({ send, recv, op: "prod", sendCounts });
    },
  },
];

const gathers: readonly Planted[] = [
  {
    wrong: "an all-gather whose count differs",
    size: 3,
    expected: mismatch("count", [1], { collective: "allGather" }),
    program: (comm, guard) => {
      const length = comm.rank === 1 ? 1 : 2;
      return comm.allGather({ send: ints(guard, length), recv: ints(guard, 3 * length) });
    },
  },
  {
    wrong: "an all-gather of nothing on one rank",
    size: 3,
    expected: mismatch("count", [0]),
    program: (comm, guard) => {
      const length = comm.rank === 0 ? 0 : 2;
      return comm.allGather({ send: ints(guard, length), recv: ints(guard, 3 * length) });
    },
  },
  {
    wrong: "an all-gather that meets an all-gatherv",
    size: 2,
    expected: mismatch("collective", [1]),
    program: (comm, guard) => {
      const args = { send: ints(guard, 1), recv: ints(guard, 2) };
      return comm.rank === 0
        ? comm.allGather(args)
        : comm.allGatherv({ ...args, recvCounts: [1, 1] });
    },
  },
  {
    wrong: "an all-gatherv whose counts differ between ranks",
    size: 3,
    expected: mismatch("recvCounts[1]", [2], { collective: "allGatherv" }),
    program: (comm, guard) => {
      const recvCounts = comm.rank === 2 ? [1, 1, 4] : [1, 2, 3];
      const send = ints(guard, recvCounts[comm.rank] as number);
      return comm.allGatherv({ send, recv: ints(guard, 6), recvCounts });
    },
  },
  {
    wrong: "an all-gatherv whose counts are permuted on one rank",
    size: 3,
    expected: mismatch("recvCounts[0]", [0]),
    program: (comm, guard) => {
      const recvCounts = comm.rank === 0 ? [3, 2, 1] : [1, 2, 3];
      const send = ints(guard, recvCounts[comm.rank] as number);
      return comm.allGatherv({ send, recv: ints(guard, 6), recvCounts });
    },
  },
  {
    wrong: "a gather whose root differs",
    size: 3,
    expected: mismatch("root", [1], { collective: "gather" }),
    program: (comm, guard) => {
      const root = comm.rank === 1 ? 1 : 0;
      const recv = root === comm.rank ? { recv: ints(guard, 6) } : {};
      return comm.gather({ send: ints(guard, 2), root, ...recv });
    },
  },
  {
    wrong: "a gather whose dtype differs",
    size: 3,
    expected: mismatch("dtype", [2]),
    program: (comm, guard) => {
      if (comm.rank === 2) return comm.gather({ send: doubles(guard, 2), root: 0 });
      const recv = comm.rank === 0 ? { recv: ints(guard, 6) } : {};
      return comm.gather({ send: ints(guard, 2), root: 0, ...recv });
    },
  },
  {
    wrong: "a gather of a length that the root has no counts for",
    size: 3,
    expected: mismatch("recvCounts[2]", [2], { collective: "gather" }),
    program: (comm, guard) => {
      const recv = comm.rank === 1 ? { recv: ints(guard, 6) } : {};
      return comm.gather({ send: ints(guard, comm.rank === 2 ? 1 : 2), root: 1, ...recv });
    },
  },
  {
    wrong: "a gather whose counts fit no rank but the root",
    size: 3,
    expected: mismatch("recvCounts[1]", [1]),
    program: (comm, guard) => {
      const recv = comm.rank === 0 ? { recv: ints(guard, 8), recvCounts: [2, 3, 3] } : {};
      return comm.gather({ send: ints(guard, 2), root: 0, ...recv });
    },
  },
  {
    wrong: "a gather whose root counts its own data wrongly",
    size: 2,
    expected: mismatch("recvCounts[1]", [1]),
    program: (comm, guard) => {
      const recv = comm.rank === 1 ? { recv: ints(guard, 5), recvCounts: [2, 3] } : {};
      return comm.gather({ send: ints(guard, 2), root: 1, ...recv });
    },
  },
  {
    wrong: "a gather that meets a scatter",
    size: 2,
    expected: mismatch("collective", [1]),
    program: (comm, guard) =>
      comm.rank === 0
        ? comm.gather({ send: ints(guard, 1), recv: ints(guard, 2), root: 0 })
        : comm.scatter({ recv: ints(guard, 1), root: 0 }),
  },
];

const scatters: readonly Planted[] = [
  {
    wrong: "a scatter whose root differs",
    size: 4,
    expected: mismatch("root", [0], { collective: "scatter" }),
    program: (comm, guard) => {
      const root = comm.rank === 0 ? 0 : 2;
      const send = root === comm.rank ? { send: ints(guard, 8) } : {};
      return comm.scatter({ recv: ints(guard, 2), root, ...send });
    },
  },
  {
    wrong: "a scatter to a recv that is too short",
    size: 3,
    expected: mismatch("sendCounts[1]", [1], { collective: "scatter" }),
    program: (comm, guard) => {
      const send = comm.rank === 0 ? { send: ints(guard, 6) } : {};
      return comm.scatter({ recv: ints(guard, comm.rank === 1 ? 1 : 2), root: 0, ...send });
    },
  },
  {
    wrong: "a scatter to a recv that is too long",
    size: 3,
    expected: mismatch("sendCounts[2]", [2]),
    program: (comm, guard) => {
      const send = comm.rank === 0 ? { send: ints(guard, 4), sendCounts: [2, 2, 0] } : {};
      return comm.scatter({ recv: ints(guard, 2), root: 0, ...send });
    },
  },
  {
    wrong: "a scatter whose dtype differs on the root",
    size: 3,
    expected: mismatch("dtype", [1]),
    program: (comm, guard) =>
      comm.rank === 1
        ? comm.scatter({ send: doubles(guard, 6), recv: doubles(guard, 2), root: 1 })
        : comm.scatter({ recv: ints(guard, 2), root: 1 }),
  },
];

/** Records something that depends on the rank. */
const recording =
  (record: (comm: Communicator, guard: Guard) => void) => (comm: Communicator, guard: Guard) =>
    comm.capture(() => record(comm, guard));

const recordings: readonly Planted[] = [
  {
    wrong: "a capture that records another collective on one rank",
    size: 3,
    expected: mismatch("calls[1].collective", [2], { collective: "capture" }),
    program: recording((comm, guard) => {
      comm.barrier();
      if (comm.rank === 2) comm.barrier();
      else comm.allReduce({ send: ints(guard, 2), op: "sum" });
    }),
  },
  {
    wrong: "a capture whose counts differ",
    size: 3,
    expected: mismatch("calls[0].count", [0]),
    program: recording((comm, guard) => {
      comm.allReduce({ send: ints(guard, comm.rank === 0 ? 3 : 2), op: "sum" });
    }),
  },
  {
    wrong: "a capture that records one call more on one rank",
    size: 3,
    expected: mismatch("calls", [1]),
    program: recording((comm) => {
      comm.barrier();
      if (comm.rank === 1) comm.barrier();
    }),
  },
  {
    wrong: "a capture that records nothing on one rank",
    size: 3,
    expected: () => ({ name: "CollectiveMismatchError", code: "ERR_COMM_MISMATCH", ranks: [0] }),
    program: recording((comm) => {
      if (comm.rank !== 0) comm.barrier();
    }),
  },
  {
    wrong: "a capture that meets a call",
    size: 2,
    expected: mismatch("collective", [1]),
    program: (comm) => (comm.rank === 0 ? comm.capture(() => undefined) : comm.barrier()),
  },
  {
    wrong: "a split that meets a call",
    size: 3,
    expected: mismatch("collective", [1]),
    program: (comm) => (comm.rank === 1 ? comm.barrier() : comm.split({ color: 0 })),
  },
  {
    wrong: "replays of different recordings",
    size: 3,
    expected: mismatch("graph", [2], { collective: "replay" }),
    program: async (comm, guard) => {
      const send = ints(guard, 2);
      const max = await comm.capture(() => void comm.allReduce({ send, op: "max" }));
      const min = await comm.capture(() => void comm.allReduce({ send, op: "min" }));
      await (comm.rank === 2 ? max : min).replay();
    },
  },
  {
    wrong: "a replay that meets a direct call",
    size: 2,
    expected: mismatch("collective", [1]),
    program: async (comm, guard) => {
      const graph = await comm.capture(
        () => void comm.broadcast({ recv: ints(guard, 2), root: 0 }),
      );
      await (comm.rank === 0 ? graph.replay() : comm.broadcast({ recv: ints(guard, 2), root: 0 }));
    },
  },
  {
    wrong: "recorded blocks that are not what the other rank expects",
    size: 2,
    expected: mismatch("calls[1].sendCounts[0]", [0, 1], { collective: "capture" }),
    program: (comm, guard) => {
      const [send, recv] = [ints(guard, 3), ints(guard, 3)];
      return comm.capture(() => {
        void comm.barrier();
        const sendCounts = comm.rank === 0 ? [1, 1] : [2, 1];
        void comm.allToAllv({ send, recv, sendCounts, recvCounts: [1, 1] });
      });
    },
  },
];

describe("ranks that disagree", () => {
  const corpus = [...reductions, ...gathers, ...scatters, ...recordings];
  test.each(corpus)("$wrong", (planted) => expectPlanted(planted));

  test.each([
    ["of one kind", (rank: number) => rank + 1, ["1", "2", "3"], [1, 2]],
    ["of which one rank has none", (rank: number) => (rank === 1 ? 0 : 2), ["2", "0", "2"], [1]],
    ["of which the first rank has most", (rank: number) => 5 - rank, ["5", "4", "3"], [1, 2]],
  ])(
    "in the number of their recorded calls, %s: every rank's number is reported",
    async (_, count, values, ranks) => {
      const world = await createWorld({ backend: sim(), size: 3 });
      const failure = await world
        .run((comm) =>
          comm.capture(() => {
            for (let call = 0; call < count(comm.rank); call++) {
              if (call % 2 === 0) void comm.barrier();
              else void comm.allReduce({ send: new Int8Array(1), op: "sum" });
            }
          }),
        )
        .catch((error) => error.cause as CollectiveMismatchError);
      await world.close();
      expect(failure).toMatchObject({ field: "calls", values, ranks });
    },
  );
});
