/** Subgroups used wrongly: swapped orders, missing members, foreign handles and buffers; the world goes on. */

import { type Communicator, createWorld, type DeadlockError } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import {
  type Expected,
  expectHealthy,
  expectPlanted,
  type Guard,
  type Planted,
  within,
} from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

function deadlock(ranks: readonly number[], more: object = {}): Expected {
  return { name: "DeadlockError", code: "ERR_COMM_DEADLOCK", ranks, ...more };
}

function remote(ranks: readonly number[]): Expected {
  return { name: "RemoteRankError", code: "ERR_COMM_REMOTE", ranks };
}

function ints(guard: Guard, length = 2): Int32Array {
  return guard.array(new Int32Array(length + 4).fill(7)).subarray(2, 2 + length);
}

const subgroup = (comm: Communicator, color: number): PromiseLike<Communicator> =>
  comm.split({ color });

/** A subgroup of the first ranks, numbered as in the world; the others get `undefined`. */
const firsts = (comm: Communicator, count: number): PromiseLike<Communicator | undefined> =>
  comm.split({ color: comm.rank < count ? 0 : undefined });

const codeOf = (op: PromiseLike<unknown>): PromiseLike<unknown> =>
  op.then(
    () => "ok",
    (error: Thrown) => error.code ?? String(error),
  );

