/** Ranks that do not come: they threw, returned early, or wait for something else. Found at once, never a hang. */

import {
  type CommError,
  type CommOp,
  type Communicator,
  createWorld,
  DeadlockError,
  type StallReport,
} from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { longTest } from "../../support/long-test.ts";
import {
  type Expected,
  expectHealthy,
  expectPlanted,
  type Planted,
  within,
} from "../../support/planted.ts";

function deadlock(ranks: readonly number[], more: object = {}): Expected {
  return { name: "DeadlockError", code: "ERR_COMM_DEADLOCK", ranks, ...more };
}

function remote(ranks: readonly number[]): Expected {
  return { name: "RemoteRankError", code: "ERR_COMM_REMOTE", ranks };
}

const corpus: readonly Planted[] = [
  {
    wrong: "one rank returns before a barrier",
    size: 4,
    program: (comm) => (comm.rank === 2 ? undefined : comm.barrier()),
    expected: (rank) => (rank === 2 ? "fine" : deadlock([2], { collective: "barrier", call: 0 })),
  },
  {
    wrong: "all but one return before an all-reduce",
    size: 4,
    program: (comm, guard) =>
      comm.rank === 1
        ? comm.allReduce({ send: guard.buffer(comm, "float32", 4), op: "sum" })
        : undefined,
    expected: (rank) => (rank === 1 ? deadlock([0, 2, 3]) : "fine"),
  },
  {
    wrong: "one rank makes one call fewer",
    size: 3,
    program: async (comm) => {
      for (let call = 0; call < (comm.rank === 0 ? 4 : 5); call++) await comm.barrier();
    },
    expected: (rank) => (rank === 0 ? "fine" : deadlock([0], { call: 4 })),
  },
  {
    wrong: "a receiver waits for what the root never sends",
    size: 3,
    program: async (comm, guard) => {
      const recv = guard.buffer(comm, "int32", 2);
      if (comm.rank > 0) await comm.broadcast({ recv, root: 0 });
    },
    expected: (rank) => (rank === 0 ? "fine" : deadlock([0], { collective: "broadcast" })),
  },
  {
    wrong: "a rank waits for the contents of a buffer whose call no other rank joins",
    size: 2,
    program: async (comm, guard) => {
      if (comm.rank === 1) return;
      const send = guard.buffer(comm, "int32", 2);
      const op = comm.allReduce({ send, op: "sum" });
      await send.toHost().finally(() => op.catch(() => undefined));
    },
    expected: (rank) => (rank === 1 ? "fine" : deadlock([1])),
  },
  {
    wrong: "several pending calls, the last ones never joined",
    size: 3,
    program: async (comm) => {
      const calls = comm.rank === 2 ? 1 : 3;
      await Promise.all(Array.from({ length: calls }, () => comm.barrier()));
    },
    expected: (rank) => (rank === 2 ? "fine" : deadlock([2], { call: 1 })),
  },
  {
    wrong: "a rank throws before its call",
    size: 4,
    program: (comm, guard) => {
      if (comm.rank === 3) throw new Error("out of data");
      return comm.allReduce({ send: guard.buffer(comm, "int8", 9), op: "sum" });
    },
    expected: (rank) => (rank === 3 ? { message: "out of data" } : remote([3])),
  },
  {
    wrong: "a rank throws after others have waited for a while",
    size: 3,
    program: async (comm) => {
      if (comm.rank > 0) return comm.barrier();
      await new Promise((resolve) => setTimeout(resolve, 5));
      throw new Error("late");
    },
    expected: (rank) => (rank === 0 ? { message: "late" } : remote([0])),
  },
  {
    wrong: "a rank throws between two calls that the others make",
    size: 3,
    program: async (comm) => {
      await comm.barrier();
      if (comm.rank === 1) throw new Error("between");
      await comm.barrier();
    },
    expected: (rank) => (rank === 1 ? { message: "between" } : remote([1])),
  },
  {
    wrong: "every rank throws",
    size: 3,
    program: (comm) => {
      throw new Error(`rank ${comm.rank}`);
    },
    expected: (rank) => ({ message: `rank ${rank}` }),
  },
];

