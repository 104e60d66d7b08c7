/**
 * The order of calls over several communicators: a program with one order on all ranks is healthy, and one swap of two calls on a
 * rank is found where ranks would wait for each other for ever.
 *
 * The oracle executes the streams of all ranks in plain loops: a call is done when it is at the head of all streams that it is in.
 */
import fc from "fast-check";
import { type CallOrderError, type Communicator, createWorld, type DeviceBuffer } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { within } from "../support/planted.ts";
import { holds, randomWords, runsOf } from "../support/seed.ts";

const kinds = ["sum", "barrier", "broadcast", "pair", "ring", "split", "replay"] as const;

interface Step {
  readonly comm: number;
  readonly kind: (typeof kinds)[number];
  readonly root: number;
}

interface Comm {
  /** World ranks, ascending. */
  readonly ranks: readonly number[];
  readonly isOwn: boolean;
}

interface Plan {
  readonly size: number;
  readonly comms: readonly Comm[];
  readonly steps: readonly Step[];
  /** The steps of each rank, in the order in which it makes them. */
  readonly made: readonly (readonly number[])[];
  /** No rank awaits a call from this step on. */
  readonly freeFrom: number;
  readonly seed: number;
}

const drawn = fc.record({
  size: fc.integer({ min: 2, max: 6 }),
  comms: fc.array(fc.record({ members: fc.nat({ max: 63 }), own: fc.nat({ max: 3 }) }), {
    minLength: 2,
    maxLength: 4,
  }),
  steps: fc.array(
    fc.record({
      comm: fc.nat({ max: 11 }),
      kind: fc.constantFrom(...kinds),
      root: fc.nat({ max: 59 }),
    }),
    { minLength: 2, maxLength: 10 },
  ),
  seed: fc.integer(),
});

type Drawn = typeof drawn extends fc.Arbitrary<infer T> ? T : never;

function planOf({ size, comms: shapes, steps: given, seed }: Drawn, mayOwn: boolean): Plan {
  const world = Array.from({ length: size }, (_, rank) => rank);
  const comms = shapes.map(({ members, own }): Comm => {
    const ranks = world.filter((rank) => (members >> rank) & 1);
    return { ranks: ranks.length < 2 ? world : ranks, isOwn: mayOwn && own === 0 };
  });
  const steps = given.map((step): Step => ({ ...step, comm: step.comm % comms.length }));
  const made = world.map((rank) => {
    const takesPart = (step: Step): boolean => partsOf({ comms }, step).includes(rank);
    return steps.flatMap((step, at) => (takesPart(step) ? [at] : []));
  });
  return { size, comms, steps, made, seed, freeFrom: steps.length };
}

/** The ends of a message. */
function endsOf({ comms }: Pick<Plan, "comms">, { comm, root }: Step): [from: number, to: number] {
  const { ranks } = comms[comm] as Comm;
  const from = root % ranks.length;
  const to = (from + 1 + (root % (ranks.length - 1))) % ranks.length;
  return [ranks[from] as number, ranks[to] as number];
}

/** The world ranks that make a step. */
function partsOf(plan: Pick<Plan, "comms">, step: Step): readonly number[] {
  return step.kind === "pair" ? endsOf(plan, step) : (plan.comms[step.comm] as Comm).ranks;
}

// The oracle.

/** Transfers of a step of messages; `undefined` for a collective call. */
function transfersOf(plan: Plan, step: Step): readonly (readonly [number, number])[] | undefined {
  if (step.kind === "pair") return [endsOf(plan, step)];
  if (step.kind !== "ring") return undefined;
  const { ranks } = plan.comms[step.comm] as Comm;
  return ranks.map((from, at) => [from, ranks[(at + 1) % ranks.length] as number]);
}

interface Executed {
  /** Steps that are not done on all their ranks. */
  readonly stuck: readonly number[];
  /** By rank and stream: the register of its sums, and the last block from its neighbour. */
  readonly registers: ReadonlyMap<string, number>;
}

/** Streams of a rank: 0, and one for each communicator with streams of its own. */
function streamOf({ comms }: Plan, { comm }: Step): number {
  return comms[comm]?.isOwn === true ? comm + 1 : 0;
}

function initial(rank: number, stream: number, isSpare = false): number {
  return isSpare ? -1 : 10 * rank + stream + 1;
}

