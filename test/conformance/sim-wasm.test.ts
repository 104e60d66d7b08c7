/** The simulation with its fast executor, by itself and with threads that are called for every call. */
import { sim, wasm } from "twinccl/sim";
import { WasmExecutor } from "../../src/backends/sim/executors/wasm/wasm.ts";
import { someSizes } from "./sizes.ts";
import { worldsConform } from "./worlds.ts";

const capabilities = {
  hostArrays: true,
  virtualTime: true,
  deterministic: true,
  symmetricMemory: true,
  ownStreams: true,
};

worldsConform({
  name: "sim(wasm)",
  keepsWorlds: true,
  backend: () => sim({ executor: wasm() }),
  sizes: someSizes,
  capabilities,
});

worldsConform({
  name: "sim(wasm), 3 threads",
  keepsWorlds: true,
  backend: () => sim({ executor: new WasmExecutor({ threads: 3, crossover: 0 }) }),
  sizes: [3],
  capabilities,
});
