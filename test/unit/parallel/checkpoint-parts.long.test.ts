/** The parts of a job in a checkpoint: their state at the moment of the call, and all of them or none back. */
import { CollectiveMismatchError, type Communicator, createWorld, WorldError } from "twinccl";
import {
  CheckpointError,
  type CheckpointParts,
  Checkpoints,
  memoryFiles,
  Optimizer,
  type ParameterDeclaration,
  ParameterSet,
  Random,
  type RankStateful,
  ShardedParallel,
  type State,
  type StateValue,
  sgd,
} from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

async function run<T>(size: number, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

/** The first failure of a run. */
async function fault(running: Promise<unknown>): Promise<Error> {
  const error = await running.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(WorldError);
  return (error as WorldError).failures[0]!.error as Error;
}

/** A part that has this state. */
const part = (state: Partial<State>): RankStateful => ({
  state: () => ({ values: {}, tensors: {}, ...state }),
  restore: () => {},
  reshard: () => {},
});

const modelOf = (value: number, lengths: Record<string, number> = { w: 9, b: 2 }): ParameterSet => {
  const names = Object.entries(lengths);
  const model = new ParameterSet(names.map(([name, length]) => ({ name, shape: [length] })));
  for (const { value: values } of model) values.fill(value);
  return model;
};
const valuesOf = (model: ParameterSet): number[] => [...model.values("float32")];

describe("a save", () => {
  test("has the state at the call, whatever changes before it resolves", async () => {
    const files = memoryFiles();
    const save = async (comm: Communicator): Promise<void> => {
      const model = modelOf(1);
      const [random, live] = [new Random(comm.rank), { list: [1] }];
      const parts = {
        shared: { model, live: part({ values: live }) },
        perRank: { random, own: part({ values: live }) },
      };
      const saving = new Checkpoints(comm, files).save(1, parts);
      let done = false;
      const changing = (async () => {
        for (let turn = 0; !done; turn++) {
          model.get("w").value[turn % 9]! += 1 + comm.rank;
          live.list.push(random.word());
          await new Promise((resolve) => setImmediate(resolve));
        }
      })();
      await saving.finally(() => {
        done = true;
      });
      await changing;
    };
    await run(3, save);
    const found = await run(3, async (comm) => {
      const [model, random] = [modelOf(0), new Random(99)];
      const lists: StateValue[] = [];
      const keeps = {
        ...part({}),
        restore: ({ values }: State) => void lists.push(values["list"]!),
      };
      const parts = { shared: { model, live: keeps }, perRank: { random, own: keeps } };
      await new Checkpoints(comm, files).load(parts);
      return { values: valuesOf(model), lists, word: random.word() };
    });
    for (const [rank, { values, lists, word }] of found.entries()) {
      expect(values).toEqual(new Array(11).fill(1));
      expect(lists).toEqual([[1], [1]]);
      expect(word).toBe(new Random(rank).word());
    }
  });

  test("is one at a time, like a load, since a second one would take the same number", async () => {
    await run(1, async (comm) => {
      const checkpoints = new Checkpoints(comm, memoryFiles());
      const parts = { shared: { model: modelOf(1) } };
      const first = checkpoints.save(1, parts);
      await expect(checkpoints.save(2, parts)).rejects.toThrow(
        /save: a save of these checkpoints is still running/,
      );
      await expect(checkpoints.load(parts)).rejects.toThrow(/load: a save of these/);
      await expect(first).resolves.toMatchObject({ save: 1 });
      await expect(checkpoints.save(2, parts)).resolves.toMatchObject({ save: 2 });
      await expect(checkpoints.save(-1, parts)).rejects.toThrow(/step: found -1/);
      await expect(checkpoints.load(parts)).resolves.toMatchObject({ save: 2 });
    });
  });

  test("takes parts with names in another order on another rank", async () => {
    const files = memoryFiles();
    await run(3, async (comm) => {
      const model = modelOf(2);
      const own = comm.rank === 1 ? [...model].toReversed() : model;
      const optimizer = new Optimizer(own, sgd({ learningRate: 1, momentum: 0.5 }));
      optimizer.step();
      const parts: CheckpointParts = {
        shared: comm.rank === 2 ? { optimizer, model } : { model, optimizer },
      };
      await new Checkpoints(comm, files).save(1, parts);
      optimizer.step();
      await new Checkpoints(comm, files).load(parts);
      expect(optimizer.steps).toBe(1);
    });
  });

  test("compares all of a large tensor", async () => {
    const length = 5_000_000;
    for (const at of [0, 2 ** 22 - 1, 2 ** 22, length - 1]) {
      const saving = run(3, async (comm) => {
        const data = new Float32Array(length);
        if (comm.rank === 2) data[at] = 1;
        const tensors = { t: { dtype: "float32", shape: [length], data } } as const;
        await new Checkpoints(comm, memoryFiles()).save(1, { shared: { p: part({ tensors }) } });
      });
      const error = await fault(saving);
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "p/t", ranks: [2] });
    }
  });

  test("refuses a share larger than a file holds", async () => {
    // Untouched zeros take no memory.
    const data = new Uint8Array(2 ** 31);
    const tensors = { t: { dtype: "uint8", shape: [2 ** 31], data } } as const;
    const saving = run(1, (comm) =>
      new Checkpoints(comm, memoryFiles()).save(1, { shared: { p: part({ tensors }) } }),
    );
    const error = await fault(saving);
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "parts" });
    expect(error.message).toMatch(/the share of rank 0: found 2147483648 bytes, needs at most/);
  });

  const refused: [string, Partial<State>, RegExp][] = [
    [
      "a map",
      { values: { a: { deep: new Map() as never } } },
      /found a Map as a.deep, needs values/,
    ],
    ["an error", { values: { a: new Error("") as never } }, /found an Error as a/],
    ["a date", { values: { a: new Date(0) as never } }, /found a Date as a/],
    ["a function", { values: { a: (() => 1) as never } }, /found function as a/],
    ["a hole", { values: { a: new Array<number>(2) } }, /found undefined as a.0/],
    ["an integer beyond JSON", { values: { a: 1n as never } }, /found bigint as a/],
    [
      "more data than its shape has",
      { tensors: { t: { dtype: "float32", shape: [3], data: new Float32Array(5) } } },
      /tensor "t" with 5 elements of 4 bytes, needs those of float32 \[3\]/,
    ],
    [
      "fewer data",
      { tensors: { t: { dtype: "float32", shape: [3, 2], data: new Float32Array(5) } } },
      /"t" with 5 elements/,
    ],
    [
      "data of another width",
      { tensors: { t: { dtype: "float32", shape: [2], data: new Float64Array(2) } } },
      /"t" with 2 elements of 8 bytes/,
    ],
  ];
  test.each<[string, unknown]>([
    ["nothing", undefined],
    ["a promise of a state", Promise.resolve({ values: {}, tensors: {} })],
    ["a state without tensors", { values: {} }],
    ["a state with a tensor that is null", { values: {}, tensors: { t: null } }],
    ["a state with a Map of values", { values: new Map([["x", 1]]), tensors: {} }],
    ["a state with a list of tensors", { values: {}, tensors: [] }],
  ])("refuses %s as the state of a part", async (_, state) => {
    const files = memoryFiles();
    const parts = { shared: { p: { ...part({}), state: () => state as State } } };
    const error = await fault(run(1, (comm) => new Checkpoints(comm, files).save(1, parts)));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "p" });
    expect(error.message).toMatch(/^save: p: found .* as its state, needs \{ values, tensors \}/);
    expect(await files.list("")).toEqual([]);
  });

  test.each(refused)("refuses %s, in either kind of part", async (_, state, message) => {
    for (const kind of ["shared", "perRank"] as const) {
      const parts = { shared: {}, [kind]: { p: part(state) } };
      const files = memoryFiles();
      const error = await fault(run(1, (comm) => new Checkpoints(comm, files).save(1, parts)));
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "p" });
      expect(error.message).toMatch(message);
      expect(await files.list("")).toEqual([]);
    }
  });

  test("keeps names of built-in properties", async () => {
    const files = memoryFiles();
    const own: string = "__proto__";
    const named = [own, "constructor", "toString"];
    const lengths = Object.fromEntries(named.map((name) => [name, 3]));
    await run(2, async (comm) => {
      const parts = (value: number) => {
        const model = modelOf(value, lengths);
        return { shared: { [own]: model }, perRank: { [own]: new Random(value) } };
      };
      const checkpoints = new Checkpoints(comm, files);
      await checkpoints.save(1, parts(7));
      const found = parts(0);
      await checkpoints.load(found);
      expect(valuesOf(found.shared[own]!)).toEqual(new Array(9).fill(7));
      expect(found.perRank[own]!.word()).toBe(new Random(7).word());
    });
  });
});