/** Executes the steps that `isIn` gives, in the streams of all ranks, until none is done any more. */
function executed(plan: Plan, isIn: (step: number) => boolean = () => true): Executed {
  const { steps, made } = plan;
  const queues = new Map<string, number[]>();
  for (const [rank, mine] of made.entries()) {
    for (const at of mine.filter(isIn)) {
      const key = `${rank}/${streamOf(plan, steps[at] as Step)}`;
      queues.set(key, [...(queues.get(key) ?? []), at]);
    }
  }
  const registers = new Map<string, number>();
  const moved = new Set<string>();
  const step = (at: number): boolean => {
    const each = steps[at] as Step;
    const stream = streamOf(plan, each);
    const key = (rank: number, spare = false): string => `${rank}/${stream}${spare ? "s" : ""}`;
    const value = (rank: number): number => registers.get(key(rank)) ?? initial(rank, stream);
    const isHead = (rank: number): boolean => queues.get(key(rank))?.[0] === at;
    const transfers = transfersOf(plan, each);
    let hasChanged = false;
    if (transfers === undefined) {
      const ranks = partsOf(plan, each);
      if (!ranks.every(isHead)) return false;
      const total = ranks.reduce((sum, rank) => (sum + value(rank)) | 0, 0);
      const rooted = value(ranks[each.root % ranks.length] as number);
      const isSum = each.kind === "sum" || each.kind === "replay";
      for (const rank of ranks) {
        if (isSum) registers.set(key(rank), total);
        if (each.kind === "broadcast") registers.set(key(rank), rooted);
        queues.get(key(rank))?.shift();
      }
      return true;
    }
    const idOf = (from: number, to: number): string => `${at}:${from}>${to}`;
    for (const [from, to] of transfers) {
      if (moved.has(idOf(from, to)) || !isHead(from) || !isHead(to)) continue;
      moved.add(idOf(from, to));
      registers.set(key(to, each.kind === "ring"), value(from));
      hasChanged = true;
    }
    for (const rank of partsOf(plan, each)) {
      const own = transfers.filter((ends) => ends.includes(rank));
      if (isHead(rank) && own.every(([from, to]) => moved.has(idOf(from, to)))) {
        queues.get(key(rank))?.shift();
        hasChanged = true;
      }
    }
    return hasChanged;
  };
  while (steps.some((_, at) => step(at)));
  const stuck = [...new Set([...queues.values()].flat())].sort((a, b) => a - b);
  return { stuck, registers };
}

// The run.

