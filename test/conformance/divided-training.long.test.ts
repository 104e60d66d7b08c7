/** Divided models have the same bits in every executor of the simulation, and on fakes of NCCL, which are left clean. */
import { cpu, type Executor, sim, wasm } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { WasmExecutor } from "../../src/backends/sim/executors/wasm/wasm.ts";
import { dividedRuns, runDivided, runsOfPairs } from "../support/divided-runs.ts";
import { fakeGpus } from "../support/fake-gpus/index.ts";

const executors: readonly (readonly [string, () => Executor])[] = [
  ["wasm, one thread", () => wasm({ threads: 1 })],
  // Threads are called for the smallest call.
  ["wasm, three threads", () => new WasmExecutor({ threads: 3, crossover: 0 })],
];

describe.each(dividedRuns)("$name", (run) => {
  test("has the bits of plain typed arrays on every executor", async () => {
    const expected = await runDivided(sim({ seed: 1, executor: cpu() }), run);
    for (const [name, executor] of executors) {
      const found = await runDivided(sim({ seed: 2, executor: executor() }), run);
      expect(found, name).toEqual(expected);
    }
  });
});

test("another fold order changes the bits on three ranks, so equality is a real check", async () => {
  const run = dividedRuns.find(({ name }) => name.includes("1 × 2 × 3"))!;
  const other = sim({ algorithms: { allReduce: "linear" } });
  expect(await runDivided(other, run)).not.toEqual(await runDivided(sim(), run));
});

describe.each(runsOfPairs)("$name, on fakes of NCCL", (run) => {
  test("has the simulation's bits, and releases every resource", async () => {
    const gpus = fakeGpus();
    expect(await runDivided(gpus.backend(), run)).toEqual(await runDivided(sim(), run));
    expect(gpus.machine.complaints).toEqual([]);
    expect(gpus.machine.leaks()).toEqual([]);
  });
});
