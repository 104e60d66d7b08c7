/** A parameter server under any interleaving: staleness within the bound, and what a replay of the accepted pushes gives. */
import fc from "fast-check";
import { CommError, type Communicator, createWorld, WorldError } from "twinccl";
import {
  type AcceptedPush,
  adamW,
  type CheckpointFiles,
  Checkpoints,
  memoryFiles,
  Optimizer,
  ParameterServer,
  ParameterSet,
  Random,
  sgd,
} from "twinccl/parallel";
import { type Fault, failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds, runsOf } from "../support/seed.ts";

const cases = fc.record({
  workers: fc.integer({ min: 0, max: 5 }),
  server: fc.nat(5),
  pushes: fc.array(fc.integer({ min: 0, max: 6 }), { minLength: 5, maxLength: 5 }),
  staleness: fc.integer({ min: 0, max: 4 }),
  mode: fc.constantFrom<"block" | "reject">("block", "reject"),
  rule: fc.constantFrom("sgd", "adamW"),
  lengths: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 3 }),
  restless: fc.integer({ min: 0, max: 12 }),
  seed: fc.nat(10_000),
});
type Case = typeof cases extends fc.Arbitrary<infer T> ? T : never;

const modelOf = ({ lengths }: Case) =>
  new ParameterSet(
    lengths.map((length, at) => ({
      name: `p${at}`,
      shape: [length],
      dtype: at % 2 === 0 ? ("float64" as const) : ("float32" as const),
      values: Array.from({ length }, (_, place) => at + place / 8),
    })),
  );
const ruleOf = ({ rule }: Case) =>
  rule === "sgd" ? sgd({ learningRate: 0.1, momentum: 0.9 }) : adamW({ learningRate: 0.1 });
const bytesOf = (set: ParameterSet) => [...set].flatMap(({ value }) => [...value]);

async function run(comm: Communicator, one: Case, files?: CheckpointFiles) {
  const model = modelOf(one);
  const { staleness, mode } = one;
  const accepted: AcceptedPush[] = [];
  const server = await ParameterServer.create(comm, model, {
    rule: ruleOf(one),
    server: one.server % comm.size,
    staleness,
    mode,
    onAccepted: (push) => accepted.push(push),
  });
  const checkpoints = files && new Checkpoints(comm, files);
  const parts = { shared: {}, perRank: { server } };
  await checkpoints?.load(parts);
  const save = () => checkpoints?.save(1, parts);
  if (server.isServer) {
    const report = await server.serve();
    await save();
    return { report, accepted, values: bytesOf(model), pushed: [], seen: [] };
  }
  const random = new Random(one.seed, comm.rank);
  const pause = async () => {
    // Now and then longer than several requests of others take.
    for (let at = random.below(one.restless + 1) ** 3; at > 0; at--) await Promise.resolve();
  };
  const pushed: number[][] = [];
  const seen: { version: number; values: number[] }[] = [];
  for (let left = one.pushes[comm.rank % 5]!; left > 0; ) {
    await pause();
    const version = await server.pull();
    seen.push({ version, values: bytesOf(model) });
    await pause();
    for (const { gradient, value } of model) {
      for (const at of gradient.keys()) gradient[at] = value[at]! / 4 + random.normal();
    }
    const gradients = [...model].map(({ gradient }) => [...gradient]);
    const result = await server.push(version);
    expect(result.version).toBeGreaterThanOrEqual(version);
    if (mode === "block") expect(result.accepted).toBe(true);
    if (!result.accepted) {
      expect(result.staleness).toBeGreaterThan(staleness);
      continue;
    }
    pushed.push(gradients.flat());
    left -= 1;
  }
  if (random.below(2) === 0) await server.pull();
  await server.leave();
  await save();
  return { report: undefined, accepted, values: [], pushed, seen };
}

async function onWorld(one: Case, faults: Fault[] = [], files?: CheckpointFiles) {
  const size = one.workers + 1;
  const world = await createWorld({ backend: sim({ seed: one.seed, faults }), size });
  try {
    return await world.run((comm) => run(comm, one, files));
  } finally {
    await world.close();
  }
}

/** The result of accepted pushes under an optimizer without a server. */
class Replay {
  readonly versions: number[][];
  readonly #model: ParameterSet;
  readonly #optimizer: Optimizer;

