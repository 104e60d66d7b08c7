/** The same program gives the same bits, on simulations; `test/gpu/identical.test.ts` has the row with GPUs. */
import { sim } from "twinccl/sim";
import { identical, type Subject } from "./identical.ts";

/** A new backend, executor or recording is one more row. */
const subjects: readonly Subject[] = [
  { name: "sim ring", plan: "ring", open: () => sim() },
  { name: "sim ring, seed 1", plan: "ring", open: () => sim({ seed: 1 }) },
  { name: "sim ring, seed per size", plan: "ring", open: (size) => sim({ seed: -977 * size }) },
  { name: "sim linear", plan: "linear", open: () => sim({ algorithms: { allReduce: "linear" } }) },
  {
    name: "sim linear, other resume order",
    plan: "linear",
    open: () => sim({ seed: 0xfedcba, algorithms: { allReduce: "linear" } }),
  },
];

identical(subjects, {
  runs: { exact: 250, bits: 350 },
  programs: { exact: {}, bits: { payload: "bits" } },
});