describe("a load that a part refuses", () => {
  const old = () => ({ a: modelOf(-1), b: modelOf(-2) });

  test.each([1, 2, 3])("on one rank is refused on all, and undone: on %i ranks", async (size) => {
    const files = memoryFiles();
    const fine = part({});
    await run(2, async (comm) => {
      const parts = { shared: { a: modelOf(1), b: modelOf(2) }, perRank: { own: fine } };
      await new Checkpoints(comm, files).save(1, parts);
    });
    const errors = await run(size, async (comm) => {
      const { a, b } = old();
      const refuse = (): void => {
        if (comm.rank === size - 1) throw new Error("not mine");
      };
      const own = { ...fine, restore: refuse, reshard: refuse };
      const checkpoints = new Checkpoints(comm, files);
      const error = await checkpoints.load({ shared: { a, b }, perRank: { own } }).catch((e) => e);
      expect([...valuesOf(a), ...valuesOf(b)]).toEqual([
        ...new Array(11).fill(-1),
        ...new Array(11).fill(-2),
      ]);
      // The ranks are in step: the next call meets.
      await checkpoints.load({ shared: { a, b }, perRank: { own: fine } });
      expect(valuesOf(b)).toEqual(new Array(11).fill(2));
      return error as CheckpointError;
    });
    for (const [rank, error] of errors.entries()) {
      expect(error).toBeInstanceOf(CheckpointError);
      expect(error.message).toMatch(/load: part "own" refuses its state: not mine/);
      expect(error.ranks).toEqual([size - 1]);
      expect(error.cause === undefined).toBe(rank !== size - 1);
    }
  });

  test.each(["shared", "perRank"] as const)("%s, by a promise", async (kind) => {
    const files = memoryFiles();
    const both = (a: ParameterSet, late: RankStateful) =>
      kind === "shared" ? { shared: { a, late } } : { shared: { a }, perRank: { late } };
    const saved = both(modelOf(1), part({}));
    await run(2, (comm) => new Checkpoints(comm, files).save(1, saved));
    const later = () => Promise.reject(new Error("later"));
    for (const size of [2, 3]) {
      const errors = await run(size, async (comm) => {
        const { a } = old();
        const late = { ...part({}), restore: later, reshard: later };
        const parts = both(a, late as RankStateful);
        const error = await new Checkpoints(comm, files).load(parts).catch((e) => e);
        expect(valuesOf(a)).toEqual(new Array(11).fill(-1));
        return error as CheckpointError;
      });
      for (const error of errors) {
        expect(error).toBeInstanceOf(CheckpointError);
        expect(error.message).toMatch(/load: part "late": found a promise[\s\S]*synchronous/);
      }
    }
  });

  test("leaves the earlier state unchanged: a model of another shape", async () => {
    const files = memoryFiles();
    await run(2, async (comm) => {
      const checkpoints = new Checkpoints(comm, files);
      await checkpoints.save(1, { shared: { a: modelOf(1), b: modelOf(2) } });
      const [a, b] = [modelOf(-1), modelOf(-2, { w: 9, b: 3 })];
      const error = await checkpoints.load({ shared: { a, b } }).catch((thrown) => thrown);
      expect(error).toMatchObject({ code: "ERR_COMM_CHECKPOINT", ranks: [0, 1] });
      expect(error.cause).toMatchObject({ code: "ERR_COMM_ARG", field: "b" });
      expect(error.message).toMatch(
        /part "b" refuses.* parameter "b": found float32 \[2\], needs float32 \[3\]/,
      );
      expect(valuesOf(a)).toEqual(new Array(11).fill(-1));
    });
  });

  const saved = { name: "w", dtype: "float64", shape: [2, 3], momentum: 0.5 } as const;
  const lengths = /float64 with \d elements, needs float32 with \d elements/;
  const others: readonly (ParameterDeclaration & { momentum: number; found: RegExp })[] = [
    { ...saved, dtype: "float32", found: lengths },
    { ...saved, shape: [3, 2], found: /a range of \[2,3\], needs a range of \[3,2\]/ },
    { ...saved, momentum: 0, found: /w\/velocity.*, needs no/ },
  ];
  test.each(others.flatMap((each) => [2, 3].map((size) => ({ ...each, size }))))(
    "leaves the earlier state unchanged: sharded, of $dtype $shape with momentum $momentum on $size ranks",
    async ({ found, size, ...loaded }) => {
      const files = memoryFiles();
      const partsOf = async (
        comm: Communicator,
        { momentum, ...declared }: ParameterDeclaration & { readonly momentum: number },
      ) => {
        const rule = sgd({ learningRate: 1, momentum });
        const model = new ParameterSet([declared]);
        const trainer = await ShardedParallel.create(comm, model, { stage: 2, rule });
        return { model, trainer, parts: { shared: {}, perRank: { trainer } } };
      };
      await run(2, async (comm) => {
        const values = [1.1, 2.2, 3.3, 4.4, 5.5, 6.6];
        const { parts } = await partsOf(comm, { ...saved, values });
        await new Checkpoints(comm, files).save(1, parts);
      });
      await run(size, async (comm) => {
        const { model, trainer, parts } = await partsOf(comm, loaded);
        const loading = new Checkpoints(comm, files).load(parts);
        await expect(loading).rejects.toMatchObject({ code: "ERR_COMM_CHECKPOINT" });
        await expect(loading).rejects.toThrow(found);
        await trainer.gatherValues();
        expect([...model.get("w").value]).toEqual(new Array(6).fill(0));
      });
    },
  );

  test.each([1, 2, 3])(
    "leaves the earlier state unchanged: sharded, without a saved parameter on %i ranks",
    async (size) => {
      const files = memoryFiles();
      const partsOf = async (comm: Communicator, names: readonly string[]) => {
        const model = new ParameterSet(names.map((name) => ({ name, shape: [3] })));
        const rule = sgd({ learningRate: 1, momentum: 0.5 });
        const trainer = await ShardedParallel.create(comm, model, { stage: 1, rule });
        return { shared: {}, perRank: { trainer } };
      };
      await run(2, async (comm) => {
        await new Checkpoints(comm, files).save(1, await partsOf(comm, ["a", "b"]));
      });
      await run(size, async (comm) => {
        const loading = new Checkpoints(comm, files).load(await partsOf(comm, ["a"]));
        await expect(loading).rejects.toMatchObject({ code: "ERR_COMM_CHECKPOINT" });
        await expect(loading).rejects.toThrow(/: b: found /);
      });
    },
  );
});

