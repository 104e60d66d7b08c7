/** The flags of `twinccl bench` and its help. */
import { measuredCollectives } from "../bench/index.ts";
import { algorithmFileHelp, algorithmHelp } from "./algorithm-choice.ts";
import { variantHelp } from "./backends.ts";
import { executorOption } from "./executors.ts";
import { optionLines } from "./options.ts";

/** nccl-tests' letters; long names as there where they are words. */
export const benchOptions = {
  minbytes: { short: "b", value: "SIZE", help: "smallest size, such as 8, 1K or 16M (8)" },
  maxbytes: { short: "e", value: "SIZE", help: "largest size (16M, or SIZE of -b if larger)" },
  stepfactor: { short: "f", value: "N", help: "each size is N times the one before (2)" },
  stepbytes: { short: "i", value: "SIZE", help: "add SIZE from one size to the next instead" },
  ranks: { short: "g", value: "N", help: "number of ranks (8)" },
  iters: { short: "n", value: "N", help: "timed calls of each row (20)" },
  warmup: { short: "w", value: "N", help: "calls before them (5)" },
  check: { short: "c", value: "0|1", help: "compare every result with a naive oracle (1)" },
  dtype: {
    short: "d",
    value: "TYPE",
    help: "element type, nccl-tests' name for it, or all (float32)",
  },
  op: { short: "o", value: "OP", help: "sum, prod, max, min, avg or all (sum)" },
  root: { short: "r", value: "RANK", help: "root, or all (0)" },
  seed: { value: "N", help: "fixes data, traffic and the order of ranks (0)" },
  algorithm: { value: "NAME|FILE", help: algorithmHelp },
  spread: { value: "0..1", help: "how unequal the blocks of a v-form are (0.5)" },
  backend: { value: "NAME", help: "sim or nccl; never another than the one named (sim)" },
  ...executorOption,
  mode: { value: "eager|graph", help: "graph: the timed calls as one recorded graph (eager)" },
  symmetric: { help: "buffers in symmetric memory, for which NCCL has other kernels" },
  latency: { help: "each call alone, until its promise settles: median and 99th percentile" },
  processes: { help: "nccl: start one process for each rank instead of one for all" },
  json: { help: "print one JSON document instead of the table" },
  csv: { help: "print CSV instead of the table" },
  out: { value: "FILE", help: "also write the document (JSON; CSV with --csv) to FILE" },
} as const;

/** `twinccl bench --help`. */
export const benchHelp: string = `Usage: twinccl bench COLLECTIVE [options]

Measures a collective as nccl-tests does, in its columns, and checks every result bit for bit.
COLLECTIVE: ${measuredCollectives.map(({ collective }) => collective).join(" ")}
(all-reduce, all_reduce and allreduce are allReduce, and so on)

${optionLines(benchOptions)}
${algorithmFileHelp}
${variantHelp}
Times are of all ranks' calls together, until the slowest has its result. On the simulation they
are this process's, not a network's; the last column is the time predicted on the virtual clock.
On GPUs the calls of a row are issued back to back and the last one is awaited, as nccl-tests does;
without --processes one process drives all GPUs. Started by twinccl launch, torchrun, mpirun or
srun, every process is one rank, and rank 0 prints. --mode graph records all timed calls in a graph.

Examples:
  twinccl bench all-reduce -b 8 -e 16M
  twinccl bench all-to-allv -b 1M -e 1M -g 16 --spread 0.9 --json
  twinccl bench all-reduce -b 8 -e 512M -f 4 --backend nccl --processes -g 4
  twinccl bench all-reduce -b 8 -e 64K -g 4 --backend nccl --processes --symmetric --mode graph
  twinccl bench all-reduce -b 1K -e 1K -n 500 -g 4 --backend nccl --latency
  twinccl bench all-reduce -g 4 --algorithm ./line.mjs
  twinccl bench reduce-scatter -b 1K -e 1M -d all --backend sim:like=nccl-2.28

Exit status: 0 when every element is right, 1 when one is wrong, 2 for wrong usage.
`;