describe("missing ranks", () => {
  test.each(corpus)("$wrong", (planted) => expectPlanted(planted));

  test("a call that is left open and never awaited fails the run", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const run = world.run(async (comm) => {
      if (comm.rank === 0) void comm.barrier();
    });
    await expect(run).rejects.toMatchObject({
      code: "ERR_COMM_WORLD",
      ranks: [0],
      failures: [{ rank: 0, error: { code: "ERR_COMM_DEADLOCK", ranks: [1], call: 0 } }],
    });
    await expectHealthy(world);
    await world.close();
  });

  test("calls that are left open all end with the run, those beside one with a deadline too", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const open: CommOp[] = [];
    const run = world.run(async (comm) => {
      const part = await comm.split({ color: 0 });
      const other = await comm.split({ color: 0 });
      if (comm.rank === 1) return;
      open.push(part.barrier({ timeoutMs: 3 }), other.barrier({ timeoutMs: 2 }), comm.barrier());
    });
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD", ranks: [0] });
    const codes = open.map(({ error }) => (error as CommError | undefined)?.code);
    expect(codes).toEqual(["ERR_COMM_TIMEOUT", "ERR_COMM_TIMEOUT", "ERR_COMM_DEADLOCK"]);
    await expectHealthy(world);
    await world.close();
  });

  test("the thrown value is the cause, also when it is not an Error", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    for (const thrown of [new TypeError("mine"), "text", 7, undefined, null]) {
      const causes: unknown[] = [];
      const run = world.run(async (comm) => {
        if (comm.rank === 0) throw thrown;
        await comm.barrier().catch((error) => causes.push((error as CommError).cause));
      });
      await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD", ranks: [0] });
      expect(causes).toEqual([thrown]);
    }
    await expectHealthy(world);
    await world.close();
  });
});

describe("a deadlock", () => {
  test("is found while a timer lives, once the timer is gone", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    let fired = false;
    const run = world.run(async (comm) => {
      if (comm.rank === 1) return;
      setTimeout(() => {
        fired = true;
      }, 60);
      await comm.barrier().catch((error) => {
        expect(fired, "reported while the timer could still have helped").toBe(true);
        throw error;
      });
    });
    const error = await within(
      3000,
      run.catch((failed) => failed.cause),
    );
    expect(error).toBeInstanceOf(DeadlockError);
    await world.close();
  });

  test("is not reported to a rank that races a timer against the call", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const results = await world.run(async (comm) => {
      if (comm.rank === 0) return "away";
      const timer = new Promise((resolve) => setTimeout(() => resolve("timer"), 40));
      return Promise.race([comm.barrier().catch(() => "failed"), timer]);
    });
    expect(results).toEqual(["away", "timer", "timer"]);
    await expectHealthy(world);
    await world.close();
  });

  test("is not reported while a timer lives that replaced one from before the run", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    setTimeout(() => undefined, 10);
    const results = await world.run(async (comm) => {
      if (comm.rank === 0) return "away";
      const timer = new Promise((resolve) => setTimeout(() => resolve("timer"), 60));
      return Promise.race([
        comm.barrier().then(
          () => "met",
          () => "failed",
        ),
        timer,
      ]);
    });
    expect(results).toEqual(["away", "timer"]);
    await world.close();
  });

  test("names the call of every rank, in fields and in text", async () => {
    const world = await createWorld({ backend: sim(), size: 3, name: "job" });
    const error = await world
      .run((comm) => (comm.rank === 1 ? undefined : comm.barrier()))
      .catch((failed) => failed.cause as DeadlockError);
    expect((error as unknown as DeadlockError).waits).toEqual([
      { rank: 0, state: "waits", comm: "job", collective: "barrier", call: 0, missing: [1] },
      { rank: 1, state: "finished", missing: [] },
      { rank: 2, state: "waits", comm: "job", collective: "barrier", call: 0, missing: [1] },
    ]);
    expect(String(error)).toMatch(/rank 1 finished without/);
    expect(String(error)).toMatch(/rank 0 {2}waits in barrier {2}call 0 on "job" {2}for rank 1/);
    await world.close();
  });

  test("is found when a rank waits for `enqueued` of a call that no other rank joins", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const run = world.run(async (comm) => {
      if (comm.rank === 1) return "away";
      return comm.barrier().enqueued.then(
        () => "met",
        (error) => (error as CommError).code,
      );
    });
    const outcome = await within(10_000, run).finally(() => world.close());
    expect(outcome).toEqual(["ERR_COMM_DEADLOCK", "away"]);
  });

  test("is found in every one of many runs of one world", async () => {
    const world = await createWorld({ backend: sim(), size: 5 });
    for (let run = 0; run < 40; run++) {
      const away = run % 5;
      const done = world.run((comm) => (comm.rank === away ? undefined : comm.barrier()));
      await expect(within(10_000, done)).rejects.toMatchObject({
        failures: [0, 1, 2, 3].map(() => ({ error: { code: "ERR_COMM_DEADLOCK", ranks: [away] } })),
      });
    }
    await expectHealthy(world);
    await world.close();
  });
});

