/** A pipeline comes out where one rank does, stands idle as long as its formula says, and refuses what does not fit. */
import { type Backend, type Communicator, createWorld } from "twinccl";
import {
  adamW,
  DataParallel,
  gatherTensor,
  idealBubble,
  Mesh,
  measureBubble,
  Optimizer,
  type ParameterSet,
  PipelineParallel,
  type PipelineSchedule,
  partOf,
  Random,
  type Stage,
  type StagePass,
  type Tensor,
} from "twinccl/parallel";
import {
  addTo,
  type Model,
  mlp,
  mlpStage,
  type TakeGradient,
  transformer,
  transformerStage,
} from "twinccl/parallel/models";
import { cpu, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";

async function onRanks<T>(
  size: number,
  program: (comm: Communicator) => Promise<T>,
  backend: Backend = sim({ seed: size }),
): Promise<T[]> {
  const world = await createWorld({ backend, size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

const schedules: readonly PipelineSchedule[] = ["gpipe", "1f1b"];
const STEPS = 50;
const rule = () => adamW({ learningRate: 0.01 });

/** A stage that adds 1, with nothing to learn; it notes what it does, and takes the times given on the virtual clock. */
function addingStage(
  comm: Communicator,
  log: string[] = [],
  work?: readonly [forwardNs: number, backwardNs: number],
): Stage<number> {
  const last = comm.rank === comm.size - 1;
  return {
    inputLength: () => 1,
    forward(batch, input = Float32Array.of(batch)) {
      log.push(`F${batch}`);
      if (work !== undefined) comm.work(work[0]);
      const output = input.map((each) => each + 1);
      return {
        output,
        totals: last ? { loss: output[0]!, samples: 1 } : undefined,
        backward(gradient = Float32Array.of(1)) {
          log.push(`B${batch}`);
          if (work !== undefined) comm.work(work[1]);
          return gradient;
        },
      };
    },
  };
}

const numbers = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

describe("the schedule", () => {
  const logsOf = (schedule: PipelineSchedule, size: number, count: number) =>
    onRanks(size, async (comm) => {
      const log: string[] = [];
      const pipeline = await PipelineParallel.create(comm, addingStage(comm, log), { schedule });
      const { held } = await pipeline.backward(numbers(count), () => {});
      return { log: log.join(" "), held };
    });

  test("1f1b is that of PipeDream-Flush", async () => {
    // Narayanan et al., https://arxiv.org/abs/2104.04473, figure 4 (top), with 3 stages and 5 micro-batches.
    expect((await logsOf("1f1b", 3, 5)).map(({ log }) => log)).toEqual([
      "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
      "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
      "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
    ]);
  });
  test("gpipe does everything forward first", async () => {
    for (const { log, held } of await logsOf("gpipe", 3, 4)) {
      expect(log).toBe("F0 F1 F2 F3 B0 B1 B2 B3");
      expect(held).toBe(4);
    }
  });
  test("1f1b keeps at most as many micro-batches as there are stages from its own on", async () => {
    for (const size of [1, 2, 4]) {
      for (const count of [1, 2, 3, 7]) {
        const held = (await logsOf("1f1b", size, count)).map((each) => each.held);
        expect(held).toEqual(numbers(size).map((rank) => Math.min(count, size - rank)));
      }
    }
  });
  test("gives the last stage's result; samples count as their weight by default", async () => {
    const weights = [undefined, 0.5, 4];
    const results = await onRanks(2, async (comm) => {
      const stage = addingStage(comm);
      const pipeline = await PipelineParallel.create(comm, {
        ...stage,
        async forward(batch, input, visit) {
          const pass = await stage.forward(batch, input, visit);
          const weight = weights[batch];
          const more = weight === undefined ? {} : { weight };
          return { ...pass, totals: pass.totals && { loss: 10 ** batch, samples: 3, ...more } };
        },
      });
      const { held: _, ...rest } = await pipeline.backward(numbers(3), () => {});
      return rest;
    });
    expect(results).toEqual(new Array(2).fill({ loss: 111, samples: 9, weight: 3 + 0.5 + 4 }));
  });
  test("of no micro-batch gives no result", async () => {
    const results = await onRanks(3, async (comm) => {
      const pipeline = await PipelineParallel.create(comm, addingStage(comm));
      return pipeline.backward([], () => {});
    });
    expect(results).toEqual(new Array(3).fill({ loss: 0, samples: 0, weight: 0, held: 0 }));
  });
});

describe("the bubble", () => {
  const measured = async (
    schedule: PipelineSchedule,
    size: number,
    count: number,
    timed: "by option" | "by the stage",
  ) => {
    const trace = new Trace();
    // As fast as the simulation goes: a picosecond a message.
    const link = { latencyNs: 0, gigabytesPerSecond: 1e9 };
    await onRanks(
      size,
      async (comm) => {
        const own = timed === "by option" ? undefined : ([1000, 2500] as const);
        const options = {
          schedule,
          ...(own ? {} : { work: { forwardNs: 1000, backwardNs: 2500 } }),
        };
        const stage = addingStage(comm, [], own);
        const pipeline = await PipelineParallel.create(comm, stage, options);
        await pipeline.backward(numbers(count), () => {});
      },
      sim({ trace, link, executor: cpu() }),
    );
    return measureBubble(trace.toChrome().traceEvents);
  };

  test.each([2, 3, 4, 5, 6, 7, 8])(
    "of 1f1b on %i stages is the formula's, to the bit, with 1 to 16 micro-batches",
    async (size) => {
      for (let count = 1; count <= 16; count++) {
        const { share, spanNs, busyNs } = await measured("1f1b", size, count, "by option");
        expect(share, `${count} micro-batches`).toBe((size - 1) / (count + size - 1));
        expect(share).toBe(idealBubble(size, count));
        expect(spanNs).toBe((count + size - 1) * 3500);
        expect(busyNs).toEqual(new Array(size).fill(count * 3500));
      }
    },
  );
  test("of gpipe is the same", async () => {
    for (const [size, count] of [
      [2, 1],
      [4, 3],
      [3, 9],
    ] as const) {
      const { share } = await measured("gpipe", size, count, "by the stage");
      expect(share).toBe((size - 1) / (count + size - 1));
    }
  });
  test("grows with the time of messages", async () => {
    const trace = new Trace();
    const program = async (comm: Communicator) => {
      const work = { forwardNs: 1000, backwardNs: 1000 };
      const pipeline = await PipelineParallel.create(comm, addingStage(comm), { work });
      await pipeline.backward(numbers(4), () => {});
    };
    await onRanks(2, program, sim({ trace, link: { latencyNs: 500 } }));
    const { share, spanNs } = measureBubble(trace.toChrome().traceEvents);
    expect(spanNs).toBeGreaterThan(5 * 2000 + 2 * 500);
    expect(share).toBeGreaterThan(idealBubble(2, 4));
  });
  test("is refused for an empty pipeline", () => {
    expect(() => measureBubble(new Trace().toChrome().traceEvents)).toThrow("needs a trace with");
    expect(() => idealBubble(0, 4)).toThrow("stages: found 0");
    expect(() => idealBubble(2, 1.5)).toThrow("microBatches: found 1.5");
  });
});

/** One rank, all micro-batches in their order, no communicator. */
function trainedAlone<Batch>(model: Model<Batch>, batches: readonly (readonly Batch[])[]) {
  const optimizer = new Optimizer(model.parameters, rule());
  const losses = batches.map((microBatches) => {
    model.parameters.zeroGradients();
    const sums = { loss: 0, weight: 0 };
    for (const batch of microBatches) {
      const result = model.backward(batch, addTo(model.parameters));
      sums.loss += result.loss;
      sums.weight += result.weight ?? result.samples;
    }
    for (const { gradient } of model.parameters) {
      for (const [at, each] of gradient.entries()) gradient[at] = each / sums.weight;
    }
    optimizer.step();
    return sums.loss / sums.weight;
  });
  return { losses, values: new Map([...model.parameters].map(({ name, value }) => [name, value])) };
}

interface Trained {
  readonly losses: number[];
  readonly values: Map<string, Float32Array | Float64Array>;
}

async function trained<Batch>(
  comm: Communicator,
  stage: Stage<Batch> & { readonly parameters: ParameterSet },
  batches: readonly (readonly Batch[])[],
  options: { schedule: PipelineSchedule; dtype: "float32" | "float64" },
): Promise<Trained> {
  const pipeline = await PipelineParallel.create(comm, stage, options);
  const alone = await comm.split({ color: comm.rank });
  const trainer = await DataParallel.create(alone, stage.parameters);
  const optimizer = new Optimizer(stage.parameters, rule());
  const losses: number[] = [];
  for (const microBatches of batches) {
    const { loss } = await trainer.step([microBatches], (all, ready) =>
      pipeline.backward(all, ready),
    );
    optimizer.step();
    losses.push(loss);
  }
  trainer[Symbol.dispose]();
  pipeline[Symbol.dispose]();
  return {
    losses,
    values: new Map([...stage.parameters].map(({ name, value }) => [name, value])),
  };
}

const shape = { vocabulary: 7, context: 5, width: 6, heads: 3, blocks: 3, hidden: 7, seed: 3 };
/** Micro-batches of 1, 2, 1, … sequences of 6 tokens, each of which determines the next. */
const tokenBatches = (count: number) =>
  numbers(STEPS).map((step) => {
    const random = new Random(11, step);
    return numbers(count).map((at) => {
      const sequences = 1 + (at % 2);
      const tokens = numbers(sequences).flatMap(() => {
        const first = random.below(7);
        return numbers(6).map((place) => (first + 2 * place) % 7);
      });
      return { tokens, sequences };
    });
  });

describe.each(schedules)("fifty steps by %s", (schedule) => {
  test.each([
    [1, 2, "float64"],
    [2, 3, "float64"],
    [3, 5, "float64"],
    [5, 4, "float64"],
    [4, 6, "float32"],
  ] as const)(
    "of a transformer on %i stages with %i micro-batches are the one-rank run's, in %s",
    async (size, count, dtype) => {
      const batches = tokenBatches(count);
      const alone = trainedAlone(transformer({ ...shape, dtype }), batches);
      const options = { schedule, dtype };
      const run = (seed: number) =>
        onRanks(
          size,
          (comm) => trained(comm, transformerStage(comm, { ...shape, dtype }), batches, options),
          sim({ seed }),
        );
      const stages = await run(1);
      const seen = new Map(stages.flatMap(({ values }) => [...values]));
      expect([...seen.keys()].sort()).toEqual([...alone.values.keys()].sort());
      // More than the claim: nothing is folded in another order, so the bits are the same.
      for (const [name, value] of alone.values) expect(seen.get(name), name).toEqual(value);
      for (const { losses } of stages) expect(losses).toEqual(alone.losses);
      expect(alone.losses.at(-1)).toBeLessThan(alone.losses[0]! / 2);
      expect(await run(2)).toEqual(stages);
    },
  );
  test("of a perceptron with fewer layers than stages are the one-rank run's", async () => {
    const options = { sizes: [3, 5, 2], dtype: "float64", seed: 4 } as const;
    const draw = (step: number, at: number) => {
      const random = new Random(5, step, at);
      const rows = 1 + ((step + at) % 3);
      const input = Array.from({ length: 3 * rows }, () => random.normal());
      return { input, target: Array.from({ length: 2 * rows }, () => random.normal()) };
    };
    const batches = numbers(STEPS).map((step) => numbers(4).map((at) => draw(step, at)));
    const alone = trainedAlone(mlp(options), batches);
    const stages = await onRanks(4, (comm) =>
      trained(comm, mlpStage(comm, options), batches, { schedule, dtype: "float64" }),
    );
    const seen = new Map(stages.flatMap(({ values }) => [...values]));
    for (const [name, value] of alone.values) expect(seen.get(name), name).toEqual(value);
    for (const { losses } of stages) expect(losses).toEqual(alone.losses);
  });
});

describe("a mesh of data, pipeline and tensor", () => {
  const count = 4;
  const whole = tokenBatches(count);

  async function onMesh(
    comm: Communicator,
    extents: { data: number; pipeline: number; tensor: number },
  ): Promise<{ losses: number[]; tensors: Record<string, Tensor> }> {
    const mesh = await Mesh.create(comm, extents);
    const [line, tensor] = [mesh.comm("pipeline"), mesh.comm("tensor")];
    const stage = transformerStage(line, { ...shape, dtype: "float64" }, tensor);
    const pipeline = await PipelineParallel.create(line, stage, { dtype: "float64" });
    const plane = await mesh.across(["pipeline", "tensor"]);
    const trainer = await DataParallel.create(mesh.comm("data"), stage.parameters, {
      bucketBytes: 500,
      divided: { comm: plane, copies: stage.copies },
    });
    const optimizer = new Optimizer(stage.parameters, rule());
    const part = partOf(count, { rank: mesh.place("data"), size: extents.data });
    const losses: number[] = [];
    for (const batches of whole) {
      const own = batches.slice(part.begin, part.end);
      const { loss } = await trainer.step([own], (all, ready) => pipeline.backward(all, ready));
      optimizer.step();
      losses.push(loss);
    }
    const tensors: Record<string, Tensor> = {};
    for (const { name, shape: own, value } of stage.parameters) {
      const axis = stage.axisOf(name);
      const mine = { shape: own, data: value.slice() };
      tensors[name] = axis === undefined ? mine : await gatherTensor(tensor, mine, axis);
    }
    trainer[Symbol.dispose]();
    pipeline[Symbol.dispose]();
    await mesh.close();
    return { losses, tensors };
  }

  test.each([
    { data: 2, pipeline: 2, tensor: 2 },
    { data: 1, pipeline: 3, tensor: 2 },
  ])("of %j trains as one rank does, the same bits in every run", async (extents) => {
    const size = extents.data * extents.pipeline * extents.tensor;
    const alone = trainedAlone(transformer({ ...shape, dtype: "float64" }), whole);
    const ranks = await onRanks(size, (comm) => onMesh(comm, extents));
    const seen = Object.assign({}, ...ranks.map(({ tensors }) => tensors)) as Record<
      string,
      Tensor
    >;
    for (const { losses } of ranks) {
      for (const [step, loss] of losses.entries()) {
        expect(Math.abs(loss / alone.losses[step]! - 1), `step ${step}`).toBeLessThan(1e-10);
      }
    }
    for (const [name, value] of alone.values) {
      // A key's bias has no gradient but rounding, which AdamW makes steps of.
      if (name.endsWith("key.bias")) continue;
      const largest = Math.max(...[...value].map(Math.abs));
      const found = seen[name]!.data;
      expect(found.length).toBe(value.length);
      for (const [at, each] of value.entries()) {
        expect(Math.abs(found[at]! - each), name).toBeLessThanOrEqual(1e-10 * largest);
      }
    }
    for (const { tensors } of ranks) {
      for (const [name, each] of Object.entries(tensors)) expect(each).toEqual(seen[name]);
    }
    const again = await onRanks(size, (comm) => onMesh(comm, extents), sim({ seed: 99 }));
    expect(again).toEqual(ranks);
  });
});

describe("gradients", () => {
  /** Uses one array for all gradients of a length, as `TakeGradient` allows. */
  const reportingStage = (reports: readonly (readonly [string, number[]])[][]): Stage<number> => {
    const kept = [0, 1, 2].map((length) => new Float64Array(length));
    return {
      inputLength: () => 1,
      forward: (batch) => ({
        totals: { loss: 1, samples: 1 },
        backward(_, take) {
          for (const [name, values] of reports[batch] ?? []) {
            const gradient = kept[values.length]!;
            gradient.set(values);
            take(name, gradient);
          }
          return undefined;
        },
      }),
    };
  };
  const reportsOf = async (reports: readonly (readonly [string, number[]])[][]) => {
    const reported: [string, number[]][] = [];
    const [outcome] = await onRanks(1, async (comm) => {
      const pipeline = await PipelineParallel.create(comm, reportingStage(reports));
      return pipeline
        .backward(numbers(reports.length), (name, sum) => reported.push([name, [...sum]]))
        .catch((error: unknown) => String(error));
    });
    return { reported: reported, outcome };
  };
  test("are added up over micro-batches and reported once, those missing in the last one at the end", async () => {
    const { reported } = await reportsOf([
      [
        ["a", [1]],
        ["b", [2, 3]],
      ],
      [
        ["c", [7]],
        ["a", [10]],
      ],
    ]);
    expect(reported).toEqual([
      ["c", [7]],
      ["a", [11]],
      ["b", [2, 3]],
    ]);
  });
  test("of another length than before, or reported twice, are refused", async () => {
    expect((await reportsOf([[["a", [1]]], [["a", [1, 2]]]])).outcome).toMatch(
      /a: found a gradient of 2 elements, needs 1/,
    );
    expect(
      (
        await reportsOf([
          [
            ["a", [1]],
            ["a", [1]],
          ],
        ])
      ).outcome,
    ).toMatch(/found a second gradient/);
    expect((await reportsOf([[["a", [1, 2]]], [["a", [1]]]])).outcome).toMatch(
      /a: found a gradient of 1 elements, needs 2/,
    );
  });
});

describe("refused arguments:", () => {
  const failed = (program: (comm: Communicator) => Promise<unknown>, size = 3) =>
    onRanks(size, (comm) => program(comm).catch((error: unknown) => error));

  test("a schedule that differs, on all ranks", async () => {
    const errors = await failed((comm) =>
      PipelineParallel.create(comm, addingStage(comm), {
        schedule: comm.rank === 1 ? "gpipe" : "1f1b",
      }),
    );
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "schedule", ranks: [1] });
    }
  });
  test("a dtype that differs, on all ranks", async () => {
    const errors = await failed((comm) =>
      PipelineParallel.create(comm, addingStage(comm), {
        dtype: comm.rank === 2 ? "float64" : "float32",
      }),
    );
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "dtype", ranks: [2] });
    }
  });
  test("another number of micro-batches, on all ranks; the next step may follow", async () => {
    const outcomes = await onRanks(3, async (comm) => {
      const pipeline = await PipelineParallel.create(comm, addingStage(comm));
      const step = (count: number) => pipeline.backward(numbers(count), () => {});
      const error = await step(comm.rank === 2 ? 3 : 2).catch((each: unknown) => each);
      return { error, result: await step(2) };
    });
    for (const { error, result } of outcomes) {
      expect(error).toMatchObject({
        code: "ERR_COMM_MISMATCH",
        field: "micro-batches",
        ranks: [2],
      });
      expect(result).toMatchObject({ loss: 0 + 3 + 1 + 3, samples: 2, weight: 2 });
    }
  });
  test.each([
    ["schedule", { schedule: "zigzag" as "gpipe" }],
    ["dtype", { dtype: "int8" as "float32" }],
    ["work.forwardNs", { work: { forwardNs: -1, backwardNs: 0 } }],
    ["work.backwardNs", { work: { forwardNs: 1 } as { forwardNs: number; backwardNs: number } }],
  ])("an invalid option: %s", async (field, options) => {
    for (const error of await failed((c) => PipelineParallel.create(c, addingStage(c), options))) {
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
    }
  });

  const one = Float32Array.of(1);
  const good: StagePass = {
    output: one,
    totals: { loss: 0, samples: 1 },
    backward: () => one,
  };
  /** Reports a gradient of the first micro-batch while the second one goes back. */
  function lateReport(): Partial<StagePass> {
    let first: TakeGradient | undefined;
    return {
      backward(_, take) {
        first ??= take;
        first("a", one);
        return one;
      },
    };
  }
  test.each<[string, number, Partial<StagePass>, string]>([
    ["no pass", 1, undefined as unknown as StagePass, "ERR_COMM_ARG"],
    ["no backward", 0, { backward: 1 as unknown as StagePass["backward"] }, "ERR_COMM_ARG"],
    ["a gradient reported after its micro-batch", 1, lateReport(), "ERR_COMM_ARG"],
    ["an output in another dtype", 0, { output: Float64Array.of(1) }, "ERR_COMM_ARG"],
    ["no output", 0, { output: undefined }, "ERR_COMM_ARG"],
    ["an output of another length", 0, { output: new Float32Array(2) }, "ERR_COMM_MISMATCH"],
    ["no loss", 1, { totals: undefined }, "ERR_COMM_ARG"],
    ["half a sample", 1, { totals: { loss: 1, samples: 0.5 } }, "ERR_COMM_ARG"],
    ["a weight below 0", 1, { totals: { loss: 1, samples: 1, weight: -1 } }, "ERR_COMM_ARG"],
    ["no gradient", 1, { backward: () => undefined }, "ERR_COMM_ARG"],
    ["a longer gradient", 1, { backward: () => new Float32Array(3) }, "ERR_COMM_ARG"],
    ["a shorter gradient", 1, { backward: () => new Float32Array(0) }, "ERR_COMM_ARG"],
  ])("%s of a stage, and later steps", async (_, rank, change, code) => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const seen: unknown[] = [];
    const run = world.run(async (comm) => {
      const odd = change === undefined ? (change as unknown as StagePass) : { ...good, ...change };
      const pass = comm.rank === rank ? odd : good;
      const stage: Stage<number> = { inputLength: () => 1, forward: () => pass };
      const pipeline = await PipelineParallel.create(comm, stage);
      try {
        await pipeline.backward([1, 2], () => {});
      } catch (error) {
        seen[comm.rank] = error;
        const again = await pipeline.backward([1], () => {}).catch((each: unknown) => each);
        expect(again).toMatchObject({ code: "ERR_COMM_CLOSED" });
        throw error;
      }
    });
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD" });
    expect(seen[rank]).toMatchObject({ code });
    await world.close();
  });
});
