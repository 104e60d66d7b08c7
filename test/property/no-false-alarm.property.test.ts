/**
 * No false alarm: a healthy program never sees a deadlock, a mismatch or any other error, whatever its ranks do
 * between their calls: sleep, yield, race calls against timers, hold several calls at once, or await them late.
 */
import fc from "fast-check";
import { type CommOp, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { within } from "../support/planted.ts";
import { holds, randomWords } from "../support/seed.ts";

/** The habits of a rank around a call. */
const habits = ["await", "timer", "immediate", "race", "later", "microtasks", "together"] as const;

type Habit = (typeof habits)[number];

interface Healthy {
  readonly size: number;
  readonly calls: readonly ("sum" | "barrier" | "broadcast" | "exchange")[];
  /** The share of calls with another habit than `await`. */
  readonly restlessness: number;
  readonly seed: number;
}

const healthy: fc.Arbitrary<Healthy> = fc.record({
  size: fc.integer({ min: 1, max: 6 }),
  calls: fc.array(
    fc.constantFrom<Healthy["calls"][number]>("sum", "barrier", "broadcast", "exchange"),
    {
      minLength: 1,
      maxLength: 5,
    },
  ),
  restlessness: fc.constantFrom(0, 1, 1, 3),
  seed: fc.integer(),
});

const sleep = (milliseconds: number): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function make(comm: Communicator, call: Healthy["calls"][number]): CommOp<unknown> {
  const { rank, size } = comm;
  if (call === "barrier") return comm.barrier();
  if (call === "sum") return comm.allReduce({ send: Int32Array.of(rank, 1), op: "sum" });
  const data = Float32Array.of(rank, rank);
  if (call === "broadcast") return comm.broadcast({ recv: data, root: size - 1 });
  const sendCounts = Array.from({ length: size }, (_, to) => (to + rank) % 2);
  const send = new Uint8Array(sendCounts.reduce((a, b) => a + b, 0));
  return comm.allToAllv({ send, sendCounts });
}

async function rankProgram(comm: Communicator, program: Healthy): Promise<number> {
  const { calls, restlessness, seed } = program;
  const next = randomWords(seed ^ Math.imul(comm.rank + 1, 0x2545f491));
  const pending: CommOp<unknown>[] = [];
  let done = 0;
  for (const call of calls) {
    const habit: Habit = next() % 8 < restlessness ? (habits[next() % 7] as Habit) : "await";
    if (habit === "timer") await sleep(next() % 3);
    if (habit === "immediate") await turn();
    const op = make(comm, call);
    if (habit === "race") {
      await Promise.race([op, sleep(next() % 3), turn()]);
      await turn();
    }
    if (habit === "microtasks") for (let i = 0; i < 7; i++) await undefined;
    if (habit === "later" || habit === "together") pending.push(op);
    if (habit === "together") {
      await Promise.all(pending);
      await sleep(0);
    } else if (habit !== "later") await op;
    done += 1;
  }
  await Promise.all(pending);
  return done;
}

async function runs(program: Healthy): Promise<void> {
  const onStall = (): never => {
    throw new Error("a stall was reported");
  };
  const backend = sim({ seed: program.seed });
  const world = await createWorld({ backend, size: program.size, onStall });
  for (let run = 0; run < 2; run++) {
    const done = await within(
      5000,
      world.run((comm) => rankProgram(comm, program)),
    );
    expect(done).toEqual(new Array(program.size).fill(program.calls.length));
  }
  await world.close();
}

describe("a healthy program", () => {
  test("never sees an error: 2,000 of them, twice each", async () => {
    await holds(healthy, runs, 2000);
  });

  test("may keep a rank busy for a while with nothing but immediates", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    await world.run(async (comm) => {
      if (comm.rank === 1) for (let i = 0; i < 300; i++) await turn();
      await comm.barrier();
      if (comm.rank === 2) await sleep(30);
      await comm.barrier();
    });
    await world.close();
  });

  test("may be woken by input from outside of the process", async () => {
    const { execFile } = await import("node:child_process");
    const world = await createWorld({ backend: sim(), size: 2 });
    const printed = await world.run(async (comm) => {
      if (comm.rank === 0) {
        await comm.barrier();
        return "";
      }
      const text = await new Promise<string>((resolve) => {
        execFile(process.execPath, ["-p", "40 + 2"], (_error, stdout) => resolve(stdout.trim()));
      });
      await comm.barrier();
      return text;
    });
    expect(printed).toEqual(["", "42"]);
    await world.close();
  });
});
