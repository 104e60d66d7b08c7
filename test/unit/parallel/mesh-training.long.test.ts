/** Data, pipeline, tensor and sharded state combined come out where one rank with everything does. */
import type { Tensor } from "twinccl/parallel";
import { cpu, sim, wasm } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { largestNorm, type MeshPlan, runMesh, trainedAlone } from "../../support/mesh-run.ts";

const STEPS = 50;

const alone = trainedAlone(STEPS);

test("a part of the steps of the one-rank run is clipped, and it learns", () => {
  const clipped = alone.norms.filter((norm) => norm > largestNorm).length;
  expect(clipped).toBeGreaterThan(3);
  expect(clipped).toBeLessThan(STEPS - 3);
  expect(alone.losses.at(-1)).toBeLessThan(alone.losses[0]! - 0.1);
});

function expectClose(found: ArrayLike<number>, expected: ArrayLike<number>, what: string): void {
  const largest = Math.max(...Array.from(expected, Math.abs));
  expect(found.length, what).toBe(expected.length);
  for (let at = 0; at < expected.length; at++) {
    expect(Math.abs(found[at]! - expected[at]!), what).toBeLessThanOrEqual(1e-10 * largest);
  }
}

describe.each<MeshPlan>([
  { data: 2, pipeline: 2, tensor: 2, zero: 1 },
  { data: 2, pipeline: 2, tensor: 2, zero: 2 },
  { data: 2, pipeline: 2, tensor: 2, zero: 3 },
  { data: 2, pipeline: 2, tensor: 2, zero: 2, visits: false },
  // Lines of 2, 1 and 1 micro-batches.
  { data: 3, pipeline: 2, tensor: 1, zero: 1 },
  { data: 3, pipeline: 2, tensor: 1, zero: 3 },
  { data: 2, pipeline: 3, tensor: 1, zero: 3 },
  { data: 4, pipeline: 1, tensor: 2, zero: 3 },
  { data: 3, pipeline: 1, tensor: 2, zero: 2 },
  { data: 3, pipeline: 1, tensor: 2, zero: 3 },
])("50 steps on a mesh of %j", (plan) => {
  test("equal the one-rank run; bit-equal on all ranks, in every run and executor", async () => {
    const ranks = await runMesh(sim({ seed: 1, executor: cpu() }), plan, STEPS);
    const all: Record<string, Tensor> = {};
    for (const { losses, norms, tensors } of ranks) {
      expectClose(losses, alone.losses, "losses");
      expectClose(norms, alone.norms, "norms");
      expect(norms).toEqual(ranks[0]!.norms);
      for (const [name, tensor] of Object.entries(tensors)) {
        expect(tensor, name).toEqual(all[name] ?? tensor);
        all[name] = tensor;
      }
    }
    for (const [name, { data }] of Object.entries(alone.tensors)) {
      // A key's bias has no gradient but rounding: the softmax does not see it.
      if (!name.endsWith("key.bias")) expectClose(all[name]!.data, data, name);
    }
    expect(await runMesh(sim({ seed: 2, executor: wasm() }), plan, STEPS)).toEqual(ranks);
  });
});
