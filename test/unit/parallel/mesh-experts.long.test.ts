/** Data, pipeline, experts and sharded state combined come out where one rank with everything does. */
import { createWorld } from "twinccl";
import { cpu, sim, wasm } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { type MixturePlan, mixtureAlone, trainMixture } from "../../support/mixture-mesh-run.ts";

const STEPS = 50;

async function onRanks(backend: ReturnType<typeof sim>, plan: MixturePlan) {
  const world = await createWorld({ backend, size: plan.data * 2 * plan.expert });
  try {
    return await world.run((comm) => trainMixture(comm, plan, STEPS));
  } finally {
    await world.close();
  }
}

function expectClose(found: readonly number[], expected: readonly number[], what: string): void {
  const largest = Math.max(...expected.map(Math.abs));
  expect(found.length, what).toBe(expected.length);
  for (const [at, each] of found.entries()) {
    expect(Math.abs(each - expected[at]!), what).toBeLessThanOrEqual(1e-10 * largest);
  }
}

describe.each<MixturePlan>([
  { data: 2, expert: 2, zero: 1 },
  { data: 2, expert: 2, zero: 2 },
  { data: 2, expert: 2, zero: 3 },
  { data: 1, expert: 3, zero: 3 },
  { data: 3, expert: 1, zero: 2 },
])("50 steps of a mixture behind a pipeline on a mesh of %j", (plan) => {
  test("equal the one-rank run; bit-equal on all ranks, in every run and executor", async () => {
    const alone = mixtureAlone(plan, STEPS);
    expect(alone.losses.at(-1)).toBeLessThan(0.95 * alone.losses[0]!);
    const ranks = await onRanks(sim({ seed: 1, executor: cpu() }), plan);
    const seen: Record<string, number[]> = {};
    for (const { losses, values } of ranks) {
      expectClose(losses, alone.losses, "losses");
      for (const [name, each] of Object.entries(values)) {
        expect(each, name).toEqual(seen[name] ?? each);
        seen[name] = each;
      }
    }
    expect(Object.keys(seen).sort()).toEqual(Object.keys(alone.values).sort());
    for (const [name, each] of Object.entries(alone.values)) expectClose(seen[name]!, each, name);
    expect(alone.dropped).toBeGreaterThan(10);
    expect(ranks.reduce((sum, { dropped }) => sum + dropped, 0)).toBe(alone.dropped);
    expect(await onRanks(sim({ seed: 2, executor: wasm() }), plan)).toEqual(ranks);
  });
});
