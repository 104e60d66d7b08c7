/** Wire formats of gradients: rounding of 16-bit floats, the largest elements, and training through either. */
import { getFloat16, setFloat16 } from "@petamoriken/float16";
import fc from "fast-check";
import { type Communicator, createWorld } from "twinccl";
import {
  DataParallel,
  type DataParallelOptions,
  Optimizer,
  ParameterSet,
  type State,
  sgd,
} from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { halfBits, halfValue, largestIndexes } from "../../../src/parallel/data-parallel/wire.ts";
import { inWorld } from "../../support/in-world.ts";
import { naiveRun, type Sample, SmallNetwork } from "../../support/small-network.ts";

const memory = new DataView(new ArrayBuffer(8));

describe("16-bit floats", () => {
  test("every value of both survives encoding and decoding", () => {
    const differing: unknown[] = [];
    const judge = (dtype: "float16" | "bfloat16", bits: number, value: number): void => {
      const isRead = Object.is(halfValue(dtype, bits), value);
      const isWritten = Number.isNaN(value) || halfBits(dtype, value) === bits;
      if (!isRead || !isWritten) differing.push({ dtype, bits });
    };
    for (let bits = 0; bits < 0x10000; bits++) {
      memory.setUint16(0, bits);
      judge("float16", bits, getFloat16(memory, 0));
      memory.setUint32(0, bits << 16);
      judge("bfloat16", bits, memory.getFloat32(0));
    }
    expect(differing).toEqual([]);
    expect(halfBits("float16", Number.NaN)).toBe(0x7e00);
    expect(halfBits("bfloat16", Number.NaN)).toBe(0x7fc0);
  });

  /** Numbers around the ties of 16-bit floats, which a detour through float32 would round twice. */
  const nearTies = fc
    .tuple(fc.nat(0x7fff), fc.constantFrom(0, 2 ** -30, -(2 ** -30), 2 ** -11, 0.25), fc.boolean())
    .map(([bits, off, negative]) => ({ bits, off, sign: negative ? -1 : 1 }));

  test("float16 rounds any double once, as another library does", () => {
    const agrees = (value: number): void => {
      setFloat16(memory, 0, value);
      const expected = Number.isNaN(value) ? 0x7e00 : memory.getUint16(0);
      expect(halfBits("float16", value)).toBe(expected);
    };
    fc.assert(fc.property(fc.double({ min: -70_000, max: 70_000 }), agrees), {
      numRuns: 2000,
      seed: 1,
    });
    fc.assert(fc.property(fc.double(), agrees), { numRuns: 500, seed: 2 });
    fc.assert(
      fc.property(nearTies, ({ bits, off, sign }) => {
        const [low, high] = [halfValue("float16", bits), halfValue("float16", bits + 1)];
        if (Number.isFinite(low) && Number.isFinite(high)) {
          agrees(sign * ((low + high) / 2 + off * (high - low)));
        }
      }),
      { numRuns: 3000, seed: 3 },
    );
  });

  test("bfloat16 rounds any double to the nearer neighbour, to the even one at a tie", () => {
    fc.assert(
      fc.property(nearTies, ({ bits, off, sign }) => {
        const [low, high] = [halfValue("bfloat16", bits), halfValue("bfloat16", bits + 1)];
        if (!Number.isFinite(low) || !Number.isFinite(high)) return;
        const value = (low + high) / 2 + off * (high - low);
        const even = bits % 2 === 0 ? bits : bits + 1;
        const nearer = off > 0 ? bits + 1 : bits;
        // Below the last double, what is added gets lost: then it is a tie, or the higher neighbour itself.
        const expected = value === (low + high) / 2 ? even : nearer;
        if (value === high) return;
        expect(halfBits("bfloat16", sign * value)).toBe(expected | (sign < 0 ? 0x8000 : 0));
      }),
      { numRuns: 3000, seed: 4 },
    );
  });
});

