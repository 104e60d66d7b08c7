/** Deadlines in real time: the late call, the ranks that its error names, and the fate of the other calls. */
import { type Communicator, createWorld, type World } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import { Ledger } from "../../../../src/api/ledger/ledger.ts";
import { LivingTimers } from "../../../support/living-timers.ts";
import { within } from "../../../support/planted.ts";
import { quickTime } from "../../../support/quick-time.ts";
import { watchRepeats } from "../../../support/watched-repeats.ts";
import { cleanGpus, inWorld, turns } from "./gpus.ts";

quickTime();

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

interface Outcome {
  readonly code: string;
  readonly afterMs: number;
  readonly call?: number;
  readonly ranks?: readonly number[];
  readonly message?: string;
}

/** The outcome of a call, and its time. */
async function outcome(call: () => PromiseLike<unknown>): Promise<Outcome> {
  const startMs = performance.now();
  return call().then(
    () => ({ code: "ok", afterMs: performance.now() - startMs }),
    ({ code, call, ranks, message }: Thrown) => {
      return { code, call, ranks, message, afterMs: performance.now() - startMs };
    },
  );
}

const codes = (outcomes: readonly Outcome[]): string[] => outcomes.map(({ code }) => code);

/** Lengths of the deadlines' timers; those that poll GPUs are shorter, those that bound their end longer. */
const deadlines = [20, 5000] as const;

describe("repeated calls with a deadline", () => {
  test.each([
    ["of the session", 5000, {}],
    ["of their own", undefined, { timeoutMs: 5000 }],
    ["of their own beside the session's", 4000, { timeoutMs: 5000 }],
  ])("are submitted without a place in the queue: %s", async (_, timeoutMs, options) => {
    const timers = new LivingTimers();
    const gpus = cleanGpus({ ...(timeoutMs && { timeoutMs }) });
    await inWorld(gpus, 1, async (world) => {
      const known = watchRepeats(gpus.sessions[0]!).numbers;
      const posted = vi.spyOn(Ledger.prototype, "post");
      await world.run(async (comm) => {
        const send = comm.alloc("int32", 3).fill(2);
        for (let call = 0; call < 20; call++) {
          void comm.allReduce({ send, op: "sum", ...options });
          if (call % 5 === 0) await comm.allReduce({ send, op: "sum", ...options });
        }
        await comm.allReduce({ send, op: "sum", ...options });
      });
      expect(posted).toHaveBeenCalledTimes(1);
      posted.mockRestore();
      expect(known).toHaveLength(24);
      expect(timers.count(...deadlines)).toBe(0);
    });
  });

  test("use their own deadline rather than the session's", async () => {
    for (const [timeoutMs, own] of [
      [40, 5000],
      [5000, 40],
    ] as const) {
      const gpus = cleanGpus({ timeoutMs });
      const world = await createWorld({ backend: gpus.backend(), size: 1 });
      const [code] = await world.run(async (comm) => {
        const call = () => comm.barrier({ timeoutMs: own });
        for (let before = 0; before < 3; before++) await call();
        gpus.machine.hold();
        const late = outcome(call);
        // Longer than the session's deadline, which must not count.
        if (own > timeoutMs) await new Promise((resolve) => setTimeout(resolve, 100));
        else await late;
        gpus.machine.release();
        return (await late).code;
      });
      expect(code).toBe(own === 40 ? "ERR_COMM_TIMEOUT" : "ok");
      await world.close();
    }
  });

  test("fail at the first one's deadline, by name, and the others with it", async () => {
    const timers = new LivingTimers();
    const gpus = cleanGpus({ timeoutMs: 60 });
    const world = await createWorld({ backend: gpus.backend(), size: 1 });
    const known = watchRepeats(gpus.sessions[0]!).numbers;
    const outcomes = await world.run(async (comm) => {
      const send = comm.alloc("int32", 3);
      for (let call = 0; call < 3; call++) await comm.allReduce({ send, op: "sum" });
      gpus.machine.hold();
      const call = () => outcome(() => comm.allReduce({ send, op: "sum" }));
      return Promise.all(Array.from({ length: 3000 }, call));
    });
    const [first, ...others] = outcomes[0] as Outcome[];
    expect(known.length).toBeGreaterThan(3000);
    expect(first).toMatchObject({ code: "ERR_COMM_TIMEOUT", call: 3, ranks: [] });
    expect(first?.message).toMatch(/^allReduce: call 3 on "world" was not done within 60 ms: all/);
    expect(first?.afterMs).toBeGreaterThanOrEqual(60);
    expect(new Set(codes(others))).toEqual(new Set(["ERR_COMM_ABORTED"]));
    expect(timers.count(...deadlines)).toBe(0);
    gpus.machine.release();
    await world.close();
  });

  test("have a deadline counted from each call, not from the first", async () => {
    const timers = new LivingTimers();
    const gpus = cleanGpus({ timeoutMs: 400 });
    await inWorld(gpus, 1, async (world) => {
      await world.run(async (comm) => {
        const send = comm.alloc("int32", 3);
        const startMs = performance.now();
        while (performance.now() - startMs < 900) {
          await comm.allReduce({ send, op: "sum" });
          await new Promise((resolve) => setTimeout(resolve, 7));
        }
      });
      expect(timers.count(...deadlines)).toBe(0);
    });
  });
});

