/** `twinccl start`, which `npm start` runs: the tables of the main collectives, simulated, over TCP and on GPUs, with every result checked. */

import type { Backend, CollectiveName } from "../api/index.ts";
import {
  type BenchResult,
  bench,
  environment,
  environmentText,
  measuredCollectives,
  tableFoot,
  tableHead,
  tableRow,
  tally,
  tallyText,
} from "../bench/index.ts";
import { namedBackend } from "./backends.ts";
import type { Command, Context } from "./context.ts";
import { parseOptions } from "./options.ts";
import { runTcp } from "./start-tcp.ts";
import { sweep } from "./verify/sweep.ts";

const ranks = 8;

/** The shown calls. The number of timed calls keeps the whole below 15 s on two cores. */
const demoCalls = {
  sizes: { min: 8, max: 2 ** 24, factor: 2 },
  iterations: 10,
  warmup: 3,
} as const;

const parts = [
  { collective: "allReduce", title: "ring all-reduce", algorithms: { allReduce: "ring" } },
  { collective: "allToAllv", title: "skewed all-to-allv (spread 0.5)", algorithms: {} },
] as const;

/** One table. */
interface Part {
  readonly collective: CollectiveName;
  readonly title: string;
  readonly algorithms: Readonly<Record<string, string>>;
}

/** The `start` command. */
export const command: Command = {
  help: `Usage: twinccl start

Measures a ring all-reduce and a skewed all-to-allv among 8 simulated ranks from 8 B to 16 MiB, then
an all-reduce between 2 processes over TCP, and checks every result. With 2 or more GPUs it measures
NCCL's all-reduce too, and compares the bits of all collectives that are planned with those of the
simulation.

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
  const isTcpFine = await runTcp(context);
  const isNcclFine = await runNccl(context);
  const sum = tally(results);
  context.out(`${tallyText(sum, ranks)}\n`);
  return sum.wrong === 0 && isTcpFine && isNcclFine ? 0 : 1;
}

/** Number of GPUs for an NCCL world here, and the reason of the limit. */
async function gpuCount({ backends }: Context): Promise<{ gpus: number; reason: string }> {
  let reason = "there is no such backend";
  let gpus = 0;
  const { nccl } = await backends();
  const backend = await nccl?.({});
  for (let size = 2; size <= ranks; size++) {
    const probe = await backend?.probe({ size, name: "start" });
    if (probe?.ok !== true) return { gpus, reason: probe?.reason ?? reason };
    gpus = size;
    reason = probe.reason;
  }
  return { gpus, reason };
}

/** The cases compared with the simulation: counts at both ends of chunks and channels, that round in every order. */
const comparedCases = {
  collectives: ["allReduce", "reduceScatter", "reduce", "allGather", "broadcast"],
  dtypes: ["float32", "bfloat16", "int32"],
  ops: ["sum", "avg"],
  elements: [1, 33, 20_011, 300_007],
} as const;

/**
 * With two GPUs, prints NCCL's table and compares its bits with the simulation's; otherwise one line with the reason. True
 * without errors.
 */
async function runNccl(context: Context): Promise<boolean> {
  const { gpus, reason } = await gpuCount(context);
  if (gpus < 2) {
    context.out(`# NCCL's table is left out: ${reason}\n`);
    return true;
  }
  const backend = await namedBackend(await context.backends(), "nccl", {});
  const part = { collective: "allReduce", title: "all-reduce of NCCL", algorithms: {} } as const;
  const measured = tally(await runPart(part, context, { backend, size: gpus }));
  context.out(`${tallyText(measured, gpus)}\n`);
  let identical = 0;
  let all = 0;
  const found = sweep({
    a: { name: "nccl", backend },
    b: { name: "sim", backend: await namedBackend(await context.backends(), "sim", {}) },
    rows: measuredCollectives.filter(({ collective }) =>
      (comparedCases.collectives as readonly string[]).includes(collective),
    ),
    dtypes: comparedCases.dtypes,
    ops: comparedCases.ops,
    elements: comparedCases.elements,
    maxRanks: gpus,
    seed: 0,
    onProgress: context.progress,
  });
  for await (const { first, ...each } of found) {
    if (first !== undefined) context.out(`# different: ${first}\n`);
    identical += each.identical;
    all += each.results;
  }
  context.out(`bits: ${identical} of ${all} identical\n`);
  return measured.wrong === 0 && identical === all;
}

async function runPart(
  { collective, title, algorithms }: Part,
  context: Context,
  gpus?: { readonly backend: Backend; readonly size: number },
): Promise<readonly BenchResult[]> {
  const style = { simulated: gpus === undefined };
  const where = gpus === undefined ? `${ranks} ranks, simulated` : `${gpus.size} GPUs, driven`;
  context.out(`#\n# ${title}: ${where} in this one process\n`);
  context.out(tableHead(style));
  const { results } = await bench({
    ...demoCalls,
    backend: gpus?.backend ?? (await namedBackend(await context.backends(), "sim", { algorithms })),
    collective,
    ranks: gpus?.size ?? ranks,
    onProgress: context.progress,
    onResult: (result) => context.out(tableRow(result)),
  });
  context.out(tableFoot(results, style));
  return results;
}
