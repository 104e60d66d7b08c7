/** The conformance suite on the GPUs of this machine. */
import { nccl } from "twinccl/nccl";
import { worldsConform } from "../conformance/worlds.ts";
import { gpuSizes } from "./machine.ts";

const sizes = await gpuSizes();

worldsConform({
  name: "nccl",
  backend: () => nccl(),
  keepsWorlds: true,
  sizes: [...new Set([1, Math.min(2, sizes.length), Math.min(3, sizes.length), sizes.length])],
  foldsAsExplained: false,
  capabilities: {
    hostArrays: false,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
    ownStreams: true,
  },
});
