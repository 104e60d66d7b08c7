/** Deadlines: virtual time on the simulation. A call that is late fails, and its communicator with it. */

import { type CommOp, type Communicator, createWorld } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

const ms = 1_000_000;

interface Seen {
  readonly name: string;
  readonly code?: string;
  readonly ranks?: readonly number[];
  readonly collective?: string | undefined;
  readonly call?: number | undefined;
}

const seen = (op: PromiseLike<unknown>): PromiseLike<Seen> =>
  op.then(
    () => ({ name: "ok" }),
    ({ name, code, ranks, collective, call }: Thrown) => ({
      name,
      code,
      ranks: [...ranks],
      collective,
      call,
    }),
  );

const timeout = (ranks: readonly number[], collective: string, call = 0): Seen => ({
  name: "CommTimeoutError",
  code: "ERR_COMM_TIMEOUT",
  ranks,
  collective,
  call,
});

const aborted = (rank: number): object =>
  expect.objectContaining({ name: "CommAbortedError", code: "ERR_COMM_ABORTED", ranks: [rank] });

/** The result of a program on every rank; the world must be healthy after it. */
async function judged(size: number, program: (comm: Communicator) => unknown): Promise<Thrown[]> {
  const world = await createWorld({ backend: sim(), size });
  try {
    const results = await within(3000, world.run<Thrown>(program));
    await expectHealthy(world);
    return results;
  } finally {
    await world.close();
  }
}

/** One call of each kind that a late or absent rank 2 holds up. */
const calls: readonly (readonly [string, (comm: Communicator, timeoutMs: number) => CommOp])[] = [
  ["barrier", (comm, timeoutMs) => comm.barrier({ timeoutMs })],
  [
    "allReduce",
    (comm, timeoutMs) => comm.allReduce({ send: new Int8Array(3), op: "sum", timeoutMs }),
  ],
  [
    "allGather",
    (comm, timeoutMs) =>
      comm.allGather({ send: new Int8Array(1), recv: new Int8Array(3), timeoutMs }),
  ],
  [
    "allToAllv",
    (comm, timeoutMs) =>
      comm.allToAllv({ send: new Int8Array(3), sendCounts: [1, 1, 1], timeoutMs }),
  ],
  [
    "sendRecv",
    (comm, timeoutMs) =>
      comm.sendRecv({
        send: new Int8Array(1),
        recv: new Int8Array(1),
        to: (comm.rank + 1) % 3,
        from: (comm.rank + 2) % 3,
        timeoutMs,
      }),
  ],
];