describe("mixed deadlines", () => {
  test("abort at the earliest deadline, whichever rank called first", async () => {
    for (const timeoutsMs of [
      [40_000, 40, 20_000],
      [20_000, 40_000, 40],
      [40, 20_000, 40_000],
    ]) {
      const gpus = cleanGpus();
      const world = await createWorld({ backend: gpus.backend(), size: 1 });
      const [outcomes] = await within(
        30_000,
        world.run(async (comm) => {
          const send = comm.alloc("int32", 3);
          gpus.machine.hold();
          return Promise.all(
            timeoutsMs.map((timeoutMs) =>
              outcome(() => comm.allReduce({ send, op: "sum", timeoutMs })),
            ),
          );
        }),
      );
      gpus.machine.release();
      await world.close();
      const late = timeoutsMs.indexOf(40);
      expect(codes(outcomes as Outcome[])).toEqual(
        timeoutsMs.map((_, call) => (call === late ? "ERR_COMM_TIMEOUT" : "ERR_COMM_ABORTED")),
      );
      expect(outcomes?.[late]?.afterMs).toBeGreaterThanOrEqual(40);
      expect(outcomes?.[late]?.afterMs).toBeLessThan(19_000);
    }
  });

  test("end a call that is late after a longer one was done, and a call made after both", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const results = await within(
        30_000,
        world.run(async (comm) => {
          await comm.barrier({ timeoutMs: 3000 });
          await comm.barrier({ timeoutMs: 100 });
          if (comm.rank === 1) return undefined;
          return outcome(() => comm.barrier({ timeoutMs: 150 }));
        }),
      ).catch(({ cause }: Thrown) => [cause]);
      const late = results[0] as Outcome;
      expect(late).toMatchObject({ code: "ERR_COMM_TIMEOUT", call: 2, ranks: [1] });
      expect(late.afterMs).toBeGreaterThanOrEqual(150);
    });
  });
});

describe("a late call", () => {
  test("that was submitted names no missing rank because of a later call", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    const [first] = await within(
      30_000,
      world.run(async (comm) => {
        gpus.machine.hold();
        const op = outcome(() => comm.barrier(comm.rank === 0 ? { timeoutMs: 50 } : {}));
        if (comm.rank === 0) void comm.barrier().catch(() => undefined);
        return op;
      }),
    );
    gpus.machine.release();
    await world.close();
    expect(first).toMatchObject({ code: "ERR_COMM_TIMEOUT", call: 0, ranks: [] });
  });

  test("is a message without a receiver, after any earlier calls", async () => {
    const gpus = cleanGpus();
    // Without a timer that lives until then, the wait would be a deadlock before the deadline.
    let end = (): void => undefined;
    const alive = (resolve: () => void): void => {
      const timer = setTimeout(resolve, 25_000);
      end = () => {
        clearTimeout(timer);
        resolve();
      };
    };
    await inWorld(gpus, 2, async (world) => {
      const [late] = await within(
        30_000,
        world.run(async (comm) => {
          const data = comm.alloc("int8", 4);
          const recv = comm.alloc("int8", 4);
          const peer = 1 - comm.rank;
          await comm.sendRecv({ send: data, recv, to: peer, from: peer, timeoutMs: 20_000 });
          if (comm.rank === 1) return new Promise<void>((resolve) => alive(resolve));
          const late = await outcome(() => comm.send({ send: data, peer, timeoutMs: 40 }));
          end();
          return late;
        }),
      );
      expect(late).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
      expect((late as Outcome).afterMs).toBeGreaterThanOrEqual(40);
      expect((late as Outcome).afterMs).toBeLessThan(20_000);
    });
  });

  test("of a split's communicator leaves the others and their deadlines alone", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const results = await within(
        30_000,
        world.run(async (comm) => {
          const child = await comm.split({ color: 0 });
          const late =
            comm.rank === 0 && (await outcome(() => child.barrier({ timeoutMs: 40 }) as never));
          await comm.barrier({ timeoutMs: 20_000 });
          return late ? late.code : undefined;
        }),
      );
      expect(results).toEqual(["ERR_COMM_TIMEOUT", undefined]);
    });
  });
});

