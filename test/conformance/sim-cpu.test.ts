/** The simulation with its reference executor. */
import { cpu, sim } from "twinccl/sim";
import { worldsConform } from "./worlds.ts";

worldsConform({
  name: "sim(cpu)",
  keepsWorlds: true,
  backend: () => sim({ executor: cpu() }),
  sizes: [1, 2, 3, 8],
  capabilities: {
    hostArrays: true,
    virtualTime: true,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
});

worldsConform({
  name: "sim(cpu), linear",
  backend: () => sim({ executor: cpu(), seed: 9, algorithms: { allReduce: "linear" } }),
  sizes: [1, 5],
  capabilities: {
    hostArrays: true,
    virtualTime: true,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
});
