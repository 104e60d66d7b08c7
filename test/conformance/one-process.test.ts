/** Wrong calls and rebuilds in one process, on the simulation and on the NCCL backend over fakes. */
import { sim } from "twinccl/sim";
import { fakeGpus } from "../support/fake-gpus/index.ts";
import { oneProcess } from "./one-process.ts";

oneProcess({ name: "sim", backend: () => sim(), size: 4, cycles: 10 });
oneProcess({ name: "sim of one rank", backend: () => sim(), size: 1, cycles: 3 });
oneProcess({
  name: "nccl on fakes",
  backend: () => fakeGpus().backend(),
  size: 3,
  cycles: 10,
});