describe("a rank that never makes the call", () => {
  test.each(calls.slice(0, 4))("makes %s time out, by name", async (collective, call) => {
    const results = await judged(3, (comm) => (comm.rank === 2 ? "away" : seen(call(comm, 5))));
    const first = results.findIndex((result) => (result as Seen).name === "CommTimeoutError");
    expect(results[first]).toEqual(timeout([2], collective));
    expect(results[1 - first]).toEqual(aborted(first));
    expect(results[2]).toBe("away");
  });

  test("the earlier of two deadlines fires, whichever call came first", async () => {
    for (const early of [0, 1]) {
      const results = await judged(3, (comm) => {
        if (comm.rank === 2) return "away";
        return seen(comm.barrier({ timeoutMs: comm.rank === early ? 3 : 7 }));
      });
      expect(results[early]).toEqual(timeout([2], "barrier"));
      expect(results[1 - early]).toEqual(aborted(early));
    }
  });

  test("the earlier of two deadlines fires, also on another communicator", async () => {
    for (const early of [0, 1]) {
      const results = await judged(2, async (comm) => {
        const subs = [await comm.split({ color: 0 }), await comm.split({ color: 1 })];
        const [own, other] = comm.rank === 0 ? subs : [...subs].reverse();
        const first = await seen(
          own?.barrier({ timeoutMs: comm.rank === early ? 3 : 7 }) as CommOp,
        );
        const second = comm.rank === early ? await seen(other?.barrier() as CommOp) : undefined;
        return [first.name, second?.name];
      });
      expect(results[early]).toEqual(["CommTimeoutError", "ok"]);
      expect(results[1 - early]).toEqual(["ok", undefined]);
    }
  });

  test("a deadline counts from the call on, in virtual time", async () => {
    const results = await judged(3, (comm) => {
      if (comm.rank === 2) return "away";
      if (comm.rank === 0) comm.work(10 * ms);
      return seen(comm.barrier({ timeoutMs: comm.rank === 0 ? 1 : 5 }));
    });
    expect(results.slice(0, 2)).toEqual([aborted(1), timeout([2], "barrier")]);
  });

  test("a message that is never received times out, and one that is never sent", async () => {
    const results = await judged(2, (comm) => {
      if (comm.rank === 1) return "away";
      return seen(comm.send({ send: new Int8Array(1), peer: 1, timeoutMs: 2 }));
    });
    expect(results).toEqual([timeout([1], "send"), "away"]);
    const others = await judged(2, (comm) => {
      if (comm.rank === 0) return "away";
      return seen(comm.recv({ recv: new Int8Array(1), peer: 0, timeoutMs: 2 }));
    });
    expect(others).toEqual(["away", timeout([0], "recv")]);
  });

  test("does not expire a deadline of Infinity", async () => {
    const results = await judged(2, (comm) =>
      comm.rank === 1 ? "away" : seen(comm.barrier({ timeoutMs: Infinity })),
    );
    expect(results).toEqual([expect.objectContaining({ code: "ERR_COMM_DEADLOCK" }), "away"]);
  });

  test("a split times out too", async () => {
    const results = await judged(2, (comm) =>
      comm.rank === 1 ? "away" : seen(comm.split({ color: 0, timeoutMs: 4 })),
    );
    expect(results).toEqual([timeout([1], "split"), "away"]);
  });
});

