/**
 * The suite between a test and a launched job. The simulation's ranks live in one process, so its jobs have one rank;
 * `test/gpu/conformance-processes.test.ts` has more.
 */
import { fileURLToPath } from "node:url";
import { processesConform } from "./processes.ts";

processesConform({
  name: "sim, in a job",
  backend: "sim",
  script: fileURLToPath(new URL("jobs/sim-rank.mjs", import.meta.url)),
  sizes: [1],
  capabilities: {
    hostArrays: true,
    virtualTime: true,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
});
