/**
 * Calls that several ranks of one process make again, whatever the ranks do meanwhile: they come in any order, pause in the
 * middle, give memory back, take other memory or make another call than the rest. The outcome equals that of the same
 * program with a listener on its calls, which sends every one of them the long way.
 */
import fc from "fast-check";
import { type CommError, type CommOp, type Communicator, createWorld } from "twinccl";
import { describe, expect, test } from "vitest";
import { fakeGpus, ncclError } from "../support/fake-gpus/index.ts";
import { within } from "../support/planted.ts";
import { holds } from "../support/seed.ts";
import { watchRepeats } from "../support/watched-repeats.ts";

const kinds = ["sum", "max", "broadcast", "barrier", "replay", "group"] as const;

/** A call with one of two buffers. */
interface Call {
  readonly kind: (typeof kinds)[number];
  readonly site: 0 | 1;
}

/** The act of one rank before one of its calls, in its place, or behind the last one. */
interface Deed {
  readonly rank: number;
  readonly at: number;
  readonly what: "pause" | "turn" | "dispose" | "replace" | Call;
}

/** The acts of all ranks in one turn, which they begin in the order of `first`, `first` + 1 and so on. */
interface Turn {
  readonly calls: readonly Call[];
  readonly deeds: readonly Deed[];
  readonly first: number;
  /** The index of NCCL's call that fails; 0 for none. */
  readonly failing: number;
}

interface Program {
  readonly size: number;
  readonly turns: readonly Turn[];
}

const call: fc.Arbitrary<Call> = fc.record({
  kind: fc.constantFrom(...kinds),
  site: fc.constantFrom<0 | 1>(0, 1),
});
const what = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom<Deed["what"]>("pause", "turn", "dispose", "replace") },
  { weight: 1, arbitrary: call },
);
const deed = fc.record({ rank: fc.nat({ max: 3 }), at: fc.nat({ max: 7 }), what });
const turn: fc.Arbitrary<Turn> = fc.record({
  // Loops make the same call a few times.
  calls: fc
    .array(fc.tuple(call, fc.integer({ min: 1, max: 4 })), { minLength: 1, maxLength: 3 })
    .map((runs) => runs.flatMap(([each, times]) => new Array<Call>(times).fill(each))),
  deeds: fc.array(deed, { maxLength: 3 }),
  first: fc.nat({ max: 3 }),
  failing: fc.oneof({ weight: 6, arbitrary: fc.constant(0) }, fc.integer({ min: 1, max: 12 })),
});
const programs: fc.Arbitrary<Program> = fc.record({
  size: fc.integer({ min: 1, max: 4 }),
  turns: fc.array(turn, { minLength: 1, maxLength: 5 }),
});

const textOf = (error: unknown): string => {
  const { code, ranks, collective } = error as CommError;
  return [code, ranks, collective].join(" ");
};

/** Lets all ranks go on when the last one has come, in a given order. */
class Gate {
  #waiting: (() => void)[] = [];
  #come = 0;

  pass(rank: number, size: number, first: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting[rank] = resolve;
      if (++this.#come < size) return;
      const all = this.#waiting;
      [this.#waiting, this.#come] = [[], 0];
      setImmediate(() => {
        for (let at = 0; at < size; at++) all[(first + at) % size]?.();
      });
    });
  }
}

