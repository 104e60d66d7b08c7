/** Parameters unlike others: frozen ones, one without elements, one that two layers use, and arrays of another realm. */
import { runInNewContext } from "node:vm";
import {
  adamW,
  DataParallel,
  decodeTensors,
  ExpertParallel,
  encodeTensors,
  gatherTensor,
  Optimizer,
  ParameterServer,
  ParameterSet,
  type Ready,
  routeTopK,
  ShardedParallel,
  type ShardingStage,
  sgd,
  splitTensor,
  type Visit,
} from "twinccl/parallel";
import { linear, type Pass } from "twinccl/parallel/models";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";

const rule = adamW({ learningRate: 0.1, weightDecay: 0.5 });
const stages: readonly ShardingStage[] = [1, 2, 3];

describe("frozen parameters stay, and the others have the values of a run without them:", () => {
  const declared = [
    { name: "base", shape: [3], values: [3, 4, 5] },
    { name: "head", shape: [2], values: [1, 2] },
  ];
  const backward = async (_: unknown, ready: Ready, visit?: Visit) => {
    for (const layer of ["base", "head", "head"]) await visit?.(layer);
    ready("head", Float32Array.of(1, -3));
    await visit?.("base");
    return { loss: 0, samples: 1 };
  };
  const valuesOf = (model: ParameterSet) => [...model].map(({ value }) => [...value]);
  const alone = () => {
    const head = new ParameterSet([declared[1]!]);
    const optimizer = new Optimizer(head, rule);
    for (let step = 0; step < 4; step++) {
      head.get("head").gradient.set([1, -3]);
      optimizer.step();
    }
    return [[3, 4, 5], ...valuesOf(head)];
  };

  test("skipped where no rank had a gradient", async () => {
    const found = await inWorld(3, async (comm) => {
      const model = new ParameterSet(declared);
      const trainer = await DataParallel.create(comm, model, { unused: "zeros" });
      const optimizer = new Optimizer(model, rule);
      for (let step = 0; step < 4; step++) {
        const { unused } = await trainer.step([1], (each, ready) => backward(each, ready));
        optimizer.step({ skip: unused });
      }
      return valuesOf(model);
    });
    expect(found).toEqual(new Array(3).fill(alone()));
  });

  test.each(stages)("by a rule without state at stage %i", async (stage) => {
    const ruleOf = ({ name }: { name: string }) =>
      name === "base" ? sgd({ learningRate: 0 }) : rule;
    const found = await inWorld(3, async (comm) => {
      const model = new ParameterSet(declared);
      const options = { stage, rule: ruleOf, unused: "zeros" } as const;
      const trainer = await ShardedParallel.create(comm, model, options);
      for (let step = 0; step < 4; step++) await trainer.step([1], backward);
      await trainer.gatherValues();
      // Two state arrays of this rank's one element of the head.
      expect(trainer.memory.optimizer.nowBytes).toBe(comm.rank < 2 ? 8 : 0);
      return valuesOf(model);
    });
    expect(found).toEqual(new Array(3).fill(alone()));
  });
});

test.each(stages)("one without elements, as in an uneven division, at stage %i", async (stage) => {
  await inWorld(3, async (comm) => {
    const model = new ParameterSet([
      { name: "none", shape: [0, 4] },
      { name: "w", shape: [2] },
    ]);
    const trainer = await ShardedParallel.create(comm, model, { stage, rule });
    await trainer.step([1], async (_, ready, visit) => {
      for (const layer of ["none", "w", "w"]) await visit(layer);
      ready("w", Float32Array.of(1, 1));
      await visit("none");
      ready("none", new Float32Array(0));
      return { loss: 0, samples: 1 };
    });
    await trainer.gatherValues();
    expect([...model.get("none").value]).toEqual([]);
    expect(trainer.learningRate("none")).toBe(0.1);
    expect(() => trainer.learningRate("unknown")).toThrow(/no parameter has this name/);
  });
});

