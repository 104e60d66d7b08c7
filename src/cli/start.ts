/** `twinccl start`, the main job of `npm start`: the simulated table, with every result checked. */

import { Writable } from "node:stream";
import type { Backend, CollectiveName } from "../api/index.ts";
import {
  type BenchDocument,
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
import { PrefixedOutput } from "./launch/report.ts";
import { parseOptions } from "./options.ts";
import { Progress } from "./output.ts";
import { startRanks } from "./placement.ts";
import { type Comparison, sweep } from "./verify/sweep.ts";

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

/** Two processes, and few calls: seconds on two cores that others use as well. */
const processes = 2;
const processCalls = "all-reduce -b 8 -e 2M -f 64 -n 10 -w 3 --backend tcp --json";

/** Prints the table of two processes, or the reason for leaving it out. True without wrong elements. */
async function runTcp(context: Context): Promise<boolean> {
  const document = await measuredProcesses(context);
  if (typeof document === "string") {
    context.out(`# the table of processes over TCP is left out: ${document}\n`);
    return true;
  }
  const style = { simulated: false };
  const { results } = document;
  context.out(`#\n# all-reduce: ${processes} ranks in ${processes} processes, over TCP\n`);
  context.out(tableHead(style) + results.map(tableRow).join("") + tableFoot(results, style));
  const found = tally(results);
  context.out(`${tallyText(found, processes)}\n`);
  return found.wrong === 0;
}

/** The figures of processes; a text is the reason why there are none. */
async function measuredProcesses(context: Context): Promise<BenchDocument | string> {
  const progress = new Progress(context);
  progress.show("allReduce in processes");
  const [stdout, stderr] = [new Collected(), new Collected()];
  const report = new PrefixedOutput(() => "", { stdout, stderr });
  const args = [...processCalls.split(" "), "-g", String(processes)];
  const err = (text: string): void => void stderr.write(text);
  try {
    const command = { name: "bench", args, size: processes, report, timeoutMs: 30_000 };
    await startRanks(command, { err, main: context.main });
    return JSON.parse(stdout.text) as BenchDocument;
  } catch (error) {
    // A rank that fails prints its error; of one that could not start the launcher tells.
    const lines = stderr.text.split("\n").filter((line) => line !== "");
    return lines.find((line) => line.includes("Error: ")) ?? lines.at(-1) ?? String(error);
  } finally {
    progress.clear();
  }
}

/** An output that is kept. */
class Collected extends Writable {
  text = "";

  override _write(chunk: Buffer, _: unknown, done: () => void): void {
    this.text += chunk.toString("latin1");
    done();
  }
}

/** Number of GPUs for an NCCL world here, and the reason of the limit. */
async function gpuCount({ backends }: Context): Promise<{ gpus: number; reason: string }> {
  let reason = "there is no such backend";
  let gpus = 0;
  const { nccl } = await backends();
  for (let size = 2; size <= ranks; size++) {
    const probe = await nccl?.({}).probe({ size, name: "start" });
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
  const backend = namedBackend(await context.backends(), "nccl", {});
  const part = { collective: "allReduce", title: "all-reduce of NCCL", algorithms: {} } as const;
  const measured = tally(await runPart(part, context, { backend, size: gpus }));
  context.out(`${tallyText(measured, gpus)}\n`);
  const progress = new Progress(context);
  const found = await sweep({
    a: { name: "nccl", backend },
    b: { name: "sim", backend: namedBackend(await context.backends(), "sim", {}) },
    rows: measuredCollectives.filter(({ collective }) =>
      (comparedCases.collectives as readonly string[]).includes(collective),
    ),
    dtypes: comparedCases.dtypes,
    ops: comparedCases.ops,
    elements: comparedCases.elements,
    maxRanks: gpus,
    seed: 0,
    onProgress: (text) => progress.show(text),
  }).finally(() => progress.clear());
  const sum = (of: (each: Comparison) => number): number =>
    found.reduce((total, each) => total + of(each), 0);
  for (const { first } of found) if (first !== undefined) context.out(`# different: ${first}\n`);
  const [identical, all] = [sum((each) => each.identical), sum((each) => each.results)];
  context.out(`bits: ${identical} of ${all} identical\n`);
  return measured.wrong === 0 && identical === all;
}

async function runPart(
  { collective, title, algorithms }: Part,
  context: Context,
  gpus?: { readonly backend: Backend; readonly size: number },
): Promise<readonly BenchResult[]> {
  const progress = new Progress(context);
  const style = { simulated: gpus === undefined };
  const where = gpus === undefined ? `${ranks} ranks, simulated` : `${gpus.size} GPUs, driven`;
  context.out(`#\n# ${title}: ${where} in this one process\n`);
  context.out(tableHead(style));
  const { results } = await bench({
    ...demoCalls,
    backend: gpus?.backend ?? namedBackend(await context.backends(), "sim", { algorithms }),
    collective,
    ranks: gpus?.size ?? ranks,
    onProgress: (text) => progress.show(text),
    onResult: (result) => {
      progress.clear();
      context.out(tableRow(result));
    },
  }).finally(() => progress.clear());
  context.out(tableFoot(results, style));
  return results;
}