const corpus: readonly Planted[] = [
  {
    wrong: "one rank does not join a split",
    size: 4,
    expected: (rank) => (rank === 2 ? "fine" : deadlock([2], { collective: "split", call: 0 })),
    program: (comm) => (comm.rank === 2 ? undefined : comm.split({ color: comm.rank % 2 })),
  },
  {
    wrong: "one rank joins a second split alone",
    size: 3,
    expected: (rank) => (rank === 1 ? deadlock([0, 2], { collective: "split", call: 1 }) : "fine"),
    program: async (comm) => {
      await comm.split({ color: 0 });
      if (comm.rank === 1) await comm.split({ color: 0 });
    },
  },
  {
    wrong: "two subgroups are called in swapped order",
    size: 2,
    expected: (rank) =>
      deadlock([0, 1], { collective: "allReduce", comm: rank === 0 ? "world/1" : "world/2#2" }),
    program: async (comm, guard) => {
      const a = await subgroup(comm, 1);
      const b = await subgroup(comm, 2);
      for (const sub of comm.rank === 0 ? [a, b] : [b, a]) {
        await sub.allReduce({ send: ints(guard), op: "sum" });
      }
    },
  },
  {
    wrong: "a subgroup and the world are called in swapped order",
    size: 3,
    expected: (rank) => {
      if (rank === 2) return deadlock([0, 1], { comm: "world" });
      return deadlock([0, 1], { comm: rank === 0 ? "world/0" : "world" });
    },
    program: async (comm, guard) => {
      const sub = await firsts(comm, 2);
      if (comm.rank === 0) await sub?.allReduce({ send: ints(guard), op: "sum" });
      await comm.barrier();
      if (comm.rank === 1) await sub?.allReduce({ send: ints(guard), op: "sum" });
    },
  },
  {
    wrong: "three ranks wait for each other in three subgroups",
    size: 3,
    expected: (rank) =>
      deadlock([0, 1, 2], { comm: ["world/1", "world/2#2", "world/3#3"][rank] as string }),
    program: async (comm) => {
      // Subgroup r+1 holds rank r and the next one.
      const subs: Communicator[] = [];
      for (let color = 1; color <= 3; color++) {
        const member = comm.rank === color - 1 || comm.rank === color % 3;
        const sub = await comm.split({ color: member ? color : undefined });
        if (sub !== undefined) subs[color] = sub;
      }
      const own = comm.rank + 1;
      await subs[own]?.barrier();
      await subs[comm.rank === 0 ? 3 : comm.rank]?.barrier();
    },
  },
  {
    wrong: "one member makes one call more in its subgroup, then all go on in the world",
    size: 4,
    expected: (rank) =>
      rank === 1
        ? deadlock([0, 1, 2], { collective: "barrier", comm: "world/0", call: 1 })
        : deadlock([0, 1, 2], { collective: "barrier", comm: "world" }),
    program: async (comm) => {
      const sub = await firsts(comm, 3);
      for (let call = 0; call < (comm.rank === 1 ? 2 : 1); call++) await sub?.barrier();
      await comm.barrier();
    },
  },
  {
    wrong: "one member makes one call fewer in its subgroup and goes on in the world",
    size: 4,
    expected: (rank) => {
      const inSub = rank === 0 || rank === 1;
      return deadlock([0, 1, 2], { comm: inSub ? "world/0" : "world" });
    },
    program: async (comm, guard) => {
      const sub = await firsts(comm, 3);
      if (comm.rank !== 2) await sub?.allReduce({ send: ints(guard), op: "sum" });
      await comm.barrier();
    },
  },
  {
    wrong: "one member returns while its subgroup calls",
    size: 4,
    expected: (rank) => (rank < 2 ? deadlock([2], { comm: "world/0" }) : "fine"),
    program: async (comm) => {
      const sub = await firsts(comm, 3);
      if (comm.rank < 2) await sub?.barrier();
    },
  },
  {
    wrong: "a member throws while its subgroup waits; another subgroup does not notice",
    size: 4,
    expected: (rank) => {
      if (rank === 1) return { message: "out" };
      return rank === 0 ? remote([1]) : "fine";
    },
    program: async (comm) => {
      const sub = await subgroup(comm, comm.rank < 2 ? 0 : 1);
      if (comm.rank === 1) throw new Error("out");
      for (let call = 0; call < 5; call++) await sub.barrier();
    },
  },
  {
    wrong: "a subgroup disagrees about a root",
    size: 4,
    expected: (rank) =>
      rank === 3
        ? "fine"
        : {
            name: "CollectiveMismatchError",
            code: "ERR_COMM_MISMATCH",
            field: "root",
            ranks: [1],
            call: 0,
          },
    program: async (comm, guard) => {
      const sub = await firsts(comm, 3);
      await sub?.broadcast({ recv: ints(guard), root: comm.rank === 1 ? 1 : 0 });
    },
  },
  {
    wrong: "a root that is a rank of the world, not of the subgroup",
    size: 4,
    expected: (rank) =>
      rank > 1 ? "fine" : { name: "InvalidArgumentError", code: "ERR_COMM_ARG", field: "root" },
    program: async (comm, guard) => {
      const sub = await firsts(comm, 2);
      await sub?.broadcast({ recv: ints(guard), root: 2 });
    },
  },
  {
    wrong: "counts as many as the world has ranks, not the subgroup",
    size: 3,
    expected: (rank) =>
      rank > 1
        ? "fine"
        : { name: "InvalidArgumentError", code: "ERR_COMM_ARG", field: "recvCounts" },
    program: async (comm, guard) => {
      const sub = await firsts(comm, 2);
      await sub?.allGatherv({ send: ints(guard, 1), recv: ints(guard, 3), recvCounts: [1, 1, 1] });
    },
  },
  {
    wrong: "two subgroups of one parent that wait for one message between them",
    size: 2,
    expected: (rank) => deadlock([0, 1], { collective: rank === 0 ? "send" : "recv" }),
    program: async (comm, guard) => {
      const a = await subgroup(comm, 1);
      const b = await subgroup(comm, 2);
      if (comm.rank === 0) await a.send({ send: ints(guard), peer: 1 });
      else await b.recv({ recv: ints(guard), peer: 0 });
    },
  },
];