describe("a parameter that two layers use trains by the sum of both parts", () => {
  const start = [0.5, -0.25, 1, 2];
  const [input, target] = [
    [1, 2],
    [3, -1],
  ];
  /** y = w · (w · x): its loss and gradient, written out. */
  const expected = () => {
    const w = [...start] as [number, number, number, number];
    const apply = ([a, b]: readonly number[]) => [w[0] * a! + w[1] * b!, w[2] * a! + w[3] * b!];
    for (let step = 0; step < 3; step++) {
      const hidden = apply(input!);
      const gap = apply(hidden).map((each, at) => 2 * (each - target![at]!));
      const below = [w[0] * gap[0]! + w[2] * gap[1]!, w[1] * gap[0]! + w[3] * gap[1]!];
      const slopes = [0, 1, 2, 3].map(
        (at) => gap[at >> 1]! * hidden[at & 1]! + below[at >> 1]! * input![at & 1]!,
      );
      for (const [at, slope] of slopes.entries()) w[at] = w[at]! - 0.01 * slope;
    }
    return w;
  };

  test.each(stages)("at stage %i", async (stage) => {
    const found = await inWorld(2, async (comm) => {
      const declaration = { name: "w", dtype: "float64", shape: [2, 2], values: start } as const;
      const model = new ParameterSet([declaration]);
      const options = { stage, rule: sgd({ learningRate: 0.01 }) };
      const trainer = await ShardedParallel.create(comm, model, options);
      const layer = linear({ weight: model.get("w"), inputs: 2, outputs: 2 });
      const extent = { sequences: 1, length: 1 };
      for (let step = 0; step < 3; step++) {
        await trainer.step([1], async (_, ready, visit) => {
          await visit("w");
          const first = layer.forward(Float64Array.from(input!), extent);
          const second: Pass = layer.forward(first.output, extent);
          const gap = second.output.map((each, at) => 2 * (each - target![at]!));
          await visit("w");
          let part: Float32Array | Float64Array | undefined;
          const above = second.backward(gap, (_name, gradient) => {
            part = gradient;
          });
          first.backward(above, (name, gradient) => {
            ready(
              name,
              gradient.map((each, at) => each + part![at]!),
            );
          });
          return { loss: 0, samples: 1 };
        });
      }
      await trainer.gatherValues();
      return [...model.get("w").value];
    });
    for (const values of found) {
      for (const [at, each] of expected().entries()) expect(values[at]).toBeCloseTo(each, 13);
    }
  });
});

// Jest runs tests in a realm of its own: clones and contents of files come from another one.
test("arrays of another realm are taken by their own dtype", async () => {
  const [Floats, Integers, Bytes] = ["Float32Array", "Int32Array", "Uint8Array"].map((name) =>
    runInNewContext(name),
  ) as [Float32ArrayConstructor, Int32ArrayConstructor, Uint8ArrayConstructor];
  const one = Floats.of(1, 2);
  expect(one).not.toBeInstanceOf(Float32Array);
  await inWorld(2, async (comm) => {
    const model = new ParameterSet([{ name: "w", shape: [2], values: one }]);
    const trainer = await DataParallel.create(comm, model);
    await trainer.step([1], (_, ready) => {
      ready("w", one);
      return { loss: 0, samples: 1 };
    });
    expect([...model.get("w").gradient]).toEqual([1, 2]);
    const server = await ParameterServer.create(comm, model, { rule, staleness: 1 });
    if (server.isServer) await server.serve();
    else {
      await expect(server.push(await server.pull(), { w: one })).resolves.toMatchObject({
        accepted: true,
      });
      await server.leave();
    }
    const part = splitTensor({ shape: [2], data: one }, 0, comm);
    const whole = await gatherTensor(comm, part, 0);
    expect(whole.data).toEqual(Float32Array.of(1, 2));
    const experts = await ExpertParallel.create(comm, { experts: 2, width: 1, capacity: 2 });
    const routes = routeTopK(Floats.of(1, 2, 3, 4), { experts: 2 });
    await experts.dispatch(one, { ...routes, experts: new Integers(routes.experts) });
  });
  const parameter = { name: "w", dtype: "float32", shape: [2], value: one, gradient: one } as const;
  const { tensors } = new Optimizer([parameter], rule).state();
  expect(Object.values(tensors).map(({ data }) => data)).toEqual([
    new Float32Array(2),
    new Float32Array(2),
  ]);
  const layer = linear({ weight: { name: "w", value: one }, inputs: 2, outputs: 1 });
  expect(layer.forward(one, { sequences: 1, length: 1 }).output).toEqual(Float32Array.of(5));
  const file = new Bytes(
    encodeTensors({ tensors: { w: { dtype: "float32", shape: [2], data: one } }, metadata: {} }),
  );
  expect(decodeTensors(file).tensors["w"]?.data).toEqual(Float32Array.of(1, 2));
});