test("the largest elements are those that sorting gives, lower places first", () => {
  const values = fc.array(fc.oneof(fc.integer({ min: -3, max: 3 }), fc.double()), {
    maxLength: 60,
  });
  fc.assert(
    fc.property(values, fc.nat(60), (list, at) => {
      const k = Math.min(at, list.length);
      const size = (place: number): number =>
        Number.isNaN(list[place]) ? Number.POSITIVE_INFINITY : Math.abs(list[place]!);
      const places = list.map((_, place) => place);
      const sorted = places.sort((a, b) =>
        size(a) === size(b) ? a - b : size(a) > size(b) ? -1 : 1,
      );
      const expected = sorted.slice(0, k).sort((a, b) => a - b);
      expect([...largestIndexes(Float64Array.from(list), k)]).toEqual(expected);
    }),
    { numRuns: 1000, seed: 5 },
  );
});

/** Steps of descent without momentum on some ranks; the losses, and the trainers' states at the end. */
async function train(
  size: number,
  network: SmallNetwork,
  batches: readonly (readonly Sample[])[],
  options: DataParallelOptions,
): Promise<{ losses: number[]; states: State[]; values: number[] }> {
  const world = await createWorld({ backend: sim(), size });
  const program = async (
    comm: Communicator,
  ): Promise<{ losses: number[]; state: State; values: number[] }> => {
    const set = new ParameterSet(network.declarations(5));
    const values = new Map([...set].map(({ name, value }) => [name, value]));
    const trainer = await DataParallel.create(comm, set, { bucketBytes: 128, ...options });
    const losses: number[] = [];
    for (const batch of batches) {
      const mine = batch.filter((_, at) => at % size === comm.rank);
      const stats = await trainer.step([mine], (samples, ready) => ({
        loss: network.backward(values, samples, ready),
        samples: samples.length,
      }));
      losses.push(stats.loss);
      for (const { value, gradient } of set) {
        for (let at = 0; at < value.length; at++) value[at]! -= 0.25 * gradient[at]!;
      }
    }
    return { losses, state: trainer.state(), values: [...set].flatMap(({ value }) => [...value]) };
  };
  const ranks = await world.run(program);
  await world.close();
  for (const { values, losses } of ranks)
    expect({ values, losses }).toEqual({ values: ranks[0]!.values, losses: ranks[0]!.losses });
  return { ...ranks[0]!, states: ranks.map(({ state }) => state) };
}