interface RankRun {
  /** By step: `done`, or the error. */
  readonly outcomes: ReadonlyMap<number, "done" | CallOrderError>;
  readonly registers: ReadonlyMap<string, number>;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A rank's communicators, and for each its register, its spare one, and a recording of a sum. */
interface Part {
  readonly comm: Communicator;
  readonly value: DeviceBuffer<"int32">;
  readonly spare: DeviceBuffer<"int32">;
  readonly replay: (() => PromiseLike<unknown>) | undefined;
}

async function partsOfRank(world: Communicator, plan: Plan): Promise<(Part | undefined)[]> {
  const { rank } = world;
  const shared = { value: world.alloc("int32", 1), spare: world.alloc("int32", 1) };
  shared.value.fill(initial(rank, 0));
  shared.spare.fill(initial(rank, 0, true));
  const parts: (Part | undefined)[] = [];
  for (const [at, { ranks, isOwn }] of plan.comms.entries()) {
    const color = ranks.includes(rank) ? 0 : undefined;
    const comm = await world.split({ color, ...(isOwn ? { stream: "own" } : {}) });
    if (comm === undefined) {
      parts.push(undefined);
      continue;
    }
    const own = isOwn ? { value: world.alloc("int32", 1), spare: world.alloc("int32", 1) } : shared;
    if (isOwn) own.value.fill(initial(rank, at + 1));
    if (isOwn) own.spare.fill(initial(rank, at + 1, true));
    const isReplayed = plan.steps.some((step) => step.comm === at && step.kind === "replay");
    const graph = isReplayed
      ? await comm.capture(() => void comm.allReduce({ send: own.value, op: "sum" }))
      : undefined;
    parts.push({ comm, ...own, replay: graph && (() => graph.replay()) });
  }
  return parts;
}

function make(plan: Plan, { comm, value, spare, replay }: Part, step: Step): PromiseLike<unknown> {
  const { rank, size } = comm;
  const { ranks } = plan.comms[step.comm] as Comm;
  if (step.kind === "sum") return comm.allReduce({ send: value, op: "sum" });
  if (step.kind === "barrier") return comm.barrier();
  if (step.kind === "broadcast") return comm.broadcast({ recv: value, root: step.root % size });
  if (step.kind === "split") return comm.split({ color: rank % 2 });
  if (step.kind === "replay") return (replay as () => PromiseLike<unknown>)();
  if (step.kind === "ring") {
    return comm.group(() => {
      void comm.send({ send: value, peer: (rank + 1) % size });
      void comm.recv({ recv: spare, peer: (rank + size - 1) % size });
    });
  }
  const [from, to] = endsOf(plan, step).map((each) => ranks.indexOf(each)) as [number, number];
  return rank === from
    ? comm.send({ send: value, peer: to })
    : comm.recv({ recv: value, peer: from });
}

async function runRank(world: Communicator, plan: Plan): Promise<RankRun> {
  const parts = await partsOfRank(world, plan);
  await world.barrier();
  const next = randomWords(plan.seed ^ Math.imul(world.rank + 1, 0x2545f491));
  const outcomes = new Map<number, "done" | CallOrderError>();
  const open: Promise<void>[] = [];
  // Some ranks rush ahead, and others lag behind.
  const haste = next() % 4;
  for (const at of plan.made[world.rank] as readonly number[]) {
    const step = plan.steps[at] as Step;
    if (next() % 4 > haste) for (let i = next() % 3; i >= 0; i--) await turn();
    const op = make(plan, parts[step.comm] as Part, step);
    const done = Promise.resolve(op).then(
      () => void outcomes.set(at, "done"),
      (error) => void outcomes.set(at, error),
    );
    open.push(done);
    const habit = next() % 4;
    if (at >= plan.freeFrom) continue;
    if (habit === 0) await done;
    if (habit === 1) await Promise.all(open);
  }
  await Promise.all(open);
  const registers = new Map<string, number>();
  const entries = parts.flatMap((part, at) => (part === undefined ? [] : [{ part, at }]));
  await world.barrier();
  for (const { part, at } of entries) {
    const stream = plan.comms[at]?.isOwn === true ? at + 1 : 0;
    // Reading a buffer rejects where its last call failed.
    for (const [buffer, key] of [
      [part.value, `${world.rank}/${stream}`],
      [part.spare, `${world.rank}/${stream}s`],
    ] as const) {
      registers.set(key, await contentOf(world, buffer));
    }
  }
  return { outcomes, registers };
}

async function contentOf(world: Communicator, buffer: DeviceBuffer<"int32">): Promise<number> {
  const copy = world.alloc("int32", 1);
  await world.sendRecv({ send: buffer, recv: copy, to: world.rank, from: world.rank });
  return ((await copy.toHost()) as Int32Array)[0] as number;
}

const warnings: string[] = [];

function watchWarnings(): void {
  const spy = vi.spyOn(process, "emitWarning").mockImplementation((text, kind) => {
    warnings.push(`${String(kind)}: ${String(text)}`);
  });
  onTestFinished(() => spy.mockRestore());
}

async function run(plan: Plan, strict = false): Promise<RankRun[]> {
  warnings.length = 0;
  const world = await createWorld({ backend: sim({ seed: plan.seed, strict }), size: plan.size });
  try {
    return await within(
      10_000,
      world.run((comm) => runRank(comm, plan)),
    );
  } finally {
    await world.close();
  }
}

function expectRegisters(plan: Plan, ranks: readonly RankRun[], { registers }: Executed): void {
  const wrong: object[] = [];
  for (const { registers: found } of ranks) {
    for (const [key, value] of found) {
      const [rank, stream] = key.split("/") as [string, string];
      const isSpare = stream.endsWith("s");
      const first = initial(Number(rank), Number.parseInt(stream, 10), isSpare);
      const expected = registers.get(key) ?? first;
      if (value !== expected) wrong.push({ key, value, expected });
    }
  }
  expect(wrong).toEqual([]);
  expect(plan.made.every((mine, rank) => ranks[rank]?.outcomes.size === mine.length)).toBe(true);
}

describe("calls of up to four communicators", () => {
  test("in one order on all ranks are done, in that order, without a warning", async () => {
    watchWarnings();
    const seen = { programs: 0, calls: 0, own: 0 };
    await holds(
      drawn,
      async (given) => {
        const plan = planOf(given, true);
        const expected = executed(plan);
        expect(expected.stuck).toEqual([]);
        const ranks = await run(plan, plan.seed % 3 === 0);
        const outcomes = ranks.flatMap((each) => [...each.outcomes.values()]);
        expect(outcomes.filter((outcome) => outcome !== "done")).toEqual([]);
        expectRegisters(plan, ranks, expected);
        expect(warnings).toEqual([]);
        seen.programs++;
        seen.calls += plan.made.flat().length;
        seen.own += plan.comms.filter(({ isOwn }) => isOwn).length;
      },
      3_000,
    );
    process.stderr.write(`healthy: ${JSON.stringify(seen)}\n`);
  }, 600_000);

  test("with two of them swapped on one rank are an inversion where ranks would hang", async () => {
    watchWarnings();
    const seen = { inversions: 0, none: 0, overThree: 0 };
    await holds(
      drawn,
      async (given) => {
        const planted = plant(planOf(given, false));
        if (planted === undefined) return;
        const { plan, rank, first, second } = planted;
        const { stuck } = executed(plan);
        const ranks = await run(plan);
        const errors = ranks.flatMap(({ outcomes }) =>
          [...outcomes.values()].filter((each) => each !== "done"),
        );
        expect(warnings).toEqual([]);
        if (stuck.length === 0) {
          expect(errors).toEqual([]);
          expectRegisters(plan, ranks, executed(plan));
          seen.none++;
          return;
        }
        seen.inversions++;
        expectInverted(plan, { rank, first, second }, ranks, errors);
        if (commsIn(errors[0] as CallOrderError).size > 2) seen.overThree++;
      },
      600,
    );
    process.stderr.write(`planted: ${JSON.stringify(seen)}\n`);
    expect(seen.inversions).toBeGreaterThan(runsOf(600) / 4);
  }, 600_000);
});

interface Swap {
  readonly rank: number;
  /** The steps that it makes the other way round. */
  readonly first: number;
  readonly second: number;
}

/** Swaps two neighbouring steps of one rank, of different communicators with two ranks in common; `undefined`: there are none. */
function plant(plan: Plan): (Swap & { readonly plan: Plan }) | undefined {
  const { comms, steps, made, seed } = plan;
  const found: Swap[] = [];
  for (const [rank, mine] of made.entries()) {
    for (const [at, second] of mine.entries()) {
      const first = mine[at - 1];
      if (first === undefined) continue;
      const [a, b] = [steps[first]?.comm as number, steps[second]?.comm as number];
      const both = comms[a]?.ranks.filter((each) => comms[b]?.ranks.includes(each)) ?? [];
      if (a !== b && both.length > 1) found.push({ rank, first, second });
    }
  }
  if (found.length === 0) return undefined;
  const swap = found[randomWords(seed)() % found.length] as Swap;
  const swapped = made.map((mine, rank) => {
    if (rank !== swap.rank) return mine;
    const to = new Map([
      [swap.first, swap.second],
      [swap.second, swap.first],
    ]);
    return mine.map((at) => to.get(at) ?? at);
  });
  return { ...swap, plan: { ...plan, made: swapped, freeFrom: swap.first } };
}

function commsIn({ orders }: CallOrderError): Set<string> {
  return new Set(orders.flatMap(({ calls }) => calls.map(({ comm }) => comm)));
}

/** Names of communicators, as splits of the world number them. */
function nameOf(at: number): string {
  return at === 0 ? "world/0" : `world/0#${at + 1}`;
}

function expectInverted(
  plan: Plan,
  { rank, first, second }: Swap,
  ranks: readonly RankRun[],
  errors: readonly CallOrderError[],
): void {
  const ended = commsIn(errors[0] as CallOrderError);
  const stepComm = (at: number): string => nameOf(plan.steps[at]?.comm as number);
  expect(ended).toContain(stepComm(first));
  expect(ended).toContain(stepComm(second));
  for (const error of errors) {
    expect(error.code).toBe("ERR_COMM_ORDER");
    expect(error.orders).toEqual(errors[0]?.orders);
    expect(error.ranks).toContain(rank);
  }
  const { orders } = errors[0] as CallOrderError;
  expect(orders.length).toBeGreaterThan(1);
  for (const each of orders) {
    const found = each.calls.map(({ comm }) => comm);
    const own = (plan.made[each.rank] as readonly number[]).map(stepComm);
    for (const comm of found) expect(own).toContain(comm);
    if (each.rank !== rank) continue;
    expect(found.indexOf(stepComm(second))).toBeGreaterThanOrEqual(0);
    expect(found.indexOf(stepComm(second))).toBeLessThan(found.lastIndexOf(stepComm(first)));
  }
  expect(orders.map((each) => each.rank)).toContain(rank);
  const failed = new Set<number>();
  for (const { outcomes } of ranks) {
    for (const [at, outcome] of outcomes) {
      const isEnded = ended.has(stepComm(at));
      const isSwapped = at === first || at === second;
      if (isSwapped && plan.steps[at]?.kind !== "ring") expect(outcome).not.toBe("done");
      if (!isEnded) expect([at, outcome]).toEqual([at, "done"]);
      if (outcome !== "done") failed.add(at);
    }
  }
  // What is done is what the calls without the failed ones give.
  // Messages of a group move one by one.
  const isWhole = [...failed].every(
    (at) =>
      plan.steps[at]?.kind !== "ring" && ranks.every(({ outcomes }) => outcomes.get(at) !== "done"),
  );
  if (isWhole)
    expectRegisters(
      plan,
      ranks,
      executed(plan, (at) => !failed.has(at)),
    );
}
