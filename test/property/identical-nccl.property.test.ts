/** The NCCL backend over fakes moves every program's data as the simulation does; the fakes fold in an order of their own. */
import fc from "fast-check";
import { sim } from "twinccl/sim";
import { claimedBits, takenByNccl } from "../support/claimed-programs.ts";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { identical, type Subject } from "./identical.ts";

const sizes = fc.integer({ min: 1, max: 4 });
const subjects: readonly Subject[] = [
  { name: "sim", plan: "any", open: () => sim() },
  {
    name: "nccl on fakes",
    plan: "any",
    open: () => fakeGpus().backend(),
    keepsWorlds: true,
    takes: takenByNccl,
  },
  {
    name: "nccl on fakes, arrays copied",
    plan: "any",
    open: () => fakeGpus({ staging: "copy" }).backend(),
    keepsWorlds: true,
    takes: takenByNccl,
  },
];

identical(subjects, {
  runs: { exact: 300, bits: 0 },
  programs: { exact: { sizes, symmetric: true }, bits: claimedBits },
});