describe("training", () => {
  const network = new SmallNetwork([4, 6, 2], "float32");
  const batches = Array.from({ length: 40 }, (_, at) => network.samples(16, at % 5));
  const expected = naiveRun(network, 5, batches, { rate: 0.25, momentum: 0 });

  test.each<[string, DataParallelOptions, number]>([
    ["float16", { wire: "float16" }, 0.02],
    ["float16, scaled", { wire: "float16", wireScale: 2 ** -6 }, 0.02],
    ["bfloat16", { wire: "bfloat16" }, 0.1],
    ["a quarter of the elements", { wire: { topK: 0.25 } }, 0.5],
  ])("by %s converges to the result of full gradients", async (_, options, slack) => {
    const { losses } = await train(4, network, batches, options);
    const [last, full] = [losses.at(-1)!, expected.losses.at(-1)!];
    expect(last).not.toBe(full);
    expect(Math.abs(last - full) / full).toBeLessThan(slack);
    expect(last).toBeLessThan(losses[0]! / 2);
  });

  test("by all elements is training by full gradients, in the order of ranks", async () => {
    const exact = new SmallNetwork([4, 6, 2], "float32", 2 ** -10);
    const some = batches.slice(0, 10);
    const full = await train(3, exact, some, {});
    const most = await train(3, exact, some, { wire: { topK: 1 } });
    expect(most.values).toEqual(full.values);
    for (const { tensors } of most.states) {
      for (const { data } of Object.values(tensors))
        expect([...data].every((each) => each === 0)).toBe(true);
    }
    expect(full.states[0]!.tensors).toEqual({});
  });

  test("sends the rest to a parameter that has no gradient any more, and does not skip it", async () => {
    const values = await inWorld(2, async (comm) => {
      const set = new ParameterSet([
        { name: "v", shape: [1] },
        { name: "w", shape: [4] },
      ]);
      const options = { wire: { topK: 0.4 }, unused: "zeros" } as const;
      const trainer = await DataParallel.create(comm, set, options);
      const optimizer = new Optimizer(set, sgd({ learningRate: 1 }));
      const unused: (readonly string[])[] = [];
      for (let step = 0; step < 3; step++) {
        const stats = await trainer.step([0], (_, ready) => {
          if (step === 0) ready("w", Float32Array.of(4, 3, 2, 1));
          ready("v", Float32Array.of(0));
          return { loss: 0, samples: 1 };
        });
        optimizer.step({ skip: stats.unused });
        unused.push(stats.unused);
      }
      return { unused, w: [...set.get("w").value] };
    });
    const expected = { unused: [[], [], ["w"]], w: [-4, -3, -2, -1] };
    expect(values).toEqual([expected, expected]);
  });

  test("sends a share that is a whole number of elements as that number", async () => {
    for (const [topK, length, count] of [
      [0.07, 100, 7],
      [0.29, 100, 29],
      [0.011, 1000, 11],
      [0.07, 101, 8],
      [1e-9, 3, 1],
      [1, 3, 3],
    ] as const) {
      const sent = await inWorld(1, async (comm) => {
        const set = new ParameterSet([{ name: "w", shape: [length] }]);
        const trainer = await DataParallel.create(comm, set, { wire: { topK } });
        await trainer.step([0], (_, ready) => {
          ready("w", new Float32Array(length).fill(1));
          return { loss: 0, samples: 1 };
        });
        return Array.from(set.get("w").gradient).filter((each) => each !== 0).length;
      });
      expect(sent, `${topK} of ${length}`).toEqual([count]);
    }
  });

  test("keeps the unsent rest: nothing of a gradient is lost", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (comm) => {
      const set = new ParameterSet([{ name: "w", shape: [6] }]);
      const trainer = await DataParallel.create(comm, set, { wire: { topK: 0.3 } });
      const sent = new Float64Array(6);
      for (let step = 0; step < 5; step++) {
        await trainer.step([0], (_, ready) => {
          ready(
            "w",
            Float32Array.of(1, 2, 3, 4, 5, 6).map((each) => each + comm.rank),
          );
          return { loss: 0, samples: 1 };
        });
        for (let at = 0; at < 6; at++) sent[at]! += 2 * set.get("w").gradient[at]!;
      }
      return { sent: [...sent], state: trainer.state() };
    });
    const owed = results.map(({ state }) => [...(state.tensors["w"]!.data as Float32Array)]);
    const given = [1, 2, 3, 4, 5, 6].map((each) => 5 * (2 * each + 1));
    expect(results[0]!.sent.map((each, at) => each + owed[0]![at]! + owed[1]![at]!)).toEqual(given);
    expect(owed.flat().some((each) => each !== 0)).toBe(true);

    // On another number of ranks the debts are added up, so that their sum stays what it was.
    for (const size of [1, 3]) {
      const other = await createWorld({ backend: sim(), size });
      const states = await other.run(async (comm) => {
        const set = new ParameterSet([{ name: "w", shape: [6] }]);
        const trainer = await DataParallel.create(comm, set, {
          wire: { topK: 0.3 },
          bucketBytes: 8,
        });
        trainer.reshard(
          results.map(({ state }) => state),
          comm.rank,
          size,
        );
        return trainer.state();
      });
      await other.close();
      const sum = [0, 1, 2, 3, 4, 5].map((at) =>
        states.reduce((total, { tensors }) => total + Number(tensors["w"]!.data[at]), 0),
      );
      expect(sum).toEqual([0, 1, 2, 3, 4, 5].map((at) => owed[0]![at]! + owed[1]![at]!));
      expect(states.every(({ values }) => values["step"] === 5)).toBe(true);
    }
    // Ranks that stopped after different steps have no common one.
    const [first, last] = results.map(({ state }) => state);
    const torn = [first!, { ...last!, values: { step: 4 } }];
    await inWorld(1, async (comm) => {
      const set = new ParameterSet([{ name: "w", shape: [6] }]);
      const trainer = await DataParallel.create(comm, set, { wire: { topK: 0.3 } });
      expect(() => trainer.reshard(torn, 0, 1)).toThrow(
        "reshard: step: found 5 and 4, needs states after one number of steps",
      );
      const residual = { dtype: "float32", shape: [6], data: Float32Array.of(1) } as const;
      const short = [first!, { ...last!, tensors: { w: residual } }];
      expect(() => trainer.reshard(short, 0, 1)).toThrow(
        'reshard: residual of "w": found float32 [6] of 1, needs float32 [6] of 6',
      );
      expect(trainer.state().values["step"]).toBe(0);
    });
    await world.close();
  });
});
