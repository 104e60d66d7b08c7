/** Sends and receives that cannot meet, or do not fit: found at once, with the ranks that wait for each other. */

import { type Communicator, createWorld, type DeadlockError } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import {
  type Expected,
  expectHealthy,
  expectPlanted,
  type Guard,
  type Planted,
} from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

function deadlock(ranks: readonly number[], more: object = {}): Expected {
  return { name: "DeadlockError", code: "ERR_COMM_DEADLOCK", ranks, ...more };
}

function mismatch(field: string, ranks: readonly number[], more: object = {}): Expected {
  return { name: "CollectiveMismatchError", code: "ERR_COMM_MISMATCH", field, ranks, ...more };
}

/** A range of guarded host memory, with guarded surroundings. */
function ints(guard: Guard, length = 2): Int32Array {
  return guard.array(new Int32Array(length + 4).fill(7)).subarray(2, 2 + length);
}

const next = ({ rank, size }: Communicator): number => (rank + 1) % size;
const previous = ({ rank, size }: Communicator): number => (rank + size - 1) % size;

const neverMeet: readonly Planted[] = [
  {
    wrong: "both send first",
    size: 2,
    expected: () => deadlock([0, 1], { collective: "send", call: 0 }),
    program: async (comm, guard) => {
      await comm.send({ send: ints(guard), peer: 1 - comm.rank });
      await comm.recv({ recv: ints(guard), peer: 1 - comm.rank });
    },
  },
  {
    wrong: "both receive first",
    size: 2,
    expected: () => deadlock([0, 1], { collective: "recv" }),
    program: async (comm, guard) => {
      await comm.recv({ recv: ints(guard), peer: 1 - comm.rank });
      await comm.send({ send: ints(guard), peer: 1 - comm.rank });
    },
  },
  {
    wrong: "three send in a circle",
    size: 3,
    expected: () => deadlock([0, 1, 2], { collective: "send" }),
    program: async (comm, guard) => {
      await comm.send({ send: ints(guard), peer: next(comm) });
      await comm.recv({ recv: ints(guard), peer: previous(comm) });
    },
  },
  {
    wrong: "receives are posted behind sends that wait for them, unawaited",
    size: 2,
    expected: () => deadlock([0, 1], { collective: "send" }),
    program: (comm, guard) =>
      Promise.all([
        comm.send({ send: ints(guard), peer: 1 - comm.rank }),
        comm.recv({ recv: ints(guard), peer: 1 - comm.rank }),
      ]),
  },
  {
    wrong: "a send without a receive",
    size: 3,
    expected: (rank) => (rank === 0 ? deadlock([2], { collective: "send" }) : "fine"),
    program: (comm, guard) =>
      comm.rank === 0 ? comm.send({ send: ints(guard), peer: 2 }) : undefined,
  },
  {
    wrong: "one receive more than sends",
    size: 2,
    expected: (rank) => (rank === 1 ? deadlock([0], { collective: "recv", call: 2 }) : "fine"),
    program: async (comm, guard) => {
      const spare = new Int32Array(2);
      for (let call = 0; call < 2; call++) {
        if (comm.rank === 0) await comm.send({ send: ints(guard), peer: 1 });
        else await comm.recv({ recv: spare, peer: 0 });
      }
      if (comm.rank === 1) await comm.recv({ recv: ints(guard), peer: 0 });
    },
  },
  {
    wrong: "the receiver names another sender",
    size: 3,
    expected: (rank) => {
      if (rank === 0) return deadlock([1, 2], { collective: "send" });
      return rank === 1 ? deadlock([1, 2], { collective: "recv" }) : "fine";
    },
    program: (comm, guard) => {
      if (comm.rank === 0) return comm.send({ send: ints(guard), peer: 1 });
      return comm.rank === 1 ? comm.recv({ recv: ints(guard), peer: 2 }) : undefined;
    },
  },
  {
    wrong: "a send is swapped against a collective",
    size: 2,
    expected: (rank) => deadlock([0, 1], { collective: rank === 0 ? "send" : "barrier" }),
    program: async (comm, guard) => {
      if (comm.rank === 0) {
        await comm.send({ send: ints(guard), peer: 1 });
        await comm.barrier();
      } else {
        await comm.barrier();
        await comm.recv({ recv: ints(guard), peer: 0 });
      }
    },
  },
  {
    wrong: "a pair swaps a receive against an all-reduce that a third one makes too",
    size: 3,
    expected: (rank) =>
      deadlock([0, 1], { collective: ["allReduce", "recv", "allReduce"][rank] as string }),
    program: async (comm, guard) => {
      if (comm.rank === 1) await comm.recv({ recv: ints(guard), peer: 0 });
      await comm.allReduce({ send: ints(guard), op: "sum" });
      if (comm.rank === 0) await comm.send({ send: ints(guard), peer: 1 });
    },
  },
  {
    wrong: "a sendRecv ring in which one goes the other way",
    size: 4,
    expected: (rank) => (rank === 0 ? "fine" : deadlock([1, 2, 3])),
    program: (comm, guard) => {
      const [to, from] =
        comm.rank === 2 ? [previous(comm), next(comm)] : [next(comm), previous(comm)];
      return comm.sendRecv({ send: ints(guard), recv: ints(guard), to, from });
    },
  },
  {
    wrong: "a sendRecv to oneself from another",
    size: 2,
    expected: (rank) => (rank === 0 ? deadlock([0, 1]) : "fine"),
    program: (comm, guard) =>
      comm.rank === 0
        ? comm.sendRecv({ send: ints(guard), recv: ints(guard), to: 0, from: 1 })
        : undefined,
  },
  {
    wrong: "two groups whose halves cross",
    size: 3,
    expected: (rank) => (rank === 2 ? "fine" : deadlock([0, 1, 2])),
    program: (comm, guard) => {
      if (comm.rank === 2) return undefined;
      return comm.group(() => {
        void comm.send({ send: ints(guard), peer: 1 - comm.rank });
        void comm.recv({ recv: ints(guard), peer: 2 });
      });
    },
  },
];