describe("a subgroup", () => {
  test.each(corpus)("$wrong", (planted) => expectPlanted(planted));

  test("a deadlock across two communicators names both, in fields and in text", async () => {
    const world = await createWorld({ backend: sim(), size: 2, name: "job" });
    const error = await world
      .run(async (comm) => {
        const a = await subgroup(comm, 1);
        const b = await subgroup(comm, 2);
        for (const sub of comm.rank === 0 ? [a, b] : [b, a]) await sub.barrier();
      })
      .catch((failed) => failed.cause as DeadlockError);
    const wait = (rank: number) => ({
      rank,
      state: "waits",
      comm: rank === 0 ? "job/1" : "job/2#2",
      collective: "barrier",
      call: 0,
      missing: [1 - rank],
    });
    expect((error as unknown as DeadlockError).waits).toEqual([wait(0), wait(1)]);
    expect(String(error)).toMatch(/"job\/1".*\n.*"job\/2#2"/);
    await expectHealthy(world);
    await world.close();
  });

  test("refuses buffers of another of its ranks, by world rank", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const buffers: unknown[] = [];
    const outcomes = await world.run(async (comm) => {
      const own = comm.alloc("int32", 2).fill(comm.rank);
      buffers[comm.rank] = own;
      const sub = await subgroup(comm, comm.rank % 2);
      const foreign = buffers[(comm.rank + 2) % 4] as typeof own;
      const refused = await sub.allReduce({ send: foreign, op: "sum" }).catch((error: Thrown) => {
        const { code, field, rank, size, comm: name } = error;
        return { code, field, rank, size, name };
      });
      await sub.allReduce({ send: own, op: "sum" });
      return [refused, Array.from(await own.toHost())];
    });
    const fault = (rank: number) => ({
      code: "ERR_COMM_ARG",
      field: "send",
      rank: Math.floor(rank / 2),
      size: 2,
      name: `world/${rank % 2}`,
    });
    expect(outcomes).toEqual([0, 1, 2, 3].map((rank) => [fault(rank), rank % 2 ? [4, 4] : [2, 2]]));
    await world.close();
  });

  test("with failing calls leaves the world's own calls alone", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const results = await world.run(async (comm) => {
      const sub = await subgroup(comm, comm.rank % 2);
      const length = comm.rank === 0 ? 1 : 2;
      const code = await codeOf(sub.allReduce({ send: new Int32Array(length), op: "sum" }));
      const data = new Int32Array(1).fill(1);
      await comm.allReduce({ send: data, op: "sum" });
      await sub.allReduce({ send: data, op: "sum" });
      return [code, data[0], sub.stats().failures, comm.stats().failures];
    });
    const odd = ["ok", 8, 0, 0];
    const even = ["ERR_COMM_MISMATCH", 8, 1, 0];
    expect(results).toEqual([even, odd, even, odd]);
    await world.close();
  });

  test("refuses calls after its close; the world and other subgroups continue", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const results = await world.run(async (comm) => {
      const sub = await subgroup(comm, 0);
      const other = await subgroup(comm, 1);
      await sub.barrier();
      await sub.close();
      await sub.close();
      return Promise.all([sub.barrier(), other.barrier(), comm.barrier()].map(codeOf));
    });
    expect(results).toEqual(new Array(3).fill(["ERR_COMM_CLOSED", "ok", "ok"]));
    await expectHealthy(world);
    await world.close();
  });

  test("that was kept refuses calls between runs, and of a closed world", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const [kept] = await world.run((comm) => subgroup(comm, 0));
    expect(await codeOf(kept?.barrier() as PromiseLike<void>)).toBe("ERR_COMM_CLOSED");
    await world.close();
    expect(await codeOf(kept?.barrier() as PromiseLike<void>)).toBe("ERR_COMM_CLOSED");
  });

  test("aborted: open and later calls of all its members fail with the reason", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const reason = new Error("enough");
    const run = world.run(async (comm) => {
      const sub = await subgroup(comm, comm.rank < 3 ? 0 : 1);
      if (comm.rank === 3) return ["away"];
      if (comm.rank === 2) {
        await new Promise((resolve) => setTimeout(resolve, 3));
        sub.abort(reason);
      }
      const facts = (op: PromiseLike<unknown>) =>
        op.then(
          () => "ok",
          ({ code, cause }: Thrown) => [code, cause],
        );
      return [await facts(sub.barrier()), await facts(sub.barrier())];
    });
    const fault = ["ERR_COMM_ABORTED", reason];
    expect(await within(2000, run)).toEqual([
      [fault, fault],
      [fault, fault],
      [fault, fault],
      ["away"],
    ]);
    await world.close();
  });

  test("aborted: other communicators continue", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const run = world.run(async (comm) => {
      const sub = await subgroup(comm, comm.rank % 2);
      if (comm.rank === 0) sub.abort("enough");
      if (comm.rank % 2 === 1) await new Promise((resolve) => setTimeout(resolve, 3));
      return codeOf(sub.barrier());
    });
    const results = await run.finally(() => world.close());
    expect(results).toEqual(["ERR_COMM_ABORTED", "ok", "ERR_COMM_ABORTED", "ok"]);
  });

  test("aborted: its onAbort hooks run, once a rank", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const reasons: unknown[] = [];
    await world.run(async (comm) => {
      const sub = await subgroup(comm, 0);
      sub.hooks.onAbort((reason) => reasons.push([sub.rank, reason]));
      await sub.barrier();
      if (comm.rank === 0) sub.abort("enough");
    });
    await world.close();
    expect(reasons.sort()).toEqual([
      [0, "enough"],
      [1, "enough"],
    ]);
  });
});

