/** Any tokens, routes, capacity and division: what one rank has, or typed errors; never a hang. */
import fc from "fast-check";
import { CommError, type Communicator, createWorld, WorldError } from "twinccl";
import { ExpertParallel, partOf, Random } from "twinccl/parallel";
import { failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { holds } from "../support/seed.ts";

const cases = fc.record({
  size: fc.integer({ min: 1, max: 5 }),
  experts: fc.integer({ min: 1, max: 6 }),
  choices: fc.integer({ min: 1, max: 3 }),
  width: fc.integer({ min: 1, max: 4 }),
  capacity: fc.integer({ min: 1, max: 9 }),
  tokens: fc.integer({ min: 0, max: 12 }),
  seed: fc.nat(1000),
});
type Case = typeof cases extends fc.Arbitrary<infer T> ? T : never;

/** Small integers, so that sums are exact; expert e multiplies by e + 2. */
function parts({ experts, choices, width, tokens, seed }: Case) {
  const random = new Random(seed);
  const small = () => random.below(9) - 4;
  const each = Math.min(choices, experts);
  const x = Float64Array.from({ length: tokens * width }, small);
  const above = Float64Array.from({ length: tokens * width }, small);
  const chosen = Array.from({ length: tokens }, () => {
    const left = Array.from({ length: experts }, (_, expert) => expert);
    return Array.from({ length: each }, () => left.splice(random.below(left.length), 1)[0]!);
  }).flat();
  const weights = Float64Array.from(chosen, small);
  return { x, above, chosen, weights, each };
}

/** Output, gradient by the tokens and by the weights, and what was dropped, by a loop. */
function naive(one: Case) {
  const { width, capacity, experts } = one;
  const { x, above, chosen, weights, each } = parts(one);
  const taken = new Array<number>(experts).fill(0);
  const dropped = new Array<number>(experts).fill(0);
  const output = new Array<number>(x.length).fill(0);
  const byTokens = [...output];
  const byWeights = chosen.map((expert, pair) => {
    if (taken[expert] === capacity) {
      dropped[expert]! += 1;
      return 0;
    }
    taken[expert]! += 1;
    let slope = 0;
    for (let i = 0; i < width; i++) {
      const at = Math.floor(pair / each) * width + i;
      output[at]! += weights[pair]! * (expert + 2) * x[at]!;
      byTokens[at]! += weights[pair]! * (expert + 2) * above[at]!;
      slope += above[at]! * (expert + 2) * x[at]!;
    }
    return slope;
  });
  return { output, byTokens, byWeights, dropped };
}

async function run(comm: Communicator, one: Case) {
  const { experts: count, width, capacity, tokens } = one;
  const { x, above, chosen, weights, each } = parts(one);
  const options = { experts: count, width, capacity, dtype: "float64" } as const;
  const experts = await ExpertParallel.create(comm, options);
  const { begin, end } = partOf(tokens, comm);
  const own = (array: Float64Array) => array.slice(begin * width, end * width);
  const routes = {
    choices: each,
    experts: Int32Array.from(chosen.slice(begin * each, end * each)),
    weights: weights.slice(begin * each, end * each),
  };
  const scaled = (rows: readonly (Float32Array | Float64Array)[]) =>
    rows.map((row, at) => row.map((value) => value * (experts.own.begin + at + 2)));
  const sent = await experts.dispatch(own(x), routes);
  const back = await sent.combine(scaled(sent.rows));
  const gradients = await back.backward(own(above));
  return {
    output: [...back.output],
    byTokens: [...(await sent.backward(scaled(gradients.outputs)))],
    byWeights: [...gradients.weights],
    load: sent.load,
  };
}

/** Zeros have one sign. */
const plain = (values: readonly number[]): number[] => values.map((each) => each + 0);

test("gives the outputs, gradients and drops of one rank", async () => {
  await holds(
    cases,
    async (one) => {
      const expected = naive(one);
      const world = await createWorld({ backend: sim({ seed: one.seed }), size: one.size });
      try {
        const ranks = await world.run((comm) => run(comm, one));
        for (const name of ["output", "byTokens", "byWeights"] as const) {
          expect(plain(ranks.flatMap((each) => each[name])), name).toEqual(plain(expected[name]));
        }
        for (const { load } of ranks) expect(load.dropped).toEqual(expected.dropped);
        const total = expected.dropped.reduce((sum, each) => sum + each, 0);
        expect(ranks.reduce((sum, { load }) => sum + load.own, 0)).toBe(total);
      } finally {
        await world.close();
      }
    },
    60,
  );
});

test("ends in typed errors on all ranks when one fails at any call", async () => {
  await holds(
    fc.record({ one: cases, rank: fc.nat(4), call: fc.nat(5) }),
    async ({ one, rank, call }) => {
      const backend = sim({ seed: one.seed, faults: [failAt(rank % one.size, call)] });
      const world = await createWorld({ backend, size: one.size });
      try {
        const outcome = await world.run((comm) => run(comm, one)).catch((error: unknown) => error);
        expect(outcome).toBeInstanceOf(WorldError);
        const { failures } = outcome as WorldError;
        expect(failures.length).toBeGreaterThan(0);
        for (const { error } of failures) expect(error).toBeInstanceOf(CommError);
      } finally {
        await world.close();
      }
    },
    40,
  );
});