describe("a late rank", () => {
  test.each(calls.slice(0, 4))(
    "makes %s time out on the ranks with a deadline",
    async (name, call) => {
      const results = await judged(3, (comm) => {
        if (comm.rank === 2) comm.work(10 * ms);
        return seen(comm.rank === 1 ? call(comm, 1000) : call(comm, 5));
      });
      expect(results[0]).toMatchObject({ name: "CommTimeoutError", collective: name, call: 0 });
      expect(results[1]).toEqual({ name: "ok" });
      expect(results[2]).toEqual({ name: "ok" });
    },
  );

  test("is in time with shorter work", async () => {
    const results = await judged(3, (comm) => {
      if (comm.rank === 2) comm.work(4.9 * ms);
      return seen(comm.barrier({ timeoutMs: 5 }));
    });
    expect(results).toEqual(new Array(3).fill({ name: "ok" }));
  });

  test("aborts the communicator: later calls of every rank fail", async () => {
    const results = await judged(2, async (comm) => {
      if (comm.rank === 1) comm.work(10 * ms);
      const first = await seen(comm.barrier(comm.rank === 0 ? { timeoutMs: 5 } : {}));
      return [first.name, await seen(comm.barrier())];
    });
    expect(results).toEqual([
      ["CommTimeoutError", aborted(0)],
      ["ok", aborted(0)],
    ]);
  });

  test("aborts its subgroup alone: the world continues", async () => {
    const results = await judged(3, async (comm) => {
      const sub = await comm.split({ color: comm.rank < 2 ? 0 : undefined });
      if (comm.rank === 1) comm.work(10 * ms);
      const first = sub && (await seen(sub.barrier({ timeoutMs: comm.rank === 0 ? 5 : 50 })));
      const data = new Int32Array(1).fill(1);
      await comm.allReduce({ send: data, op: "sum" });
      return [first?.name, data[0], sub && (await seen(sub.barrier())).code];
    });
    expect(results).toEqual([
      ["CommTimeoutError", 3, "ERR_COMM_ABORTED"],
      ["ok", 3, "ERR_COMM_ABORTED"],
      [undefined, 3, undefined],
    ]);
  });

  test("is named by its rank on the communicator of a split, late or missing", async () => {
    for (const comes of [true, false]) {
      const results = await judged(4, async (comm) => {
        const half = await comm.split({ color: comm.rank > 1 ? 1 : 0 });
        if (comm.rank < 2) return undefined;
        if (comm.rank === 3) {
          comm.work(10 * ms);
          return comes ? seen(half.barrier()) : undefined;
        }
        return half.barrier({ timeoutMs: 5 }).catch(({ rank, size, ranks, message }: Thrown) => {
          return [rank, size, [...ranks], message.split(": ")[2].split("\n")[0]];
        });
      });
      expect(results[2], String(comes)).toEqual([0, 2, [1], "rank 1 had not made it"]);
    }
  });

  // BUG: the rank had not come when the deadline passed, but `ranks` is empty and the text says that all had.
  test("is named by the error", async () => {
    const results = await judged(2, (comm) => {
      if (comm.rank === 1) comm.work(10 * ms);
      return seen(comm.barrier({ timeoutMs: 5 }));
    });
    expect(results[0]?.ranks).toEqual([1]);
  });

  test("aborts the communicator in the name of the earliest deadline, with every seed", async () => {
    for (let seed = 0; seed < 12; seed++) {
      const world = await createWorld({ backend: sim({ seed }), size: 4 });
      const results = await within(
        3000,
        world.run(async (comm) => {
          if (comm.rank === 3) comm.work(10 * ms);
          const timeoutMs = [7, 3, 3][comm.rank];
          const first = await seen(comm.barrier(timeoutMs === undefined ? {} : { timeoutMs }));
          return [first.name, first.ranks, await seen(comm.barrier())];
        }),
      );
      await world.close();
      const late = ["CommTimeoutError", [3], aborted(1)];
      expect(results).toEqual([late, late, late, ["ok", undefined, aborted(1)]]);
    }
  });

  test("is named for its own message, not for another one at the same time", async () => {
    const results = await judged(4, async (comm) => {
      // Ranks 0 and 2 come first, so that both messages of rank 3 meet at once.
      comm.work(([0, 10, 0, 2][comm.rank] as number) * ms);
      if (comm.rank === 3) await new Promise((resolve) => setTimeout(resolve, 3));
      const part = (peer: number, timeoutMs?: number) => {
        const options = timeoutMs === undefined ? {} : { timeoutMs };
        return comm.recv({ recv: new Int8Array(1), peer, ...options });
      };
      if (comm.rank < 3) return seen(part(3, comm.rank === 0 ? 1 : 50));
      return seen(
        comm.group(() => {
          for (const peer of [0, 1, 2]) void comm.send({ send: new Int8Array(1), peer });
        }),
      );
    });
    expect(results[0]).toEqual(timeout([3], "recv"));
  });

  test("makes a split time out", async () => {
    const results = await judged(2, (comm) => {
      if (comm.rank === 1) comm.work(10 * ms);
      return seen(comm.split({ color: 0, timeoutMs: 5 }));
    });
    expect(results).toEqual([timeout([1], "split"), { name: "ok" }]);
  });

  test("makes a message of a group time out, counted from the call inside", async () => {
    const message = async (timeoutMs: number) => {
      const results = await judged(2, (comm) => {
        let part: PromiseLike<unknown> = comm.barrier();
        const peer = 1 - comm.rank;
        const whole = comm.group(() => {
          const data = new Int8Array(1);
          if (comm.rank === 0) part = comm.send({ send: data, peer, timeoutMs });
          else part = comm.recv({ recv: data, peer });
          comm.work((comm.rank === 0 ? 4 : 8) * ms);
        });
        return Promise.all([part, whole].map(seen));
      });
      return results.map((parts: Seen[]) => parts.map(({ name }) => name));
    };
    expect(await message(9)).toEqual(new Array(2).fill(["ok", "ok"]));
    // 4 ms after the group was posted; the call was made 4 ms before.
    const late = new Array(2).fill("CommTimeoutError");
    expect(await message(7)).toEqual([late, ["ok", "ok"]]);
  });
});