/** Lets every other rank go on before this one. */
const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 3));

describe("abort of a subgroup", () => {
  test("leaves its parent, its siblings and its own splits open; later runs too", async () => {
    const world = await createWorld({ backend: sim(), size: 4 });
    const kept: Communicator[] = [];
    const results = await world.run(async (comm) => {
      const sub = await subgroup(comm, 0);
      const sibling = await subgroup(comm, 1);
      const child = await subgroup(sub, 0);
      kept[comm.rank] = sub;
      if (comm.rank === 2) sub.abort(new Error("enough"));
      await settle();
      return Promise.all([sub, child, sibling, comm].map((each) => codeOf(each.barrier())));
    });
    expect(results).toEqual(new Array(4).fill(["ERR_COMM_ABORTED", "ok", "ok", "ok"]));
    const late = await world.run((comm) => codeOf((kept[comm.rank] as Communicator).barrier()));
    expect(late).toEqual(new Array(4).fill("ERR_COMM_ABORTED"));
    await expectHealthy(world);
    await world.close();
  });

  test("names the subgroup, its ranks and the reason", async () => {
    const world = await createWorld({ backend: sim(), size: 4, name: "job" });
    const reason = new Error("enough");
    const errors = await world.run(async (comm) => {
      const sub = await subgroup(comm, comm.rank % 2);
      if (comm.rank === 3) sub.abort(reason);
      await settle();
      return sub.barrier().catch((error: Thrown) => error);
    });
    const fault = (rank: number) => ({ comm: "job/1", size: 2, rank, cause: reason });
    expect([errors[1], errors[3]]).toMatchObject([fault(0), fault(1)]);
    expect(String(errors[1])).toMatch(/"job\/1" was aborted: enough\n.*split/s);
    await world.close();
  });

  test("fails an open call that is not awaited, and the run reports it", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const run = world.run(async (comm) => {
      const sub = await subgroup(comm, 0);
      await comm.barrier();
      if (comm.rank === 0) void sub.barrier();
      else {
        await new Promise((resolve) => setTimeout(resolve, 1));
        sub.abort("enough");
      }
    });
    const { failures } = await run.catch((error: Thrown) => error);
    expect(failures).toMatchObject([{ rank: 0, error: { code: "ERR_COMM_ABORTED" } }]);
    await expectHealthy(world);
    await world.close();
  });

  test("runs hooks once: not again for a second abort, nor for the world's", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const reasons: string[] = [];
    await world.run(async (comm) => {
      const sub = await subgroup(comm, 0);
      const other = await subgroup(comm, 1);
      for (const each of [comm, sub, other]) {
        each.hooks.onAbort((reason) => reasons.push(`${each.name} ${each.rank} ${reason}`));
      }
      await comm.barrier();
      if (comm.rank === 0) sub.abort("first");
      else sub.abort("second");
    });
    expect(reasons.sort()).toEqual(["world/0 0 first", "world/0 1 first"]);
    reasons.length = 0;
    world.abort("stop");
    world.abort("stop again");
    const all = ["world 0 stop", "world 1 stop", "world/1#2 0 stop", "world/1#2 1 stop"];
    expect(reasons.sort()).toEqual(all);
    await world.close();
  });

  test("throws a hook's error, after every rank's hooks have run", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const hookRanks: number[] = [];
    const results = await world.run(async (comm) => {
      const sub = await subgroup(comm, 0);
      sub.hooks.onAbort(() => {
        hookRanks.push(sub.rank);
        throw new Error(`hook ${sub.rank}`);
      });
      await comm.barrier();
      if (comm.rank === 1) expect(() => sub.abort()).toThrow("hook 0");
      await settle();
      return codeOf(sub.barrier());
    });
    expect(hookRanks).toEqual([0, 1, 2]);
    expect(results).toEqual(new Array(3).fill("ERR_COMM_ABORTED"));
    await world.close();
  });
});