/** One rank's part; gives what came of its calls, and what its buffers held after every turn. */
async function rankOf(
  comm: Communicator,
  { turns }: Program,
  gate: Gate,
  plan: (failing: number) => void,
): Promise<unknown[]> {
  const found: unknown[] = [];
  const fresh = () => comm.alloc("int32", 1).fill(comm.rank + 1);
  const buffers = [fresh(), fresh()];
  const recorded = fresh();
  const graph = await comm.capture(() => void comm.allReduce({ send: recorded, op: "max" }));
  /** That the calls of a turn, and their parts, were submitted. */
  let submissions: Promise<string>[] = [];
  const make = ({ kind, site }: Call): CommOp => {
    const buffer = buffers[site]!;
    if (kind === "barrier") return comm.barrier();
    if (kind === "replay") return graph.replay();
    if (kind === "group") {
      return comm.group(() => {
        const parts = [
          comm.allReduce({ send: buffer, op: "max" }),
          comm.broadcast({ recv: buffers[1 - site]!, root: 0 }),
          comm.allReduce({ send: buffer, op: "sum" }),
        ];
        submissions.push(...parts.map((part) => part.enqueued.then(() => "submitted", textOf)));
      });
    }
    if (kind === "broadcast") return comm.broadcast({ recv: buffer, root: comm.size - 1 });
    return comm.allReduce({ send: buffer, op: kind });
  };
  const repeatAll = async (): Promise<void> => {
    for (const kind of kinds) {
      for (const site of [0, 1] as const) {
        for (let times = 0; times < 2; times++) await make({ kind, site });
      }
    }
  };
  await repeatAll();
  for (const { calls, deeds, first, failing } of turns) {
    const mine = deeds.filter(({ rank }) => rank % comm.size === comm.rank);
    await gate.pass(comm.rank, comm.size, first);
    if (comm.rank === first % comm.size) plan(failing);
    const ops: CommOp[] = [];
    const ends: Promise<string>[] = [];
    const submitted: number[] = [];
    submissions = [];
    const add = (op: CommOp): void => {
      ops.push(op);
      ends.push(op.then(() => "done", textOf));
      submissions.push(op.enqueued.then(() => "submitted", textOf));
      op.enqueued.then(
        () => submitted.push(op.call),
        () => undefined,
      );
    };
    /** Does what comes before a call; gives another one that takes its place. */
    const before = async ({ what }: Deed, { kind, site }: Call): Promise<Call | undefined> => {
      // A group is several calls: a rank that makes another number of them than the rest waits for ever.
      if (typeof what === "object") {
        return (what.kind === "group") === (kind === "group") ? what : undefined;
      }
      if (what === "pause") await null;
      else if (what === "turn") await new Promise((resolve) => setImmediate(resolve));
      else if (what === "dispose") fresh().dispose();
      else {
        buffers[site]?.dispose();
        buffers[site] = fresh();
      }
      return undefined;
    };
    for (const [at, each] of calls.entries()) {
      let next = each;
      for (const deed of mine) if (deed.at === at) next = (await before(deed, each)) ?? next;
      add(make(next));
    }
    for (const deed of mine) if (deed.at >= calls.length) await before(deed, calls[0]!);
    found.push(await Promise.all(ends), await Promise.all(submissions));
    expect(submitted, "reported in their order").toEqual([...submitted].sort((a, b) => a - b));
    // What was read behind a call that failed is its error.
    const held = [...buffers, recorded].map((buffer) => buffer.toHost().then(String, textOf));
    found.push(
      ops.map((op) => op.call),
      await Promise.all(held),
      comm.stats(),
    );
  }
  return found;
}

/** The outcome of a program, and the number of calls that its session took behind another one. */
async function outcome(program: Program, isHeard: boolean) {
  const gpus = fakeGpus();
  const world = await createWorld({ backend: gpus.backend(), size: program.size });
  const gate = new Gate();
  const repeats = watchRepeats(gpus.sessions[0]!);
  const plan = (failing: number): void => {
    if (failing === 0) return;
    const planned = ncclError("allReduce", 5, "ncclInvalidUsage");
    gpus.machine.failNext("allReduce", planned, failing);
  };
  try {
    const running = world.run((comm) => {
      if (isHeard) comm.hooks.before(() => undefined);
      return rankOf(comm, program, gate, plan);
    });
    const found = await within(5000, running);
    return { found, behind: repeats.count()[1], complaints: gpus.machine.complaints };
  } finally {
    gpus.machine.release();
    await world.close();
  }
}

describe("on fake GPUs", () => {
  test("batched calls have the results of calls outside a batch", async () => {
    let [behind, all] = [0, 0];
    await holds(
      programs,
      async (program) => {
        const short = await outcome(program, false);
        const long = await outcome(program, true);
        expect(long.behind).toBe(0);
        expect({ ...short, behind: 0 }).toEqual(long);
        expect(short.complaints).toEqual([]);
        behind += short.behind;
        all++;
      },
      200,
    );
    // A case that is replayed alone may have none.
    if (all >= 100) expect(behind / all, "many calls go the short way").toBeGreaterThan(1);
  });
});