describe("the clock of a rank with a failed call", () => {
  /** Milliseconds on each rank's clock after a program. */
  async function clocksAfter(size: number, program: (comm: Communicator) => PromiseLike<unknown>) {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ trace }), size });
    await world.run(async (comm) => {
      await program(comm).then(undefined, () => undefined);
      comm.work(0, "end");
    });
    await world.close();
    const clocks: number[] = [];
    for (const [, time, rank] of trace.toText().matchAll(/^(\d+) work rank=(\d+) .* end$/gm)) {
      clocks[Number(rank)] = Number(time) / (1000 * ms);
    }
    return clocks;
  }

  test("equals the deadline, also on a rank that waited with it", async () => {
    const clocks = await clocksAfter(3, (comm) => {
      if (comm.rank === 2) return Promise.resolve();
      return comm.barrier(comm.rank === 0 ? { timeoutMs: 5 } : {});
    });
    expect(clocks).toEqual([5, 5, 0]);
  });

  test("equals the deadline if another rank is late", async () => {
    const clocks = await clocksAfter(2, (comm) => {
      if (comm.rank === 1) comm.work(10 * ms);
      return comm.split({ color: 0, timeoutMs: 5 });
    });
    expect(clocks).toEqual([5, 10]);
  });

  test("equals the time of the last rank's mismatching call", async () => {
    const clocks = await clocksAfter(3, (comm) => {
      comm.work(([0, 10, 3][comm.rank] as number) * ms);
      return comm.broadcast({ recv: new Int8Array(1), root: comm.rank });
    });
    expect(clocks).toEqual([10, 10, 10]);
    const message = await clocksAfter(3, (comm) => {
      comm.work(([0, 10, 30][comm.rank] as number) * ms);
      if (comm.rank === 2) return Promise.resolve();
      const data = new Int8Array(1 + comm.rank);
      const peer = 1 - comm.rank;
      return comm.rank === 0 ? comm.send({ send: data, peer }) : comm.recv({ recv: data, peer });
    });
    expect(message).toEqual([10, 10, 30]);
  });

  test("reaches the time of the last rank's call when it awaits the submission", async () => {
    const clocks = await clocksAfter(2, (comm) => {
      if (comm.rank === 1) comm.work(10 * ms);
      const whole = comm.group(() => {
        void comm.barrier();
        void comm.barrier();
      });
      return whole.enqueued;
    });
    expect(clocks).toEqual([10, 10]);
  });
});

describe("a met deadline", () => {
  test("has no effect", async () => {
    const results = await judged(3, async (comm) => {
      for (let round = 0; round < 3; round++) {
        for (const [, call] of calls) await call(comm, 1);
      }
      return comm.stats().failures;
    });
    expect(results).toEqual([0, 0, 0]);
  });

  test("applies to a replay", async () => {
    const results = await judged(2, async (comm) => {
      const graph = await comm.capture(() => void comm.barrier());
      await graph.replay({ timeoutMs: 1 });
      if (comm.rank === 1) comm.work(10 * ms);
      return (await seen(graph.replay(comm.rank === 0 ? { timeoutMs: 1 } : {}))).name;
    });
    expect(results).toEqual(["CommTimeoutError", "ok"]);
  });

  test("counts from the replay on for every recorded call", async () => {
    const replayed = (timeoutMs: number) =>
      judged(1, async (comm) => {
        const graph = await comm.capture(() => {
          void comm.barrier();
          comm.work(3 * ms);
          void comm.barrier();
          comm.work(3 * ms);
          void comm.barrier();
        });
        return (await seen(graph.replay({ timeoutMs }))).name;
      });
    expect(await replayed(7)).toEqual(["ok"]);
    expect(await replayed(5)).toEqual(["CommTimeoutError"]);
  });
});

test("after a late call every rank gets its error from the buffer too, whichever made it last", async () => {
  const outcomes = new Set<string>();
  for (let seed = 0; seed < 8; seed++) {
    const world = await createWorld({ backend: sim({ seed }), size: 3 });
    const results = await world.run(async (comm) => {
      const send = comm.alloc("float32", 1).fill(comm.rank);
      if (comm.rank === 0) comm.work(10 * ms);
      const late = await seen(comm.allReduce({ send, op: "sum", timeoutMs: 5 }));
      return [late.name, (await seen(send.toHost())).name];
    });
    outcomes.add(JSON.stringify(results));
    await world.close();
  }
  const late = ["CommTimeoutError", "CommTimeoutError"];
  expect([...outcomes]).toEqual([JSON.stringify([["ok", "ok"], late, late])]);
});
