/** `twinccl start`, the main job of `npm start`: the simulated table, every result in it checked. */
import {
  type BenchResult,
  bench,
  environment,
  environmentText,
  tableFoot,
  tableHead,
  tableRow,
  tally,
  tallyText,
} from "../bench/index.ts";
import { namedBackend } from "./backends.ts";
import type { Command, Context } from "./context.ts";
import { parseOptions } from "./options.ts";
import { Progress } from "./progress.ts";

const ranks = 8;

/** What is shown: how many timed calls keep the whole below 15 s on two cores. */
const shown = {
  sizes: { min: 8, max: 2 ** 24, factor: 2 },
  iterations: 10,
  warmup: 3,
} as const;

const parts = [
  { collective: "allReduce", title: "ring all-reduce", algorithms: { allReduce: "ring" } },
  { collective: "allToAllv", title: "skewed all-to-allv (spread 0.5)", algorithms: {} },
] as const;

/** The `start` command. */
export const startCommand: Command = {
  name: "start",
  summary: "measure and check the main collectives on this machine (npm start)",
  help: `Usage: twinccl start

Measures a ring all-reduce and a skewed all-to-allv among 8 simulated ranks from 8 B to 16 MiB and
checks every result.

Example:
  twinccl start

Exit status: 0 when every element is right, 1 when one is wrong.
`,
  run: runStart,
};

async function runStart(args: readonly string[], context: Context): Promise<number> {
  parseOptions(args, {}, 0);
  context.out(`# ${environmentText(environment())}\n`);
  const results: BenchResult[] = [];
  for (const part of parts) results.push(...(await runPart(part, context)));
  const sum = tally(results);
  context.out(`# NCCL's table: ${await ncclText(context)}\n`);
  context.out(`${tallyText(sum, ranks)}\n`);
  return sum.wrong === 0 ? 0 : 1;
}

/** How to get NCCL's table, or why there can be none here. */
async function ncclText({ backends }: Context): Promise<string> {
  const probe = await backends["nccl"]?.({}).probe({ size: 2, name: "start" });
  if (probe?.ok !== true) return `left out: ${probe?.reason ?? "there is no such backend"}`;
  return "twinccl bench all-reduce --backend nccl --processes -g 2 (there are at least 2 GPUs)";
}

async function runPart(
  { collective, title, algorithms }: (typeof parts)[number],
  context: Context,
): Promise<readonly BenchResult[]> {
  const progress = new Progress(context);
  context.out(`#\n# ${title}: ${ranks} ranks, simulated in this one process\n`);
  context.out(tableHead({ simulated: true }));
  const { results } = await bench({
    ...shown,
    backend: namedBackend(context.backends, "sim", { algorithms }),
    collective,
    ranks,
    onProgress: (text) => progress.show(text),
    onResult: (result) => {
      progress.clear();
      context.out(tableRow(result));
    },
  }).finally(() => progress.clear());
  context.out(tableFoot(results, { simulated: true }));
  return results;
}