  constructor(one: Case) {
    this.#model = modelOf(one);
    this.#optimizer = new Optimizer(this.#model, ruleOf(one));
    this.versions = [bytesOf(this.#model)];
  }

  /** Applies what the workers of a run pushed, in the order in which it was accepted, and judges each. */
  take(
    ranks: readonly { readonly pushed: readonly number[][] }[],
    accepted: readonly AcceptedPush[],
    { staleness: bound }: Case,
  ): void {
    const next = ranks.map(() => 0);
    for (const { worker, from, version, staleness } of accepted) {
      expect(version).toBe(this.versions.length);
      expect(staleness).toBe(version - 1 - from);
      expect(staleness).toBeLessThanOrEqual(bound);
      const gradient = ranks[worker]!.pushed[next[worker]!++]!;
      let begin = 0;
      for (const parameter of this.#model) {
        parameter.gradient.set(gradient.slice(begin, begin + parameter.length));
        begin += parameter.length;
      }
      this.#optimizer.step();
      this.versions.push(bytesOf(this.#model));
    }
  }
}

test("accepts no push beyond the bound, and has the values of a replay", async () => {
  let [held, rejected] = [0, 0];
  await holds(
    cases,
    async (one) => {
      const ranks = await onWorld(one);
      const { report, accepted, values } = ranks[one.server % ranks.length]!;
      const total = ranks.reduce((sum, { pushed }) => sum + pushed.length, 0);
      const largestStaleness = Math.max(0, ...accepted.map((each) => each.staleness));
      expect(report).toMatchObject({ accepted: total, refused: 0, largestStaleness });
      expect(accepted).toHaveLength(total);
      held += report!.held;
      rejected += report!.rejected;
      const replay = new Replay(one);
      replay.take(ranks, accepted, one);
      expect(values).toEqual(replay.versions.at(-1));
      for (const { seen } of ranks) {
        for (const { version, values: pulled } of seen) {
          expect(pulled).toEqual(replay.versions[version]);
        }
      }
      expect(await onWorld(one)).toEqual(ranks);
    },
    120,
  );
  // The law has content only where some worker was held back.
  expect(held).toBeGreaterThan(0);
  expect(rejected).toBeGreaterThan(0);
});

test("stopped and resumed by other workers under another rank, has the values of one replay", async () => {
  let moved = 0;
  await holds(
    fc.record({ one: cases, workers: fc.nat(4), server: fc.nat(5) }),
    async ({ one, ...other }) => {
      const files = memoryFiles();
      // The same number of ranks takes its own states back; another one puts the server's where it now is.
      const then = other.workers === one.workers ? one : { ...one, ...other };
      moved += then === one ? 0 : 1;
      const replay = new Replay(one);
      const total = { accepted: 0, rejected: 0, held: 0 };
      for (const each of [one, then]) {
        const ranks = await onWorld(each, [], files);
        const { report, accepted, values } = ranks[each.server % ranks.length]!;
        replay.take(ranks, accepted, one);
        expect(values).toEqual(replay.versions.at(-1));
        total.accepted += accepted.length;
        expect(report!.accepted).toBe(total.accepted);
        for (const count of ["rejected", "held"] as const) {
          expect(report![count]).toBeGreaterThanOrEqual(total[count]);
          total[count] = report![count];
        }
      }
    },
    40,
  );
  expect(moved).toBeGreaterThan(runsOf(40) / 4);
});

test("ends in typed errors on all ranks when one fails at any call", async () => {
  let struck = 0;
  await holds(
    fc.record({ one: cases, rank: fc.nat(5), call: fc.nat(20) }),
    async ({ one, rank, call }) => {
      const fault = failAt(rank % (one.workers + 1), call);
      const outcome = await onWorld(one, [fault]).catch((error: unknown) => error);
      if (!(outcome instanceof WorldError)) {
        // The rank made fewer calls.
        expect(Array.isArray(outcome)).toBe(true);
        return;
      }
      struck += 1;
      expect(outcome.failures.length).toBeGreaterThan(0);
      for (const { error } of outcome.failures) expect(error).toBeInstanceOf(CommError);
    },
    40,
  );
  expect(struck).toBeGreaterThan(0);
});