describe.concurrent("a stall", () => {
  interface Release {
    /** Lets every rank go. */
    give: () => void;
  }

  const stallMs = 400;
  const pause = (ms: number): Promise<void> =>
    new Promise((resolve) => setTimeout(resolve, ms).unref());

  /** The reports while a program waited for its release, which comes well after the first report. */
  async function stalls(
    program: (comm: Communicator, released: Promise<void>) => Promise<unknown>,
  ): Promise<StallReport[]> {
    const reports: StallReport[] = [];
    let noticed = (): void => undefined;
    const reported = new Promise<void>((resolve) => {
      noticed = resolve;
    });
    const onStall = (report: StallReport): void => {
      reports.push(report);
      noticed();
    };
    const world = await createWorld({ backend: sim(), size: 2, onStall, stallMs });
    const release: Release = { give: () => undefined };
    const released = new Promise<void>((resolve) => {
      release.give = resolve;
    });
    const run = world.run((comm) => program(comm, released)).catch(() => undefined);
    await Promise.race([reported, pause(15_000)]);
    await pause(3 * stallMs);
    release.give();
    await world.close();
    await within(10_000, run);
    return reports;
  }

  longTest(
    "is reported once, with the waiting ranks and the live resources, and never becomes an error",
    async () => {
      const reports = await stalls(async (comm, released) => {
        if (comm.rank === 1) return;
        const timer = setTimeout(() => undefined, 60_000);
        await Promise.race([comm.barrier().catch(() => undefined), released]);
        clearTimeout(timer);
      });
      expect(reports).toHaveLength(1);
      expect(reports[0]?.text).toMatch(
        /^stalled: rank 0 waits, and only something else can wake it\n/,
      );
      expect(reports[0]?.text).toMatch(/rank 0 {2}waits in barrier/);
      expect(reports[0]?.text).toMatch(/still alive: .*Timeout/);
      expect(reports[0]?.alive?.get("Timeout")).toBeGreaterThan(0);
    },
    30_000,
  );

  longTest(
    "is reported when a rank waits for a promise that never resolves",
    async () => {
      const reports = await stalls(async (comm, released) => {
        if (comm.rank === 1) await released;
        else await comm.barrier().catch(() => undefined);
      });
      expect(reports).toHaveLength(1);
      expect(reports[0]?.text).toMatch(
        /^stalled: rank 0 waits, and rank 1 runs without making a call\n/,
      );
      expect(reports[0]?.text).toMatch(/rank 0 {2}waits in barrier .*\n {2}rank 1 {2}runs/);
    },
    30_000,
  );

  test("with a listener that throws aborts the world, also where a hook throws too", async () => {
    const warned: string[] = [];
    const warn = vi.spyOn(process, "emitWarning").mockImplementation((text) => {
      warned.push(String(text));
    });
    onTestFinished(() => warn.mockRestore());
    for (const hook of ["fine", "throws", "rejects"]) {
      warned.length = 0;
      const world = await createWorld({
        backend: sim(),
        size: 2,
        stallMs: 5,
        onStall: ({ text }) => {
          const error = new Error(text);
          if (hook === "rejects") return Promise.reject(error) as never;
          throw error;
        },
      });
      const run = world.run(async (comm) => {
        if (hook === "throws" && comm.rank === 1) {
          comm.hooks.onAbort(() => {
            throw new Error("hook");
          });
        }
        if (comm.rank === 0) return comm.barrier();
        await new Promise((resolve) => setTimeout(resolve, 200));
      });
      const error = await within(
        3000,
        run.then(null, (failed) => failed),
      );
      const failures = error.failures.map((failure: { error: CommError }) => [
        failure.error.code,
        (failure.error.cause as Error | undefined)?.message.split(" ", 1)[0],
      ]);
      expect(failures).toEqual([["ERR_COMM_ABORTED", "stalled:"]]);
      expect(warned).toEqual(hook === "throws" ? ["Error: hook"] : []);
      await world.close();
    }
  });
});
