/**
 * A seed fixes everything, and results do not depend on it.
 *
 * The same program with the same seed leaves the same trace, byte for byte; with another seed its ranks resume in
 * another order and hold the same results. What is chosen for one call does not depend on what other calls there are.
 */
import fc from "fast-check";
import { type Communicator, createWorld } from "twinccl";
import { type ScheduleName, sim, Trace } from "twinccl/sim";
import { type CallOutcome, type Program, programs, runProgram } from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { holds } from "../support/seed.ts";

const seeds = fc.integer();

interface Recorded {
  readonly outcomes: readonly CallOutcome[];
  readonly text: string;
  readonly chrome: string;
}

async function record(
  program: Program,
  seed: number,
  schedule: ScheduleName = "fair",
): Promise<Recorded> {
  const trace = new Trace();
  const { outcomes } = await runProgram(sim({ seed, schedule, trace }), program);
  return { outcomes, text: trace.toText(), chrome: JSON.stringify(trace.toChrome()) };
}

/** Ranks in the order in which they go on after each of the calls. */
async function resumeOrders(
  size: number,
  seed: number,
  calls: readonly ((comm: Communicator) => PromiseLike<unknown>)[],
): Promise<{ readonly start: number[]; readonly after: number[][] }> {
  const start: number[] = [];
  const after: number[][] = calls.map(() => []);
  const world = await createWorld({ backend: sim({ seed }), size });
  await world.run(async (comm) => {
    start.push(comm.rank);
    for (const [number, call] of calls.entries()) {
      await call(comm);
      after[number]?.push(comm.rank);
    }
  });
  await world.close();
  return { start, after };
}

const barrier = (comm: Communicator): PromiseLike<unknown> => comm.barrier();
const reduction = (comm: Communicator): PromiseLike<unknown> =>
  comm.allReduce({ send: new Float32Array(5), op: "sum" });

describe("a seed", () => {
  test("gives the same results, the same trace and the same Chrome trace every time", async () => {
    const cases = fc.record({ program: programs({ payload: "bits" }), seed: seeds });
    await holds(
      cases,
      async ({ program, seed }) => {
        const first = await record(program, seed);
        expect(first.text).not.toBe("");
        expect(await record(program, seed)).toEqual(first);
      },
      120,
    );
  });

  test("changes no result", async () => {
    const cases = fc.record({ program: programs({ payload: "bits" }), a: seeds, b: seeds });
    await holds(
      cases,
      async ({ program, a, b }) => {
        expect((await record(program, a)).outcomes).toEqual((await record(program, b)).outcomes);
      },
      120,
    );
  });

  test("gives the same trace every time, and the same results, with each schedule", async () => {
    const cases = fc.record({ program: programs({ payload: "bits" }), seed: seeds });
    await holds(
      cases,
      async ({ program, seed }) => {
        const { outcomes } = await record(program, seed);
        for (const schedule of ["random", "virtual-time"] as const) {
          const first = await record(program, seed, schedule);
          expect(await record(program, seed, schedule)).toEqual(first);
          expect(first.outcomes).toEqual(outcomes);
        }
      },
      60,
    );
  });

  test("fixes the order in which ranks start and resume", async () => {
    const calls = [barrier, reduction, barrier];
    const cases = fc.record({ size: fc.integer({ min: 1, max: 17 }), seed: seeds });
    await holds(
      cases,
      async ({ size, seed }) => {
        const orders = await resumeOrders(size, seed, calls);
        expect(await resumeOrders(size, seed, calls)).toEqual(orders);
        const everyRank = Array.from({ length: size }, (_, rank) => rank);
        for (const order of [orders.start, ...orders.after]) {
          expect([...order].sort((a, b) => a - b)).toEqual(everyRank);
        }
      },
      100,
    );
  });

  test("decides for each call by its number, not by earlier calls", async () => {
    const cases = fc.record({ size: fc.integer({ min: 2, max: 9 }), seed: seeds });
    await holds(
      cases,
      async ({ size, seed }) => {
        const some = await resumeOrders(size, seed, [barrier, reduction, barrier, reduction]);
        const others = await resumeOrders(size, seed, [reduction, reduction, reduction]);
        expect(others.start).toEqual(some.start);
        expect(others.after).toEqual(some.after.slice(0, 3));
      },
      60,
    );
  });

  test("reaches every order of four ranks, about equally often", async () => {
    const found = new Map<string, number>();
    for (let seed = 0; seed < 480; seed++) {
      const { after } = await resumeOrders(4, seed, [barrier]);
      const order = after.join();
      found.set(order, (found.get(order) ?? 0) + 1);
    }
    expect(found.size).toBe(24);
    // 20 are expected of each; a fair choice misses these bounds about once in 10^5 tests.
    expect(Math.min(...found.values())).toBeGreaterThan(3);
    expect(Math.max(...found.values())).toBeLessThan(45);
  });

  test("differs between calls, runs and sizes", async () => {
    const world = await createWorld({ backend: sim({ seed: 3 }), size: 8 });
    const starts: string[] = [];
    for (let run = 0; run < 6; run++) {
      const start: number[] = [];
      await world.run((comm) => {
        start.push(comm.rank);
      });
      starts.push(start.join());
    }
    await world.close();
    expect(new Set(starts).size).toBeGreaterThan(4);
    const { after } = await resumeOrders(8, 3, new Array(6).fill(barrier));
    expect(new Set(after.map(String)).size).toBeGreaterThan(4);
  });
});
