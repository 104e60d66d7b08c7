/**
 * Calls that ranks make again on several communicators, with memory that these share, some microtasks or turns of the event
 * loop apart. The outcome equals that of the same program with a listener on its calls, which sends every one of them the long
 * way.
 */
import fc from "fast-check";
import {
  type Backend,
  type CommError,
  type CommOp,
  type Communicator,
  createWorld,
  type WorldError,
} from "twinccl";
import { cpu, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { within } from "../support/planted.ts";
import { holds } from "../support/seed.ts";

const kinds = ["sum", "max", "broadcast", "barrier"] as const;

/** A call of the world, or of one of its splits, with one of three buffers. */
interface Call {
  readonly kind: (typeof kinds)[number];
  readonly comm: 0 | 1 | 2;
  readonly site: 0 | 1 | 2;
  readonly awaited: boolean;
}

/** The act of one rank before a call. */
interface Deed {
  readonly rank: number;
  readonly at: number;
  /** A number of microtasks, or a call that is left out. */
  readonly what: number | "turn" | "skip";
}

interface Program {
  readonly size: number;
  /** By split and rank. */
  readonly colors: readonly (readonly number[])[];
  readonly calls: readonly Call[];
  /** Number of times that the calls are made. */
  readonly rounds: number;
  readonly deeds: readonly Deed[];
  /** No rank awaits what is left when its program returns. */
  readonly leaves: boolean;
}

const call: fc.Arbitrary<Call> = fc.record({
  kind: fc.constantFrom(...kinds),
  comm: fc.constantFrom<Call["comm"]>(0, 0, 1, 2),
  site: fc.constantFrom<Call["site"]>(0, 1, 2),
  awaited: fc.boolean(),
});
const what = fc.oneof(
  { weight: 6, arbitrary: fc.nat({ max: 6 }) },
  { weight: 3, arbitrary: fc.integer({ min: 20, max: 100 }) },
  { weight: 2, arbitrary: fc.constant<Deed["what"]>("turn") },
  { weight: 1, arbitrary: fc.constant<Deed["what"]>("skip") },
);
const programs: fc.Arbitrary<Program> = fc.record({
  size: fc.integer({ min: 1, max: 4 }),
  colors: fc.array(fc.array(fc.nat({ max: 1 }), { minLength: 4, maxLength: 4 }), {
    minLength: 2,
    maxLength: 2,
  }),
  calls: fc.array(call, { minLength: 1, maxLength: 4 }),
  rounds: fc.integer({ min: 2, max: 6 }),
  deeds: fc.array(fc.record({ rank: fc.nat({ max: 3 }), at: fc.nat({ max: 23 }), what }), {
    maxLength: 4,
  }),
  leaves: fc.boolean(),
});

/** One rank's part; gives what its buffers hold at the end, and its times. */
async function rankOf(
  world: Communicator,
  program: Program,
  made: CommOp[],
  isHeard: boolean,
): Promise<unknown[]> {
  const { colors, calls, rounds, deeds, leaves } = program;
  const { rank } = world;
  const comms = [world];
  for (const ofRanks of colors) comms.push(await world.split({ color: ofRanks[rank] as number }));
  if (isHeard) for (const comm of comms) comm.hooks.before(() => undefined);
  const buffers = [1, 2, 3].map((site) => world.alloc("int32", 2).fill(10 * rank + site));
  const make = ({ kind, comm: nth, site }: Call): CommOp => {
    const comm = comms[nth] as Communicator;
    const [send, recv] = [buffers[site]!, buffers[(site + 1) % 3]!];
    if (kind === "barrier") return comm.barrier();
    if (kind === "broadcast") return comm.broadcast({ recv: send, root: comm.size - 1 });
    return comm.allReduce({ send, recv, op: kind });
  };
  for (let at = 0; at < rounds * calls.length; at++) {
    const each = calls[at % calls.length] as Call;
    let skips = false;
    for (const { what } of deeds.filter((deed) => deed.at === at && deed.rank === rank)) {
      if (what === "skip") skips = true;
      else if (what === "turn") await new Promise((resolve) => setImmediate(resolve));
      else for (let hop = 0; hop < what; hop++) await null;
    }
    if (skips) continue;
    const op = make(each);
    made.push(op);
    if (each.awaited) await op;
  }
  if (!leaves) await Promise.all(made);
  const held = await Promise.all(buffers.map((buffer) => buffer.toHost()));
  return [held.map(String), world.stats()];
}

const textOf = (error: unknown): string => {
  const { code, ranks, collective } = error as CommError;
  return [code, ranks, collective].join(" ");
};

/**
 * The state of an operation, with its number. Where ends come by turns of the event loop, a rank makes a call before or after others
 * fail, in two runs of one path too: it fails with a number or without one.
 */
const stateOf = ({ call, status }: CommOp, hasTurns: boolean): string =>
  hasTurns && status === "failed" ? status : `${call} ${status}`;

/** The outcome of a run, and of the operations of each rank. */
async function outcome(
  program: Program,
  backend: Backend,
  isHeard: boolean,
  hasTurns: boolean,
): Promise<unknown> {
  const world = await createWorld({ backend, size: program.size });
  const made: CommOp[][] = [];
  const running = world.run((comm) => {
    const own: CommOp[] = [];
    made[comm.rank] = own;
    return rankOf(comm, program, own, isHeard);
  });
  const found = await within(5000, running).catch((error: WorldError) => textOf(error.cause));
  const states = made.map((ops) => ops.map((op) => stateOf(op, hasTurns)));
  await within(5000, world.close()).catch(() => undefined);
  return { found, states };
}

const promises = (): Backend => {
  const now = cpu();
  return sim({ executor: { ...now, execute: async (work) => now.execute(work) } });
};

describe.each([
  ["on the simulation", () => sim(), false, 400],
  ["on the simulation with an executor of promises", promises, false, 300],
  ["on fake GPUs", () => fakeGpus().backend(), true, 300],
] as const)("%s", (_, open, hasTurns, cases) => {
  test("repeated calls of several communicators leave what calls made for the first time leave", async () => {
    await holds(
      programs,
      async (program) => {
        const [quick, long] = [open(), open()];
        const found = await outcome(program, quick, false, hasTurns);
        expect(found).toEqual(await outcome(program, long, true, hasTurns));
      },
      cases,
    );
  });
});
