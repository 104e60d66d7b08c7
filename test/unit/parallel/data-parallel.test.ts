/** Data parallelism: the traffic and its order, refusals and their ranks, and the report of a step. */
import {
  CollectiveMismatchError,
  type Communicator,
  createWorld,
  InvalidArgumentError,
  type RankFailure,
  WorldError,
} from "twinccl";
import {
  DataParallel,
  type DataParallelOptions,
  NonFiniteGradientError,
  type ParameterDeclaration,
  ParameterSet,
  type Ready,
  UnusedParametersError,
} from "twinccl/parallel";
import { failAt, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

async function run<T>(size: number, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

async function failures(outcome: Promise<unknown>): Promise<readonly RankFailure[]> {
  const error = await outcome.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(WorldError);
  return (error as WorldError).failures.toSorted((a, b) => a.rank - b.rank);
}

const three: readonly ParameterDeclaration[] = [
  { name: "c", shape: [3] },
  { name: "a", shape: [1] },
  { name: "b", shape: [2] },
];

const trainer = (comm: Communicator, options: DataParallelOptions = {}): Promise<DataParallel> =>
  DataParallel.create(comm, new ParameterSet(three), options);

/** Gradients of one micro-batch, all elements of each parameter alike. */
const gradients =
  (values: Readonly<Record<string, number>>) =>
  (batch: { samples: number; loss?: number }, ready: Ready) => {
    for (const [name, value] of Object.entries(values)) {
      const { length } = new ParameterSet(three).get(name);
      ready(name, new Float32Array(length).fill(value));
    }
    return { loss: 0, ...batch };
  };
const all = (value: number): Record<string, number> => ({ b: value, a: value, c: value });
const one = [{ samples: 1 }];

describe("the start", () => {
  test("gives every rank the root's values, with parameters declared in any order", async () => {
    const values = await run(3, async (comm) => {
      const declared = [
        { name: "x", shape: [2], values: [comm.rank, 0.1] },
        { name: "y", shape: [], dtype: "float64" as const, values: [comm.rank + 0.1] },
      ];
      const set = new ParameterSet(comm.rank === 1 ? declared.toReversed() : declared);
      await DataParallel.create(comm, set, { root: 2 });
      return [...set.values("float32"), ...set.values("float64")];
    });
    expect(values).toEqual(new Array(3).fill([2, Math.fround(0.1), 2.1]));
  });

  test.each<[string, ParameterDeclaration[], RegExp]>([
    ["shape", [{ name: "w", shape: [3, 2] }], /"w": rank 1 differs[\s\S]*1 +float32 \[3, 2\]/],
    [
      "dtype",
      [{ name: "w", shape: [2, 3], dtype: "float64" }],
      /"w": rank 1 differs[\s\S]*float64/,
    ],
    ["name", [{ name: "v", shape: [2, 3] }], /"v": rank 1 differs[\s\S]*0 +absent/],
  ])(
    "refuses another %s by name, on every rank, and changes nothing",
    async (_, other, message) => {
      const kept: number[] = [];
      const running = run(3, async (comm) => {
        const set = new ParameterSet(comm.rank === 1 ? other : [{ name: "w", shape: [2, 3] }]);
        const values =
          set.values("float32").length > 0 ? set.values("float32") : set.values("float64");
        values.fill(comm.rank);
        await DataParallel.create(comm, set).finally(() => kept.push(values[5]!));
      });
      for (const { error } of await failures(running)) {
        expect(error).toBeInstanceOf(CollectiveMismatchError);
        expect((error as Error).message).toMatch(message);
        expect((error as CollectiveMismatchError).ranks).toEqual([1]);
      }
      expect(kept.sort()).toEqual([0, 1, 2]);
    },
  );

  test("refuses options that differ, and invalid options", async () => {
    const others: Required<Omit<DataParallelOptions, "now" | "divided">> = {
      bucketBytes: 8,
      unused: "zeros",
      maxGradientNorm: 1,
      nonFinite: "keep",
      wire: { topK: 0.5 },
      wireScale: 2,
      root: 1,
    };
    for (const [field, value] of Object.entries(others)) {
      // On a wire of 16 bits, which a scale belongs to.
      const alike: DataParallelOptions = field === "wireScale" ? { wire: "float16" } : {};
      const running = run(4, (comm) =>
        trainer(comm, comm.rank === 3 ? { ...alike, [field]: value } : alike),
      );
      for (const { error } of await failures(running)) {
        expect(error).toBeInstanceOf(CollectiveMismatchError);
        expect((error as Error).message).toMatch(new RegExp(`option "${field}": rank 3 differs`));
      }
    }
    const shares = run(2, (comm) =>
      trainer(comm, { wire: { topK: comm.rank === 0 ? 0.5 : 0.25 } }),
    );
    expect((await failures(shares))[0]!.error).toBeInstanceOf(CollectiveMismatchError);
    const divided = run(3, async (comm) => {
      const line = await comm.split({ color: comm.rank });
      await trainer(comm, comm.rank === 2 ? {} : { divided: { comm: line, copies: () => 1 } });
    });
    for (const { error } of await failures(divided)) {
      expect((error as Error).message).toMatch(/option "divided": rank 2 differs[\s\S]*not at all/);
    }
    for (const options of [{ maxGradientNorm: 1 }, { nonFinite: "keep" }] as const) {
      const parts = run(2, async (comm) => {
        const line = await comm.split({ color: comm.rank });
        const own = comm.rank === 1 ? options : {};
        await trainer(line, { ...own, divided: { comm, copies: () => 2 } });
      });
      for (const { error } of await failures(parts)) {
        expect(error).toBeInstanceOf(CollectiveMismatchError);
        expect((error as Error).message).toContain(`option "${Object.keys(options)}": rank 1 diff`);
      }
    }
    const wrong: [DataParallelOptions, RegExp][] = [
      [{ bucketBytes: 0 }, /bucketBytes: found 0/],
      [{ unused: "ignore" as never }, /unused: found "ignore", needs "refuse" or "zeros"/],
      [{ nonFinite: "clip" as never }, /nonFinite: found "clip"/],
      [{ maxGradientNorm: Number.NaN }, /maxGradientNorm: found NaN/],
      [{ wire: "float8" as never }, /wire: found "float8"/],
      [{ wire: { topK: 1.5 } }, /wire: found {"topK":1.5}/],
      [{ bucketBytes: "16" as never }, /bucketBytes: found "16"/],
      [{ wire: { topK: "1" as never } }, /wire: found {"topK":"1"}/],
      [{ wire: { topK: 1n as never } }, /wire: found {"topK":1n}, needs a topK above 0/],
      [{ unused: { of: 1n } as never }, /unused: found an object, needs "refuse" or "zeros"/],
      [{ wireScale: 3 }, /wireScale: found 3, needs a power of two/],
      [{ wireScale: 2 }, /wireScale: found 2, needs a wire of "float16" or "bfloat16"/],
      [{ wire: "full", wireScale: 0.5 }, /wireScale: found 0.5, needs a wire of/],
      [{ wire: { topK: 0.5 }, wireScale: 4 }, /wireScale: found 4, needs a wire of/],
      // Their logarithms are rounded to whole numbers.
      [{ wireScale: 2 ** 52 + 1 }, /wireScale: found 4503599627370497/],
      [{ wireScale: Number.POSITIVE_INFINITY }, /wireScale: found Infinity/],
      [{ root: 1 }, /root: found 1, needs a rank from 0 to 0/],
    ];
    for (const [options, message] of wrong) {
      const [only] = await failures(run(1, (comm) => trainer(comm, options)));
      expect(only!.error).toBeInstanceOf(InvalidArgumentError);
      expect((only!.error as Error).message).toMatch(message);
    }
  });
});

describe("buckets", () => {
  /** The counts of the all-reduces that were posted when each gradient was ready. */
  const posted = (order: readonly string[], microBatches = 1): Promise<number[][][]> =>
    run(2, async (comm) => {
      const counts: number[] = [];
      comm.hooks.before(({ collective, count }) => {
        if (collective === "allReduce") counts.push(count);
      });
      const model = await trainer(comm, { bucketBytes: 12 });
      expect(model.buckets).toBe(2);
      const seen: number[][] = [];
      await model.step(new Array(microBatches).fill(one[0]), (batch, ready) => {
        for (const name of order) {
          gradients({ [name]: 1 })(batch, ready);
          seen.push([...counts]);
        }
        return { loss: 0, ...batch };
      });
      return [...seen, counts];
    });

  test("are issued while backward runs, from the last used parameter on", async () => {
    // In use: c, a, b. From the end: b and a fill the first 12 bytes, c the next.
    const [rank] = await posted(["b", "a", "c"]);
    expect(rank).toEqual([[], [3], [3, 3], [3, 3]]);
  });

  test("are issued in the agreed order when another is complete first", async () => {
    const [rank] = await posted(["c", "b", "a"]);
    expect(rank).toEqual([[], [], [3, 3], [3, 3]]);
  });

  test("wait for the last micro-batch", async () => {
    const [rank] = await posted(["b", "a", "c"], 3);
    expect(rank!.slice(0, 7)).toEqual(new Array(7).fill([]));
    expect(rank!.slice(7)).toEqual([[3], [3, 3], [3, 3]]);
  });

  test("hold 25 MiB by default", async () => {
    const most = (25 * 2 ** 20) / 4;
    for (const [lengths, buckets] of [
      [[most - 1, 1], 1],
      [[most - 1, 2], 2],
    ] as const) {
      const set = new ParameterSet(
        lengths.map((length, at) => ({ name: `p${at}`, shape: [length] })),
      );
      const [found] = await run(1, async (comm) => (await DataParallel.create(comm, set)).buckets);
      expect(found).toBe(buckets);
    }
  });

  test("hold one dtype each, and one parameter that is larger than a bucket", async () => {
    const [counts] = await run(2, async (comm) => {
      const seen: string[] = [];
      comm.hooks.before(({ collective, count, dtype }) => {
        if (collective === "allReduce") seen.push(`${dtype} ${count}`);
      });
      const set = new ParameterSet([
        { name: "1", shape: [9] },
        { name: "2", shape: [1], dtype: "float64" },
        { name: "3", shape: [1] },
        { name: "4", shape: [2], dtype: "float64" },
        { name: "5", shape: [0] },
      ]);
      const model = await DataParallel.create(comm, set, { bucketBytes: 16 });
      await model.step(one, (batch, ready) => {
        for (const { name, length } of set) ready(name, new Float64Array(length));
        return { loss: 0, ...batch };
      });
      return seen;
    });
    expect(counts).toEqual(["float64 2", "float32 1", "float64 1", "float32 9"]);
  });
});

describe("the mean", () => {
  test("weighs ranks by their samples, also zero, and gives loss, norm and samples", async () => {
    const results = await run(3, async (comm) => {
      const model = await trainer(comm);
      // Sums over samples: rank 0 has one of 1, rank 1 three of 5 in two micro-batches, rank 2 none.
      const batches = [
        [{ samples: 1, loss: 2 }],
        [
          { samples: 2, loss: 5 },
          { samples: 1, loss: 1 },
        ],
        [],
      ];
      const stats = await model.step(batches[comm.rank]!, (batch, ready) =>
        gradients(all(comm.rank === 0 ? 1 : 5 * batch.samples))(batch, ready),
      );
      return { stats, gradients: [...model.parameters.gradients("float32")] };
    });
    for (const { stats, gradients: found } of results) {
      expect(found).toEqual(new Array(6).fill(4));
      const { stepMs, ...rest } = stats;
      expect(rest).toEqual({
        step: 1,
        loss: 2,
        gradientNorm: Math.sqrt(6 * 16),
        clip: 1,
        samples: 4,
        weight: 4,
        unused: [],
      });
      expect(stepMs).toBeGreaterThanOrEqual(0);
    }
  });

  test("is reported with the time of this rank's step", async () => {
    const times = await run(2, async (comm) => {
      let nowMs = 1000;
      const model = await trainer(comm, { now: () => nowMs });
      const stats = await model.step([...one, ...one], (batch, ready) => {
        nowMs += 5 + comm.rank;
        return gradients(all(1))(batch, ready);
      });
      return stats.stepMs;
    });
    expect(times).toEqual([10, 12]);
  });

  test("divides by weights where samples weigh differently, and takes means by their scale", async () => {
    const found = await run(2, async (comm) => {
      const model = await trainer(comm);
      const stats = await model.step(
        [{ samples: 3, loss: 3, weight: comm.rank === 0 ? 0.5 : 0.25 }],
        (batch, ready) => {
          // Mean gradients of 8, over half a unit of weight and over a quarter.
          for (const { name, length } of model.parameters) {
            ready(name, new Float64Array(length).fill(8), batch.weight);
          }
          return batch;
        },
      );
      return [stats.loss, stats.samples, stats.weight, ...model.parameters.gradients("float32")];
    });
    expect(found[0]).toEqual([8, 6, 0.75, 8, 8, 8, 8, 8, 8]);
  });

  test("is clipped by its whole norm, not parameter by parameter", async () => {
    const [found] = await run(2, async (comm) => {
      const model = await trainer(comm, { maxGradientNorm: 2.5 });
      const stats = await model.step(
        one,
        gradients({ a: 3 + comm.rank * 0, b: 0, c: Math.sqrt(16 / 3) }),
      );
      return { stats, values: [...model.parameters.gradients("float32")] };
    });
    expect(found!.stats.gradientNorm).toBeCloseTo(5, 6);
    expect(found!.stats.clip).toBeCloseTo(0.5, 6);
    expect(found!.values[0]).toBeCloseTo(1.5, 6);
    // The norm of the mean: of gradients that cancel each other it is 0, though none of the norms is.
    const [cancelled] = await run(2, async (comm) =>
      (await trainer(comm)).step(one, gradients(all(comm.rank === 0 ? 1 : -1))),
    );
    expect(cancelled!.gradientNorm).toBe(0);
  });

  test.each([1e-200, 1e200])(
    "has a norm where squares leave the range of doubles: %d",
    async (unit) => {
      const [norm] = await run(2, async (comm) => {
        const set = new ParameterSet([{ name: "w", shape: [2], dtype: "float64" }]);
        const model = await DataParallel.create(comm, set);
        const step = await model.step(one, (batch, ready) => {
          ready("w", Float64Array.of(3 * unit, 4 * unit));
          return { loss: 0, ...batch };
        });
        return step.gradientNorm;
      });
      expect(Math.abs(norm! / (5 * unit) - 1)).toBeLessThan(1e-15);
    },
  );
});

describe("arguments that are refused on all ranks, and leave them in step", () => {
  /** A step that fails, its errors by rank, and a good one after it. */
  const recovers = async (
    options: DataParallelOptions,
    bad: (comm: Communicator, model: DataParallel) => Promise<unknown>,
  ): Promise<unknown[]> =>
    run(3, async (comm) => {
      const model = await trainer(comm, options);
      const error = await bad(comm, model).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect([...model.parameters.gradients("float32")]).toEqual(new Array(6).fill(0));
      const { step } = await model.step(one, gradients(all(2)));
      expect(step).toBe(1);
      expect([...model.parameters.gradients("float32")]).toEqual(new Array(6).fill(2));
      return error;
    });

  test("a parameter without a gradient on a rank that had samples", async () => {
    const errors = await recovers({}, (comm, model) =>
      model.step(comm.rank === 1 ? [] : one, gradients(comm.rank === 2 ? { b: 1 } : all(1))),
    );
    for (const error of errors) {
      expect(error).toBeInstanceOf(UnusedParametersError);
      expect(error).toMatchObject({ parameters: ["a", "c"], ranks: [2], code: "ERR_COMM_UNUSED" });
      expect((error as Error).message).toMatch(/2 parameters got no gradient[\s\S]*a +on rank 2/);
    }
  });

  test("a gradient that is not finite, by name, also with the largest elements alone", async () => {
    for (const wire of ["full", "float16", { topK: 1 }] as const) {
      const errors = await recovers({ wire }, (comm, model) =>
        model.step(one, gradients(comm.rank === 1 ? { ...all(1), c: Number.NaN } : all(1))),
      );
      for (const error of errors) {
        expect(error).toBeInstanceOf(NonFiniteGradientError);
        expect(error).toMatchObject({ parameters: ["c"], code: "ERR_COMM_NONFINITE" });
      }
    }
    const [kept] = await run(2, async (comm) =>
      (await trainer(comm, { nonFinite: "keep" })).step(one, gradients(all(Number.NaN))),
    );
    expect(kept!.gradientNorm).toBeNaN();
  });

  test("a sum that leaves the range of float16, with a remedy", async () => {
    const [error] = await recovers({ wire: "float16" }, (_, model) =>
      model.step(one, gradients(all(40_000))),
    );
    expect((error as Error).message).toMatch(/choose a wireScale below 1/);
    const [fine] = await run(3, async (comm) => {
      const model = await trainer(comm, { wire: "float16", wireScale: 1 / 8 });
      await model.step(one, gradients(all(40_000)));
      return model.parameters.get("a").gradient[0];
    });
    expect(fine).toBe(40_000);
  });

  test("weights with a sum beyond the range of numbers, by which all gradients would be zero", async () => {
    const batch = { samples: 1, weight: Number.MAX_VALUE };
    const errors = await recovers({}, (_, model) => model.step([batch], gradients(all(1))));
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "weight" });
      expect((error as Error).message).toContain("step: weight: found a sum of Infinity, needs");
    }
  });

  test("a step without a sample on any rank", async () => {
    const errors = await recovers({}, (_, model) => model.step([], gradients({})));
    for (const error of errors) expect((error as Error).message).toMatch(/no rank had a sample/);
  });
});

