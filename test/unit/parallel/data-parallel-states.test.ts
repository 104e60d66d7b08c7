/** States of a trainer: possible steps, pending gradients, and numbers beyond float64. */
import { type Communicator, createWorld, type WorldError } from "twinccl";
import {
  DataParallel,
  type DataParallelOptions,
  ParameterSet,
  type Ready,
  type State,
} from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { openBuffers } from "../../support/open-buffers.ts";

async function run<T>(size: number, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

const names = ["a", "b", "toString"];
const trainer = (comm: Communicator, options: DataParallelOptions = {}): Promise<DataParallel> =>
  DataParallel.create(comm, new ParameterSet(names.map((name) => ({ name, shape: [2] }))), options);

const reportingFirst = (values: readonly number[]) => (_: unknown, ready: Ready) => {
  for (const [at, name] of names.entries()) ready(name, Float32Array.of(values[at]!, 1));
  return { loss: 0, samples: 1 };
};
const fine = reportingFirst([3, 3, 3]);

describe("another step is refused", () => {
  test("after one that failed in the middle", async () => {
    await run(1, async (comm) => {
      const model = await trainer(comm);
      const broken = model.step([1], () => {
        throw new Error("out of coffee");
      });
      await expect(broken).rejects.toThrow("out of coffee");
      expect([...model.parameters.gradients("float32")]).toEqual(new Array(6).fill(0));
      const after = model.step([1], fine);
      await expect(after).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      await expect(after).rejects.toThrow(/an earlier step failed: out of coffee/);
    });
  });

  test("after a gradient that was refused: ranks may be out of step", async () => {
    await run(1, async (comm) => {
      const model = await trainer(comm);
      const broken = model.step([1], (_, ready) => {
        ready("a", new Float32Array(3));
        return { loss: 0, samples: 1 };
      });
      await expect(broken).rejects.toMatchObject({ code: "ERR_COMM_ARG" });
      const after = model.step([1], fine);
      await expect(after).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      await expect(after).rejects.toThrow(/an earlier step failed: ready: a: found/);
    });
  });

  test("during a step, and so is other state; afterwards neither is", async () => {
    await run(1, async (comm) => {
      const model = await trainer(comm);
      const state = model.state();
      const running = model.step([1], fine);
      await expect(model.step([1], fine)).rejects.toThrow(/step: a step is still running/);
      expect(() => model.restore(state)).toThrow(/restore: a step is still running/);
      await expect(running).resolves.toMatchObject({ step: 1 });
      await expect(model.step([1], fine)).resolves.toMatchObject({ step: 2 });
      model.restore(state);
      await expect(model.step([1], fine)).resolves.toMatchObject({ step: 1 });
    });
  });

  test("after disposal, which completes a running step and then frees its buffers", async () => {
    const sums = await run(3, async (comm) => {
      const open = openBuffers(comm);
      const model = await trainer(comm, { bucketBytes: 8 });
      expect(open()).toBe(3);
      const running = model.step([1], fine);
      model[Symbol.dispose]();
      await expect(running).resolves.toMatchObject({ step: 1 });
      const after = model.step([1], fine);
      await expect(after).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      await expect(after).rejects.toThrow(/it was disposed/);
      expect(open()).toBe(0);
      model[Symbol.dispose]();
      return [...model.parameters.gradients("float32")];
    });
    expect(sums).toEqual(new Array(3).fill([3, 1, 3, 1, 3, 1]));
  });

  test("with invalid arguments, before any call: the next step may follow", async () => {
    const wrong: [unknown, unknown, RegExp][] = [
      [undefined, fine, /microBatches: found undefined, needs an array/],
      [new Set([1]), fine, /microBatches: found an object/],
      [[1], "backward", /backward: found "backward", needs a function/],
    ];
    await run(2, async (comm) => {
      const model = await trainer(comm);
      for (const [batches, backward, message] of wrong) {
        const step = model.step(batches as [], backward as typeof fine);
        await expect(step).rejects.toMatchObject({ code: "ERR_COMM_ARG" });
        await expect(step).rejects.toThrow(message);
      }
      await expect(model.step([1], fine)).resolves.toMatchObject({ step: 1 });
    });
  });
});

test("all ranks that cancel a step at the same place continue with another trainer", async () => {
  for (const wire of ["full", "bfloat16", { topK: 0.5 }] as const) {
    const sums = await run(3, async (comm) => {
      const model = await trainer(comm, { bucketBytes: 8, wire });
      const broken = model.step([1], (_, ready) => {
        ready("toString", Float32Array.of(1, 2));
        throw new Error("out of tea");
      });
      await expect(broken).rejects.toThrow("out of tea");
      model[Symbol.dispose]();
      const other = await trainer(comm);
      await other.step([1], fine);
      return [...other.parameters.gradients("float32")];
    });
    expect(sums).toEqual(new Array(3).fill([3, 1, 3, 1, 3, 1]));
  }
});

describe("a norm beyond float64", () => {
  const step = (options: DataParallelOptions) =>
    run(2, async (comm) => {
      const set = new ParameterSet([{ name: "w", shape: [3], dtype: "float64" }]);
      const model = await DataParallel.create(comm, set, { maxGradientNorm: 1, ...options });
      const { clip, gradientNorm } = await model.step(comm.rank === 0 ? [1] : [], (_, ready) => {
        ready("w", new Float64Array(3).fill(1.5e308));
        return { loss: 0, samples: 1 };
      });
      return { clip, gradientNorm, gradient: [...set.get("w").gradient] };
    });

  test("is refused on all ranks, though every element is finite", async () => {
    const error = (await step({}).catch((thrown: unknown) => thrown)) as WorldError;
    expect(error.failures).toHaveLength(2);
    for (const each of error.failures) {
      expect(each.error).toMatchObject({ code: "ERR_COMM_NONFINITE", parameters: [] });
      expect((each.error as Error).message).toMatch(/the norm of the mean gradient is not finite/);
    }
  });

  test("does not clip the gradient to zero where it is passed on", async () => {
    for (const found of await step({ nonFinite: "keep" })) {
      const gradient = new Array(3).fill(1.5e308);
      expect(found).toEqual({ clip: 1, gradientNorm: Number.POSITIVE_INFINITY, gradient });
    }
  });
});

describe("the unsent rest of a rank", () => {
  const wire = { topK: 0.1 };
  /** The state after a step that sent one element of six, and owes the rest. */
  const owing = (comm: Communicator): Promise<State> =>
    trainer(comm, { wire }).then(async (model) => {
      await model.step([1], reportingFirst([8, 4, 2]));
      return model.state();
    });
  const owed = ({ tensors }: State): number[] =>
    Object.values(tensors).flatMap(({ data }) => [...(data as Float32Array)]);

  test("is restored under any name, also where none was kept", async () => {
    await run(1, async (comm) => {
      const state = await owing(comm);
      expect(Object.keys(state.tensors)).toEqual(["toString", "b", "a"]);
      expect(owed(state)).toEqual([2, 1, 4, 1, 0, 1]);
      const model = await trainer(comm, { wire });
      model.restore(state);
      expect(owed(model.state())).toEqual(owed(state));
      model.restore({ values: { step: 3 }, tensors: {} });
      expect(owed(model.state())).toEqual([0, 0, 0, 0, 0, 0]);
    });
  });

  test("is unchanged after a step that is refused", async () => {
    await run(2, async (comm) => {
      const model = await trainer(comm, { wire });
      await model.step([1], reportingFirst([8, 4, 2]));
      const before = owed(model.state());
      for (const backward of [
        reportingFirst([Number.NaN, 4, 2]),
        (_: unknown, ready: Ready) => {
          ready("a", Float32Array.of(5, 5));
          return { loss: 0, samples: 1 };
        },
      ]) {
        await expect(model.step([1], backward)).rejects.toThrow(/gradient/);
        expect(owed(model.state())).toEqual(before);
      }
      // The next step sends what a trainer sends that never made the others.
      await model.step([1], reportingFirst([0, 0, 0]));
      const other = await trainer(comm, { wire });
      await other.step([1], reportingFirst([8, 4, 2]));
      await other.step([1], reportingFirst([0, 0, 0]));
      expect(owed(model.state())).toEqual(owed(other.state()));
    });
  });

  test("is not lost in a trainer that would not send it", async () => {
    await run(1, async (comm) => {
      const state = await owing(comm);
      for (const [other, message] of [
        [await trainer(comm), /residual of "toString": found float32 \[2\] of 2, needs none/],
        [
          await DataParallel.create(comm, new ParameterSet([{ name: "b", shape: [2] }]), { wire }),
          /residual of "toString": found float32 \[2\] of 2, needs none/,
        ],
      ] as const) {
        expect(() => other.restore(state)).toThrow(message);
        expect(other.state().values).toEqual({ step: 0 });
      }
      // What is not owed is not missed.
      const paid = await trainer(comm, { wire });
      const full = await trainer(comm);
      full.restore({ ...paid.state(), values: { step: 4 } });
      expect(full.state().values).toEqual({ step: 4 });
    });
  });

  test.each<[string, Partial<State["tensors"][string]>]>([
    ["shape", { shape: [1, 2] }],
    ["dtype", { dtype: "float64", data: new Float64Array(2) }],
    ["length", { shape: [3], data: new Float32Array(3) }],
  ])("of another %s is refused by name, and stays unchanged", async (_, change) => {
    await run(1, async (comm) => {
      const state = await owing(comm);
      const model = await trainer(comm, { wire });
      const { a, ...others } = state.tensors;
      const wrong = { ...state, tensors: { ...others, a: { ...a!, ...change } } };
      expect(() => model.restore(wrong)).toThrow(/residual of "a": found float/);
      expect(owed(model.state())).toEqual([0, 0, 0, 0, 0, 0]);
      expect(model.state().values).toEqual({ step: 0 });
    });
  });
});
