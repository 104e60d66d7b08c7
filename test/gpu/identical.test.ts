/** The same program gives the same bits on GPUs and on simulations. */
import fc from "fast-check";
import { nccl } from "twinccl/nccl";
import { sim } from "twinccl/sim";
import { identical } from "../property/identical.ts";
import { claimedBits, takenByNccl } from "../support/claimed-programs.ts";
import { gpuSizes } from "./machine.ts";

const sizes = fc.constantFrom(...(await gpuSizes()));

identical(
  [
    { name: "sim ring", plan: "ring", open: () => sim() },
    { name: "sim linear", plan: "any", open: () => sim({ algorithms: { allReduce: "linear" } }) },
    { name: "nccl", plan: "ring", open: () => nccl(), keepsWorlds: true, takes: takenByNccl },
  ],
  {
    runs: { exact: 40, bits: 60 },
    programs: { exact: { sizes, maxSplits: 1 }, bits: { ...claimedBits, sizes, maxSplits: 1 } },
  },
);
