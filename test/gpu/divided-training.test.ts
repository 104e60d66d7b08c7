/** Divided models leave the simulation's bits on GPUs: every kind of division, and fifty steps of meshes. */
import { nccl } from "twinccl/nccl";
import { sim } from "twinccl/sim";
import { describe, expect } from "vitest";
import { dividedRuns, runDivided } from "../support/divided-runs.ts";
import { type MeshPlan, runMesh } from "../support/mesh-run.ts";
import { gpuSizes, testOn } from "./machine.ts";

const here = (await gpuSizes()).length;

describe.each(dividedRuns)("$name", (run) => {
  testOn(run.size, here)("has the simulation's bits", async () => {
    expect(await runDivided(nccl(), run)).toEqual(await runDivided(sim(), run));
  });
});

describe.each<MeshPlan>([
  { data: 2, pipeline: 1, tensor: 2, zero: 3 },
  { data: 2, pipeline: 2, tensor: 1, zero: 3 },
  { data: 1, pipeline: 2, tensor: 2, zero: 1 },
  { data: 2, pipeline: 2, tensor: 2, zero: 1 },
  { data: 2, pipeline: 2, tensor: 2, zero: 2 },
  { data: 2, pipeline: 2, tensor: 2, zero: 3 },
  { data: 4, pipeline: 2, tensor: 1, zero: 3 },
])("fifty steps on a mesh of %j", (plan) => {
  testOn(plan.data * plan.pipeline * plan.tensor, here)("leave the same bits", async () => {
    expect(await runMesh(nccl(), plan, 50)).toEqual(await runMesh(sim(), plan, 50));
  });
});
