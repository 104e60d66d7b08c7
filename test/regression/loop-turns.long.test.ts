/** Ranks that only await calls, and what else the event loop has to serve meanwhile. */
import { type Communicator, createWorld } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";

/** More calls than are made within seconds: a loop that no turn of the event loop ends fails here. */
const maxCalls = 50_000;

afterEach(() => vi.restoreAllMocks());

/** Every question how long the event loop has been at a turn finds it long. */
function hurry(): void {
  let nowMs = performance.now();
  vi.spyOn(performance, "now").mockImplementation(() => {
    nowMs += 1000;
    return nowMs;
  });
}

/** Turns of the event loop that a run of so many calls takes, on a clock on which each call takes `callMs`. */
async function turnsOf(size: number, calls: number, callMs: number): Promise<number> {
  let nowMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => nowMs);
  await using world = await createWorld({ backend: sim(), size });
  let turns = 0;
  let isOver = false;
  const count = (): void => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  await world.run(async (comm) => {
    if (comm.rank === 0) setImmediate(count);
    for (let call = 0; call < calls; call++) {
      await comm.barrier();
      if (comm.rank === 0) nowMs += callMs;
    }
    isOver = true;
  });
  return turns;
}

/** Ranks of a world that call until something happens that is begun with their first call; gives the number of calls. */
async function callsUntil(
  size: number,
  call: (comm: Communicator) => Promise<unknown>,
  begin: () => () => boolean = rings,
): Promise<number> {
  await using world = await createWorld({ backend: sim(), size });
  const [calls] = await world.run(async (comm) => {
    const flag = comm.alloc("int32", 1);
    const isOver = comm.rank === 0 ? begin() : () => false;
    for (let made = 1; made < maxCalls; made++) {
      await call(comm);
      flag.fill(isOver() ? 1 : 0);
      if (made % 16 > 0) continue;
      await comm.allReduce({ send: flag, op: "max" });
      if ((await flag.toHost())[0] === 1) return made;
    }
    return maxCalls;
  });
  return calls as number;
}

function rings(): () => boolean {
  let isOver = false;
  setTimeout(() => {
    isOver = true;
  }, 20);
  return () => isOver;
}

function aborts(): () => boolean {
  const signal = AbortSignal.timeout(20);
  return () => signal.aborted;
}

function isSignalled(): () => boolean {
  let isOver = false;
  const handler = (): void => {
    isOver = true;
  };
  process.once("SIGUSR2", handler);
  onTestFinished(() => void process.off("SIGUSR2", handler));
  process.kill(process.pid, "SIGUSR2");
  return () => isOver;
}

describe("while ranks only await calls", () => {
  test.each([
    ["a timer rings", rings],
    ["AbortSignal.timeout aborts", aborts],
    ["a signal of the system is handled", isSignalled],
  ])("%s", async (_, begin) => {
    expect(await callsUntil(2, (comm) => comm.barrier(), begin)).toBeLessThan(maxCalls);
  });

  test.each([
    ["2 ms", 8, 4000, 0.01, 16, 20],
    ["a call of 8 ranks, then 2, 4 and so on, where the code is cold", 8, 70, 5, 4, 5],
    ["4 calls of 64 ranks", 64, 110, 1, 25, 35],
  ])("the event loop has a turn after %s", async (_, size, calls, callMs, least, most) => {
    const turns = await turnsOf(size, calls, callMs);
    expect(turns).toBeGreaterThanOrEqual(least);
    expect(turns).toBeLessThanOrEqual(most);
  });

  test("an AbortSignal of the calls ends them", async () => {
    await using world = await createWorld({ backend: sim(), size: 2 });
    const results = world.run(async (comm) => {
      const signal = AbortSignal.timeout(20);
      for (let made = 0; made < maxCalls; made++) await comm.barrier({ signal });
    });
    await expect(results).rejects.toMatchObject({
      failures: [{ error: { code: "ERR_COMM_ABORTED" } }, {}],
    });
  });

  test.each([
    ["messages", passed],
    ["calls side by side", (comm: Communicator) => Promise.all([comm.barrier(), comm.barrier()])],
    ["calls issued ahead", issuedAhead()],
    ["calls of splits", async (comm: Communicator) => (await comm.split({ color: 0 })).close()],
  ])("a timer fires between %s", async (_, call) => {
    expect(await callsUntil(3, call)).toBeLessThan(maxCalls);
  });
});