test("invalid numbers are refused, and a list of damaged saves is a typed error", async () => {
  await run(1, async (comm) => {
    const files = memoryFiles();
    for (const keep of [0, 1.5, Number.NaN]) {
      expect(() => new Checkpoints(comm, files, { keep })).toThrow(/keep: found/);
    }
    const checkpoints = new Checkpoints(comm, files);
    for (const save of [0, -1, 1.5, "x" as never]) {
      const loading = checkpoints.load({ shared: {} }, { save });
      await expect(loading).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "save" });
    }
    await files.write("save-00000003/manifest.json", Uint8Array.of(1));
    const listing = checkpoints.list();
    await expect(listing).rejects.toBeInstanceOf(CheckpointError);
    await expect(listing).rejects.toThrow(/list: "save-00000003\/manifest.json" is torn/);
  });
});

test("ranks that request different saves get none", async () => {
  const files = memoryFiles();
  await run(3, async (comm) => {
    const checkpoints = new Checkpoints(comm, files);
    const model = modelOf(1);
    await checkpoints.save(1, { shared: { model } });
    await checkpoints.save(2, { shared: { model } });
    const options = comm.rank === 1 ? { save: 1 } : {};
    const loading = checkpoints.load({ shared: { model } }, options);
    await expect(loading).rejects.toBeInstanceOf(CollectiveMismatchError);
    await expect(loading).rejects.toMatchObject({ field: "save", ranks: [1] });
  });
});

test("a part that one rank alone has is not saved", async () => {
  const saving = run(3, async (comm) => {
    const perRank: Record<string, RankStateful> = comm.rank === 1 ? {} : { own: new Random(1) };
    await new Checkpoints(comm, memoryFiles()).save(1, { shared: {}, perRank });
  });
  const error = await fault(saving);
  expect(error).toBeInstanceOf(CollectiveMismatchError);
  expect(error).toMatchObject({ field: "perRank own", ranks: [1] });
});
