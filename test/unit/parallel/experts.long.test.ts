/** Tokens go to their experts and back as on one rank, which here counts and adds without the library's exchange. */
import { type Communicator, createWorld } from "twinccl";
import {
  adamW,
  DataParallel,
  ExpertParallel,
  Optimizer,
  ParameterSet,
  partOf,
  Random,
  type Routes,
  routeTopK,
  type Trainable,
} from "twinccl/parallel";
import { type Layer, linear, mixtureOfExperts, sequence, tanh } from "twinccl/parallel/models";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

async function onRanks<T>(
  size: number,
  program: (comm: Communicator) => Promise<T>,
  backend = sim({ seed: size }),
): Promise<T[]> {
  const world = await createWorld({ backend, size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

const draw = (count: number, ...key: number[]): Float64Array => {
  const random = new Random(...key);
  return Float64Array.from({ length: count }, () => random.normal());
};

const [WIDTH, HIDDEN, EXPERTS, TOKENS, STEPS] = [3, 4, 5, 14, 50];
const shapes: [string, number[]][] = [["router", [EXPERTS, WIDTH]]];
for (let expert = 0; expert < EXPERTS; expert++) {
  shapes.push([`expert${expert}.up`, [HIDDEN, WIDTH]], [`expert${expert}.down`, [WIDTH, HIDDEN]]);
}
const declared = shapes.map(([name, shape], at) => ({
  name,
  shape,
  dtype: "float64" as const,
  values: draw(shape[0]! * shape[1]!, 1, at),
}));
const parametersOf = (keep: (name: string) => boolean) =>
  new ParameterSet(declared.filter(({ name }) => keep(name)));
const expertOf = (set: ParameterSet, expert: number): Layer =>
  sequence([
    linear({ weight: set.get(`expert${expert}.up`), inputs: WIDTH, outputs: HIDDEN }),
    tanh(),
    linear({ weight: set.get(`expert${expert}.down`), inputs: HIDDEN, outputs: WIDTH }),
  ]);
const inputs = (step: number) => draw(TOKENS * WIDTH, 2, step % 5);
/** Half the square of the distance of the outputs to twice the inputs; its gradient is the distance. */
const distance = (output: ArrayLike<number>, input: ArrayLike<number>): Float64Array =>
  Float64Array.from(output, (each, at) => each + input[at]! - 2 * Math.tanh(input[at]!));
const half = (gap: Float64Array): number => gap.reduce((sum, each) => sum + (each * each) / 2, 0);
const rule = () => adamW({ learningRate: 0.02 });

interface Setting {
  readonly choices: number;
  readonly softmax: "all" | "chosen";
  readonly capacity: number;
}

/** All tokens on one rank: a loop over tokens and choices, no communicator. */
function trainedAlone({ choices, softmax, capacity }: Setting) {
  const set = parametersOf(() => true);
  const optimizer = new Optimizer(set, rule());
  const stats: { loss: number; dropped: number[] }[] = [];
  const router = set.get("router");
  for (let step = 0; step < STEPS; step++) {
    const x = inputs(step);
    const dropped = new Array<number>(EXPERTS).fill(0);
    const queues: { token: number; weight: number; slope: number }[][] = dropped.map(() => []);
    const routes = Array.from({ length: TOKENS }, (_, token) => {
      const own = x.subarray(token * WIDTH, (token + 1) * WIDTH);
      const scores = Array.from({ length: EXPERTS }, (_, expert) =>
        own.reduce((sum, each, i) => sum + each * router.value[expert * WIDTH + i]!, 0),
      );
      const chosen = scores
        .map((score, expert) => ({ score, expert }))
        .sort((a, b) => b.score - a.score)
        .slice(0, choices);
      const among = softmax === "all" ? scores : chosen.map(({ score }) => score);
      const total = among.reduce((sum, each) => sum + Math.exp(each), 0);
      const share = (expert: number) => Math.exp(scores[expert]!) / total;
      const pairs = chosen.map(({ expert }) => {
        const pair = { expert, row: -1, token, weight: share(expert), slope: 0 };
        const queue = queues[expert]!;
        if (queue.length === capacity) dropped[expert]!++;
        else pair.row = queue.push(pair) - 1;
        return pair;
      });
      return { pairs, share };
    });
    const passes = queues.map((queue, expert) => {
      const rows = Float64Array.from(
        queue.flatMap(({ token }) => [...x.subarray(token * WIDTH, (token + 1) * WIDTH)]),
      );
      return expertOf(set, expert).forward(rows, { sequences: queue.length, length: 1 });
    });
    const y = new Float64Array(x.length);
    for (const { pairs } of routes) {
      for (const { expert, row, token, weight } of pairs) {
        for (let i = 0; row >= 0 && i < WIDTH; i++) {
          y[token * WIDTH + i]! += weight * passes[expert]!.output[row * WIDTH + i]!;
        }
      }
    }
    const gap = distance(y, x);
    set.zeroGradients();
    for (const { pairs, share } of routes) {
      for (const pair of pairs) {
        for (let i = 0; pair.row >= 0 && i < WIDTH; i++) {
          pair.slope +=
            gap[pair.token * WIDTH + i]! * passes[pair.expert]!.output[pair.row * WIDTH + i]!;
        }
      }
      const mean = pairs.reduce((sum, { weight, slope }) => sum + weight * slope, 0);
      for (let expert = 0; expert < EXPERTS; expert++) {
        const pair = pairs.find((each) => each.expert === expert);
        if (softmax === "chosen" && pair === undefined) continue;
        const above = share(expert) * ((pair?.slope ?? 0) - mean);
        for (let i = 0; i < WIDTH; i++) {
          router.gradient[expert * WIDTH + i]! += above * x[pairs[0]!.token * WIDTH + i]!;
        }
      }
    }
    for (const [expert, pass] of passes.entries()) {
      const above = Float64Array.from(
        queues[expert]!.flatMap(({ token, weight }) =>
          [...gap.subarray(token * WIDTH, (token + 1) * WIDTH)].map((each) => weight * each),
        ),
      );
      pass.backward(above, (name, gradient) => set.get(name).gradient.set(gradient));
    }
    for (const { gradient } of set) {
      for (const [at, each] of gradient.entries()) gradient[at] = each / TOKENS;
    }
    optimizer.step();
    stats.push({ loss: half(gap) / TOKENS, dropped });
  }
  return { stats: stats, values: new Map([...set].map(({ name, value }) => [name, value])) };
}

/** The tokens of a rank: uneven parts, and none for the second of three. */
function partOfTokens(rank: number, size: number): { begin: number; end: number } {
  if (size !== 3) return partOf(TOKENS, { rank, size });
  return [
    { begin: 0, end: 9 },
    { begin: 9, end: 9 },
    { begin: 9, end: TOKENS },
  ][rank]!;
}

async function trained(comm: Communicator, setting: Setting) {
  const { choices, softmax, capacity } = setting;
  const parallel = await ExpertParallel.create(comm, {
    experts: EXPERTS,
    width: WIDTH,
    capacity,
    dtype: "float64",
  });
  const { own } = parallel;
  const shared = parametersOf((name) => name === "router");
  const mine = parametersOf((name) => {
    const expert = Number(/\d+/.exec(name)?.[0] ?? -1);
    return expert >= own.begin && expert < own.end;
  });
  const layers = Array.from({ length: own.end - own.begin }, (_, at) =>
    expertOf(mine, own.begin + at),
  );
  const router = linear({ weight: shared.get("router"), inputs: WIDTH, outputs: EXPERTS });
  const mixture = mixtureOfExperts({
    router,
    own: layers,
    parallel,
    experts: EXPERTS,
    choices,
    softmax,
  });
  const trainer = await DataParallel.create(comm, shared);
  const all: Trainable[] = [...shared, ...mine];
  const optimizer = new Optimizer(all, rule());
  const { begin, end } = partOfTokens(comm.rank, comm.size);
  const stats: { loss: number; dropped: readonly number[] }[] = [];
  let ownDropped = 0;
  for (let step = 0; step < STEPS; step++) {
    const x = inputs(step).slice(begin * WIDTH, end * WIDTH);
    let dropped: readonly number[] = [];
    const { loss, weight } = await trainer.step([x], async (input, ready) => {
      const pass = await mixture.forward(input, { sequences: end - begin, length: 1 });
      dropped = pass.load.dropped;
      ownDropped += pass.load.own;
      const gap = distance(pass.output, input);
      await pass.backward(gap, (name, gradient) => {
        if (name === "router") ready(name, gradient);
        else mine.get(name).gradient.set(gradient);
      });
      return { loss: half(gap), samples: end - begin };
    });
    for (const { gradient } of mine) {
      for (const [at, each] of gradient.entries()) gradient[at] = each / weight;
    }
    optimizer.step();
    stats.push({ loss, dropped });
  }
  return { stats: stats, ownDropped, values: all.map(({ name, value }) => ({ name, value })) };
}

describe.each([1, 2, 3, 5, 7])("fifty steps of a mixture on %i ranks", (size) => {
  test.each<Setting>([
    { choices: 1, softmax: "all", capacity: Number.MAX_SAFE_INTEGER },
    { choices: 2, softmax: "chosen", capacity: 6 },
    { choices: 3, softmax: "all", capacity: 4 },
  ])("are the one-rank run's with %j, also in what is dropped", async (setting) => {
    const alone = trainedAlone(setting);
    const ranks = await onRanks(size, (comm) => trained(comm, setting));
    const drops = alone.stats
      .flatMap(({ dropped }) => dropped)
      .reduce((sum, each) => sum + each, 0);
    expect(drops > 0).toBe(setting.capacity < 10);
    expect(ranks.reduce((sum, { ownDropped }) => sum + ownDropped, 0)).toBe(drops);
    const seen = new Map(ranks.flatMap(({ values }) => values).map((each) => [each.name, each]));
    expect(seen.size).toBe(alone.values.size);
    for (const { stats } of ranks) {
      for (const [step, { loss, dropped }] of stats.entries()) {
        expect(dropped, `step ${step}`).toEqual(alone.stats[step]!.dropped);
        expect(Math.abs(loss / alone.stats[step]!.loss - 1)).toBeLessThan(1e-10);
      }
    }
    for (const [name, value] of alone.values) {
      const largest = Math.max(...[...value].map(Math.abs));
      for (const [at, each] of value.entries()) {
        expect(Math.abs(seen.get(name)!.value[at]! - each), name).toBeLessThan(1e-10 * largest);
      }
    }
    expect(alone.stats.at(-1)!.loss).toBeLessThan(alone.stats[0]!.loss);
    expect(await onRanks(size, (comm) => trained(comm, setting), sim({ seed: 77 }))).toEqual(ranks);
  });
});

const routes = (experts: number[], choices = 1): Routes => ({
  choices,
  experts: Int32Array.from(experts),
  weights: new Float32Array(experts.length).fill(1),
});

describe("a dispatch", () => {
  test("places tokens by rank, then by number; the rest is dropped and counted", async () => {
    const seen = await onRanks(3, async (comm) => {
      const experts = await ExpertParallel.create(comm, { experts: 4, width: 1, capacity: 3 });
      const tokens = Float32Array.of(10, 11, 12).map((each) => each + 10 * comm.rank);
      const sent = await experts.dispatch(tokens, routes([2, comm.rank, 2]));
      const { output } = await sent.combine(sent.rows.map((rows) => rows.map((each) => -each)));
      return { rows: sent.rows.map((each) => [...each]), load: sent.load, output: [...output] };
    });
    expect(seen.map(({ rows }) => rows)).toEqual([[[11], [21]], [[10, 12, 20]], [[]]]);
    expect(seen.map(({ output }) => output)).toEqual([
      [-10, -11, -12],
      [-20, -21, 0],
      [0, 0, 0],
    ]);
    // Rank 2's token 31 went to expert 2 as well, which was full.
    const common = { rows: [1, 1, 3, 0], dropped: [0, 0, 4, 0] };
    expect(seen.map(({ load }) => load)).toEqual([
      { ...common, own: 0 },
      { ...common, own: 1 },
      { ...common, own: 3 },
    ]);
  });
});

describe("routes", () => {
  test("are the most probable, the first of equal ones", () => {
    const found = routeTopK(Float64Array.of(0, 2, 2, 1), { experts: 4, choices: 3 });
    expect([...found.experts]).toEqual([1, 2, 3]);
    const total = 1 + 2 * Math.exp(2) + Math.E;
    expect(found.weights[0]).toBeCloseTo(Math.exp(2) / total, 14);
  });
  test.each(["all", "chosen"] as const)("have the gradient of their weights: %s", (softmax) => {
    const logits = draw(6, 3);
    const above = draw(4, 4);
    const weigh = (each: Float64Array) => {
      const { weights } = routeTopK(each, { experts: 3, choices: 2, softmax });
      return [...weights].reduce((sum, weight, at) => sum + weight * above[at]!, 0);
    };
    const below = routeTopK(logits, { experts: 3, choices: 2, softmax }).backward(above);
    for (const [at, each] of logits.entries()) {
      const slope =
        (weigh(logits.with(at, each + 1e-6)) - weigh(logits.with(at, each - 1e-6))) / 2e-6;
      expect(below[at]).toBeCloseTo(slope, 8);
    }
  });
  test.each([
    [{ experts: 0 }, "experts: found 0"],
    [{ experts: 2, choices: 3 }, "choices: found 3"],
    [{ experts: 3 }, "logits: found 4 elements"],
    [{ experts: 2, softmax: "some" as "all" }, 'softmax: found "some"'],
  ])("refuse %j", (options, message) => {
    expect(() => routeTopK(new Float32Array(4), options)).toThrow(message);
  });
  test("refuse logits that are not finite", () => {
    expect(() => routeTopK(Float32Array.of(1, Number.NaN), { experts: 2 })).toThrow("logits[1]");
  });
});

describe("refused arguments:", () => {
  test("an option that differs, on all ranks", async () => {
    const errors = await onRanks(3, (comm) =>
      ExpertParallel.create(comm, { experts: 4, width: comm.rank === 1 ? 3 : 2 }).catch((e) => e),
    );
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "width", ranks: [1] });
    }
  });
  test("a mixture of other experts than this rank has", async () => {
    const found = await onRanks(2, async (comm) => {
      const parallel = await ExpertParallel.create(comm, { experts: 3, width: 1 });
      const router = linear({
        weight: { name: "r", value: new Float32Array(3) },
        inputs: 1,
        outputs: 3,
      });
      const make = () => mixtureOfExperts({ router, own: [tanh()], parallel, experts: 3 });
      return comm.rank === 0 ? expect(make).toThrow("own: found 1 layers, needs 2") : make();
    });
    expect(found[1]).toBeDefined();
  });
  test.each([
    ["experts", { experts: 0, width: 1 }],
    ["width", { experts: 1, width: 1.5 }],
    ["capacity", { experts: 1, width: 1, capacity: 0 }],
    ["dtype", { experts: 1, width: 1, dtype: "float16" as "float32" }],
  ])("an invalid option: %s", async (field, options) => {
    const create = (comm: Communicator) => ExpertParallel.create(comm, options).catch((e) => e);
    for (const error of await onRanks(2, create)) {
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
    }
  });
  test.each([
    ["tokens", [1, 2] as unknown as Float32Array, routes([0])],
    ["tokens", Int32Array.of(1, 2) as unknown as Float32Array, routes([0])],
    ["experts", new Float32Array(2), { ...routes([0]), experts: [0] as unknown as Int32Array }],
    ["tokens", new Float32Array(3), routes([0])],
    ["tokens", new Float64Array(2), routes([0])],
    ["experts", new Float32Array(4), { ...routes([0]), weights: new Float32Array(2) }],
    ["weights", new Float32Array(4), { ...routes([0, 1]), weights: new Float32Array(1) }],
    ["experts[1]", new Float32Array(4), routes([0, 4])],
    ["experts[0]", new Float32Array(2), routes([-1])],
    ["experts[1]", new Float32Array(2), routes([3, 3], 2)],
    ["choices", new Float32Array(2), routes([1], 0)],
    ["weights[0]", new Float32Array(2), { ...routes([1]), weights: Float32Array.of(Number.NaN) }],
  ])("a shape that does not fit: %s", async (field, tokens, wrong) => {
    const [error] = await onRanks(1, async (comm) => {
      const experts = await ExpertParallel.create(comm, { experts: 4, width: 2 });
      return experts.dispatch(tokens, wrong).catch((each: unknown) => each);
    });
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
  });
  test("an output of another length, a missing one, a gradient of another length", async () => {
    const [errors] = await onRanks(1, async (comm) => {
      const experts = await ExpertParallel.create(comm, { experts: 2, width: 2 });
      const sent = await experts.dispatch(new Float32Array(2), routes([1]));
      const none = new Float32Array(0);
      const two = new Float32Array(2);
      const back = await sent.combine([none, two]);
      return Promise.all(
        [
          sent.combine([two, two]),
          sent.combine([two]),
          sent.backward([none, none]),
          back.backward(none),
        ].map((each) => (each as Promise<unknown>).catch((error: unknown) => error)),
      );
    });
    expect(errors).toMatchObject(
      ["expert 0", "arrays", "expert 1", "gradient"].map((field) => ({
        code: "ERR_COMM_ARG",
        field,
      })),
    );
  });
});