/** Each call is issued before the one before it is awaited. */
function issuedAhead(): (comm: Communicator) => Promise<unknown> {
  const before: Promise<unknown>[] = [];
  return (comm) => {
    const awaited = before[comm.rank] ?? Promise.resolve();
    before[comm.rank] = comm.barrier();
    return awaited;
  };
}

async function passed(comm: Communicator): Promise<void> {
  const item = comm.alloc("int32", 1);
  const { rank, size } = comm;
  const got = rank === 0 ? undefined : comm.recv({ recv: item, peer: rank - 1 });
  await got;
  if (rank < size - 1) await comm.send({ send: item, peer: rank + 1 });
  item.dispose();
}

/** Parts of a rank that run side by side, each with calls on a communicator of its own and much else in between. */
async function sideBySide(comm: Communicator, mark: (text: string) => void): Promise<void> {
  const parts = [0, 1, 2].map(async (part) => {
    const own = await comm.split({ color: 0 });
    const data = own.alloc("float32", 1 << 15).fill(comm.rank + part);
    for (let step = 0; step < 20; step++) {
      await deep(part * 5, () => own.allReduce({ send: data, op: "sum" }));
      mark(`${part}.${comm.rank}.${step} `);
      if (comm.rank === part) comm.work(1000 * step);
      data.fill(step);
    }
  });
  const half = await comm.split({ color: comm.rank % 2 });
  for (let step = 0; step < 40; step++) {
    await Promise.all([half.barrier(), half.barrier()]);
    mark(`h.${comm.rank}.${step} `);
  }
  await Promise.all(parts);
}

/** Awaits a call through as many functions. */
async function deep(levels: number, call: () => Promise<unknown>): Promise<void> {
  if (levels > 0) await deep(levels - 1, call);
  else await call();
}

async function traced(): Promise<{ readonly marks: string; readonly trace: string }> {
  const trace = new Trace();
  await using world = await createWorld({ backend: sim({ trace, seed: 7 }), size: 4 });
  let marks = "";
  await world.run((comm) =>
    sideBySide(comm, (text) => {
      marks += text;
    }),
  );
  return { marks, trace: trace.toText() };
}

describe("a turn of the event loop between calls", () => {
  test("changes no order in which ranks resume, and no trace", async () => {
    const spy = vi.spyOn(performance, "now");
    spy.mockReturnValue(0);
    const without = await traced();
    spy.mockRestore();
    hurry();
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    const withTurns = await traced();
    isOver = true;
    expect(withTurns).toEqual(without);
    // Without them the run takes a handful of turns.
    expect(turns).toBeGreaterThan(10);
  });

  test("is not taken while a rank waits in microtasks for another rank's call", async () => {
    hurry();
    await using world = await createWorld({ backend: sim(), size: 3 });
    let isDone = false;
    await world.run(async (comm) => {
      const pair = await comm.split({ color: comm.rank === 0 ? undefined : 0 });
      if (pair === undefined) while (!isDone) await undefined;
      else for (let call = 0; call < 1000; call++) await pair.barrier();
      isDone = true;
    });
    expect(isDone).toBe(true);
  });

  test("does not count as idle for deadlock detection", async () => {
    hurry();
    await using world = await createWorld({ backend: sim(), size: 4 });
    const calls = await world.run(async (comm) => {
      const half = await comm.split({ color: comm.rank % 2 });
      for (let call = 0; call < 2000; call++) await half.barrier();
      await comm.barrier();
      return 2000;
    });
    expect(calls).toEqual([2000, 2000, 2000, 2000]);
  });
});