test("unused parameters are zeros by choice, and those without any use are reported", async () => {
  const results = await run(2, async (comm) => {
    const model = await trainer(comm, { unused: "zeros", bucketBytes: 4 });
    const stats = await model.step(one, gradients(comm.rank === 0 ? { a: 4 } : { a: 2, b: 6 }));
    return [...stats.unused, ...model.parameters.gradients("float32")];
  });
  expect(results).toEqual(new Array(2).fill(["c", 3, 3, 3, 0, 0, 0]));
});

describe("arguments that are refused on the rank that gives them", () => {
  const refused: [string, RegExp, (ready: Ready) => unknown][] = [
    ["an unknown parameter", /"d": no parameter/, (ready) => ready("d", new Float32Array(1))],
    [
      "no array",
      /a: found a gradient that is an array, needs a Float32Array/,
      (ready) => ready("a", [1] as never),
    ],
    [
      "a gradient that is too long",
      /b: found a gradient of 3 elements, needs exactly 2/,
      (ready) => ready("b", new Float32Array(3)),
    ],
    [
      "a gradient that is too short",
      /c: found a gradient of 2 elements/,
      (ready) => ready("c", new Float32Array(2)),
    ],
    [
      "a second gradient",
      /a: found a second gradient/,
      (ready) => {
        ready("a", new Float32Array(1));
        ready("a", new Float32Array(1));
      },
    ],
    [
      "a scale that is not finite",
      /a scale of Infinity/,
      (ready) => ready("a", new Float32Array(1), 1 / 0),
    ],
    ["samples that are no count", /samples: found -1/, () => ({ loss: 0, samples: -1 })],
    [
      "a weight that is none",
      /weight: found NaN/,
      () => ({ loss: 0, samples: 1, weight: Number.NaN }),
    ],
    ["no loss", /loss: found undefined/, () => ({ samples: 1 })],
    ["nothing", /micro-batch 0: loss: found undefined/, () => undefined],
  ];
  test.each(refused)("%s", async (_, message, act) => {
    const found = await failures(
      run(2, async (comm) => {
        const model = await trainer(comm);
        await model.step(one, (batch, ready) => {
          if (comm.rank === 0) return gradients(all(1))(batch, ready);
          return act(ready) as never;
        });
      }),
    );
    expect(found.map(({ rank }) => rank)).toEqual([0, 1]);
    expect(found[0]!.error).toMatchObject({ code: "ERR_COMM_REMOTE" });
    expect(found[1]!.error).toBeInstanceOf(InvalidArgumentError);
    expect((found[1]!.error as Error).message).toMatch(message);
  });

  test("the set's own gradient memory, and a gradient after its micro-batch", async () => {
    const [own] = await failures(
      run(1, async (comm) => {
        const model = await trainer(comm);
        await model.step(one, (batch, ready) => {
          ready("a", model.parameters.get("a").gradient);
          return { loss: 0, ...batch };
        });
      }),
    );
    expect((own!.error as Error).message).toMatch(/found a gradient in the set's own memory/);
    await run(1, async (comm) => {
      const model = await trainer(comm);
      let late: Ready | undefined;
      await model.step(one, (batch, ready) => {
        late = ready;
        return gradients(all(1))(batch, ready);
      });
      expect(() => late?.("a", new Float32Array(1))).toThrow(/its micro-batch is over/);
      const failed = model.step(one, (_, ready) => {
        late = ready;
        throw new Error("halfway");
      });
      await expect(failed).rejects.toThrow("halfway");
      // It would be sent, where other ranks wait for the bucket of a step that goes on.
      expect(() => late?.("a", new Float32Array(1))).toThrow(/its micro-batch is over/);
    });
  });
});

test("after a call that could not be made the step makes no further calls", async () => {
  // Calls of rank 0: four to start; the buckets are 4, 5 and 6.
  const world = await createWorld({ backend: sim({ faults: [failAt(0, 5)] }), size: 3 });
  const calls: string[] = [];
  const found = await failures(
    world.run(async (comm) => {
      const set = new ParameterSet(["a", "b", "c"].map((name) => ({ name, shape: [2] })));
      const model = await DataParallel.create(comm, set, { bucketBytes: 8 });
      comm.hooks.before(({ collective }) => comm.rank === 0 && calls.push(collective));
      await model.step(one, (batch, ready) => {
        for (const name of ["c", "b", "a"]) ready(name, new Float32Array(2));
        return { loss: 0, ...batch };
      });
    }),
  );
  await world.close();
  expect(found.map(({ error }) => (error as { code?: string }).code)).toEqual([
    "ERR_COMM_FAULT",
    "ERR_COMM_REMOTE",
    "ERR_COMM_REMOTE",
  ]);
  expect(calls).toEqual(["allReduce"]);
});