/** Differences between a send of rank 0 and the receive of rank 1. */
const doNotFit: readonly Planted[] = [
  {
    wrong: "the receiver expects less",
    size: 2,
    expected: (rank) => mismatch("count", [0, 1], { collective: rank === 0 ? "send" : "recv" }),
    program: (comm, guard) =>
      comm.rank === 0
        ? comm.send({ send: ints(guard, 3), peer: 1 })
        : comm.recv({ recv: ints(guard, 2), peer: 0 }),
  },
  {
    wrong: "the receiver expects more",
    size: 3,
    expected: (rank) => (rank === 0 ? "fine" : mismatch("count", [1, 2], { call: 0 })),
    program: (comm, guard) => {
      if (comm.rank === 2) return comm.send({ send: ints(guard, 0), peer: 1 });
      return comm.rank === 1 ? comm.recv({ recv: ints(guard, 1), peer: 2 }) : undefined;
    },
  },
  {
    wrong: "the receiver expects another dtype of the same width",
    size: 2,
    expected: () => mismatch("dtype", [0, 1]),
    program: (comm, guard) =>
      comm.rank === 0
        ? comm.send({ send: guard.array(new Float32Array(2).fill(1)), peer: 1 })
        : comm.recv({ recv: ints(guard, 2), peer: 0 }),
  },
  {
    wrong: "the bytes are as many, the elements are not",
    size: 2,
    expected: () => mismatch("dtype", [0, 1]),
    program: (comm, guard) =>
      comm.rank === 0
        ? comm.send({ send: guard.array(new Float64Array(2).fill(1)), peer: 1 })
        : comm.recv({ recv: ints(guard, 4), peer: 0 }),
  },
  {
    wrong: "a sendRecv to itself of different lengths",
    size: 2,
    expected: (rank) => mismatch("count", [rank]),
    program: (comm, guard) =>
      comm.sendRecv({
        send: ints(guard, 2),
        recv: ints(guard, 3),
        to: comm.rank,
        from: comm.rank,
      }),
  },
  {
    wrong: "two messages in a group meet in the wrong order",
    size: 2,
    expected: () => mismatch("count", [0, 1]),
    program: (comm, guard) =>
      comm.group(() => {
        for (const length of comm.rank === 0 ? [2, 3] : [3, 2]) {
          if (comm.rank === 0) void comm.send({ send: ints(guard, length), peer: 1 });
          else void comm.recv({ recv: ints(guard, length), peer: 0 });
        }
      }),
  },
];

describe("sends and receives that never meet", () => {
  test.each(neverMeet)("$wrong", (planted) => expectPlanted(planted));

  test("are reported in fields: the ranks by call, and the missing ranks", async () => {
    const world = await createWorld({ backend: sim(), size: 3, name: "ring" });
    const error = await world
      .run((comm) => comm.send({ send: new Int8Array(1), peer: next(comm) }))
      .catch((failed) => failed.cause as DeadlockError);
    expect((error as unknown as DeadlockError).waits).toEqual(
      [0, 1, 2].map((rank) => ({
        rank,
        state: "waits",
        comm: "ring",
        collective: "send",
        call: 0,
        missing: [(rank + 1) % 3],
      })),
    );
    expect(String(error)).toMatch(/rank 2 {2}waits in send {2}call 0 on "ring" {2}for rank 0/);
    await world.close();
  });

  test("a rank throws while its peer waits for a message of it", async () => {
    await expectPlanted({
      wrong: "",
      size: 3,
      program: async (comm, guard) => {
        if (comm.rank === 2) throw new Error("no data");
        await comm.recv({ recv: ints(guard), peer: 2 });
      },
      expected: (rank) =>
        rank === 2
          ? { message: "no data" }
          : { name: "RemoteRankError", code: "ERR_COMM_REMOTE", ranks: [2] },
    });
  });
});

