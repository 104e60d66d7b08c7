/** Wrong calls and rebuilds in one process, on the simulation. */
import { sim } from "twinccl/sim";
import { oneProcess } from "./one-process.ts";

oneProcess({ name: "sim", backend: () => sim(), size: 4, cycles: 10 });
oneProcess({ name: "sim of one rank", backend: () => sim(), size: 1, cycles: 3 });
