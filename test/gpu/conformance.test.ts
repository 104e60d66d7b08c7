/** The conformance suite on the GPUs of this machine. */
import { nccl } from "twinccl/nccl";
import { conformance } from "../conformance/suite.ts";
import { gpuSizes } from "./machine.ts";

const sizes = await gpuSizes();

conformance({
  name: "nccl",
  backend: () => nccl(),
  keepsWorlds: true,
  sizes: [...new Set([1, Math.min(2, sizes.length), Math.min(3, sizes.length), sizes.length])],
  capabilities: {
    hostArrays: false,
    virtualTime: false,
    deterministic: true,
    symmetricMemory: true,
  },
});