describe("a send and a receive that do not fit", () => {
  test.each(doNotFit)("$wrong", (planted) => expectPlanted(planted));

  test("fail on their two ranks only; the other messages of a group arrive", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const results = await world.run(async (comm) => {
      const data = new Int32Array(2).fill(comm.rank);
      const codeOf = (error: Thrown) => [error.code, error.field, [...error.ranks]];
      if (comm.rank === 0) {
        return comm
          .group(() => {
            void comm.send({ send: data, peer: 1 });
            void comm.send({ send: new Int32Array(3), peer: 2 });
          })
          .then(() => "ok", codeOf);
      }
      const outcome = await comm.recv({ recv: data, peer: 0 }).then(() => "ok", codeOf);
      return [outcome, Array.from(data)];
    });
    const fault = ["ERR_COMM_MISMATCH", "count", [0, 2]];
    expect(results).toEqual([fault, ["ok", [0, 0]], [fault, [2, 2]]]);
    await expectHealthy(world);
    await world.close();
  });

  test("leave the pair in step: the next message arrives", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (comm) => {
      const codes: string[] = [];
      const data = new Int32Array(4).fill(comm.rank + 5);
      for (const length of [comm.rank + 1, 4]) {
        const part = data.subarray(0, length);
        const op =
          comm.rank === 0 ? comm.send({ send: part, peer: 1 }) : comm.recv({ recv: part, peer: 0 });
        await op.then(
          () => codes.push("ok"),
          (error: Thrown) => codes.push(error.code),
        );
        if (length !== 4) expect(Array.from(data)).toEqual(new Array(4).fill(comm.rank + 5));
      }
      return [codes, Array.from(data)];
    });
    const expected = [
      ["ERR_COMM_MISMATCH", "ok"],
      [5, 5, 5, 5],
    ];
    expect(results).toEqual([expected, expected]);
    await world.close();
  });
});

describe("memory that does not belong in a message", () => {
  test("a buffer of another rank", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const buffers: unknown[] = [];
    const outcomes = await world.run(async (comm) => {
      buffers[comm.rank] = comm.alloc("int32", 2).fill(comm.rank);
      await comm.barrier();
      const foreign = buffers[1 - comm.rank] as never;
      const ops = [
        comm.send({ send: foreign, peer: 1 - comm.rank }),
        comm.recv({ recv: foreign, peer: 1 - comm.rank }),
      ];
      return Promise.all(ops.map((op) => op.catch(({ code, field }: Thrown) => [code, field])));
    });
    const faults = [
      ["ERR_COMM_ARG", "send"],
      ["ERR_COMM_ARG", "recv"],
    ];
    expect(outcomes).toEqual([faults, faults]);
    await expectHealthy(world);
    await world.close();
  });

  test("a buffer that is disposed while it is lent fails both ranks, by name", async () => {
    for (const careless of [0, 1]) {
      const world = await createWorld({ backend: sim(), size: 2 });
      const outcomes = await world.run(async (comm) => {
        const data = comm.alloc("int32", 2).fill(comm.rank);
        if (comm.rank !== careless) await new Promise((resolve) => setTimeout(resolve, 3));
        const op =
          comm.rank === 0 ? comm.send({ send: data, peer: 1 }) : comm.recv({ recv: data, peer: 0 });
        if (comm.rank === careless) data.dispose();
        return op.then(
          () => "ok",
          ({ code, ranks }: Thrown) => [code, [...ranks]],
        );
      });
      const fault = ["ERR_COMM_CLOSED", [careless]];
      expect(outcomes).toEqual([fault, fault]);
      await expectHealthy(world);
      await world.close();
    }
  });

  // BUG: what `sendRecv` refuses (overlap of send and recv) a group lets through, and the data is wrong.
  test("one range that is sent and received in one group", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const outcomes = await world.run(async (comm) => {
      const both = new Int32Array(2).fill(comm.rank);
      const peer = 1 - comm.rank;
      const swap = comm.group(() => {
        void comm.send({ send: both, peer });
        void comm.recv({ recv: both, peer });
      });
      return swap.then(
        () => Array.from(both),
        (error: Thrown) => error.code,
      );
    });
    await world.close();
    // Either refused or swapped; never one rank's data on both.
    expect(["ERR_COMM_ARG", "1,1"]).toContain(String(outcomes[0]));
    expect(["ERR_COMM_ARG", "0,0"]).toContain(String(outcomes[1]));
  });
});
