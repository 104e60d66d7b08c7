/** The body that GPUs are compared with, on a simulation of another seed, so that it is known to work everywhere. */
import { sim } from "twinccl/sim";
import { sameAsSim } from "./same-as-sim.ts";

sameAsSim({
  name: "sim, seed 5",
  backend: () => sim({ seed: 5 }),
  sizes: [1, 3],
  longest: 10_000,
  seconds: 0,
  command:
    "npx vitest run --mode all --project conformance test/conformance/same-as-sim.long.test.ts",
});