describe("a hanging exchange of counts", () => {
  /** Two ranks of this process in one, until the test ends. */
  const hanging = async (timeoutMs?: number) => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    const running = world.run(async (comm) => {
      const send = comm.alloc("int8", 2);
      gpus.machine.hold();
      const options = timeoutMs === undefined ? {} : { timeoutMs };
      return outcome(() => comm.allToAllv({ send, sendCounts: [1, 1], ...options }));
    });
    return { gpus, world, running };
  };

  test("ends at the call's deadline, and the run with it", async () => {
    const { gpus, world, running } = await hanging(100);
    const outcomes = await within(5_000, running);
    expect(outcomes.map(({ code }) => code)).toContain("ERR_COMM_TIMEOUT");
    expect(gpus.machine.count("abortInBackground")).toBe(2);
    gpus.machine.release();
    await world.close();
  });

  test("ends when its world is aborted", async () => {
    const { gpus, world, running } = await hanging();
    await turns();
    world.abort(new Error("enough of this"));
    const outcomes = await within(5_000, running);
    expect(outcomes.map(({ code }) => code)).toEqual(["ERR_COMM_ABORTED", "ERR_COMM_ABORTED"]);
    expect(gpus.machine.count("abortInBackground")).toBe(2);
    gpus.machine.release();
    await world.close();
  });
});

describe("no timer remains", () => {
  /** Opens a world with calls under way that have deadlines, and ends it; what came of the calls. */
  async function ended(end: (world: World, comm: Communicator) => Promise<void>) {
    const timers = new LivingTimers();
    const gpus = cleanGpus({ timeoutMs: 300 });
    const world = await createWorld({ backend: gpus.backend(), size: 1 });
    const outcomes = await world.run(async (comm) => {
      const send = comm.alloc("int32", 3);
      await comm.allReduce({ send, op: "sum" });
      gpus.machine.hold();
      const ops = [1, 2, 3].map(() => outcome(() => comm.allReduce({ send, op: "sum" })));
      ops.push(outcome(() => comm.allReduce({ send, op: "sum", timeoutMs: 200 })));
      await turns();
      expect(timers.count(...deadlines)).toBe(1);
      await end(world, comm);
      if (gpus.machine.count("abortInBackground") === 0) gpus.machine.release();
      return Promise.all(ops);
    });
    expect(timers.count(...deadlines)).toBe(0);
    gpus.machine.release();
    await new Promise((resolve) => setTimeout(resolve, 350));
    return { world, outcomes: codes(outcomes[0] as Outcome[]) };
  }

  test("after an abort", async () => {
    const { world, outcomes } = await ended(async (one) => one.abort(new Error("enough")));
    expect(outcomes).toEqual(new Array(4).fill("ERR_COMM_ABORTED"));
    await world.close();
  });

  test("after calls that are done", async () => {
    const { world, outcomes } = await ended(async () => undefined);
    expect(outcomes).toEqual(new Array(4).fill("ok"));
    expect(await world.run((comm) => comm.barrier({ timeoutMs: 100 }))).toEqual([undefined]);
    await world.close();
  });

  test("after closing, and deadlines work after a rebuild", async () => {
    const timers = new LivingTimers();
    const gpus = cleanGpus({ timeoutMs: 60 });
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    await world.run(async (comm) => {
      for (let call = 0; call < 5; call++) await comm.barrier();
    });
    const next = await world.rebuild();
    expect(timers.count(...deadlines)).toBe(0);
    const results = await next.run(async (comm) => {
      for (let call = 0; call < 5; call++) await comm.barrier();
      return comm.rank === 1 || outcome(() => comm.barrier());
    });
    expect(results[0]).toMatchObject({ code: "ERR_COMM_TIMEOUT", call: 5, ranks: [1] });
    expect((results[0] as Outcome).afterMs).toBeGreaterThanOrEqual(60);
    await next.close();
    expect(timers.count(...deadlines)).toBe(0);
  });

  test("of a timeout of Infinity", async () => {
    const timers = new LivingTimers();
    const gpus = cleanGpus({ timeoutMs: Infinity });
    await inWorld(gpus, 1, async (world) => {
      const known = watchRepeats(gpus.sessions[0]!).numbers;
      await world.run(async (comm) => {
        for (let call = 0; call < 5; call++) {
          const op = comm.barrier(call % 2 === 0 ? {} : { timeoutMs: Infinity });
          expect(timers.count(...deadlines)).toBe(0);
          await op;
        }
      });
      expect(known).toHaveLength(4);
    });
  });
});

test.each([1, 2])(
  "a call that ended during a long computation of its program is not late, among %i ranks",
  async (size) => {
    const gpus = cleanGpus();
    await inWorld(gpus, size, async (world) => {
      await world.run(async (comm) => {
        const send = comm.alloc("int32", 1).fill(1);
        for (let call = 0; call < 6; call++) {
          const op = comm.allReduce({ send, op: "max", timeoutMs: 15 });
          const untilMs = performance.now() + 20;
          while (comm.rank === size - 1 && performance.now() < untilMs);
          await op;
        }
      });
    });
  },
);
