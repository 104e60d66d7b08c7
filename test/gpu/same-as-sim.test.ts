/**
 * GPUs have the simulation's bits: every collective systematically, then random programs for the rest of a minute.
 * `TWINCCL_SECONDS=<n>` changes how long, `TWINCCL_SEED=<n>` or `random` which.
 */
import { nccl } from "twinccl/nccl";
import { sameAsSim } from "../conformance/same-as-sim.ts";
import { gpuSizes } from "./machine.ts";

const found = await gpuSizes();

sameAsSim({
  name: "nccl",
  backend: () => nccl(),
  sizes: found.filter((size) => size <= 4 || size === found.length),
  longest: 200_000,
  seconds: Number(process.env["TWINCCL_SECONDS"] ?? 60),
  command: "npx vitest run --mode gpu test/gpu/same-as-sim.test.ts",
});
