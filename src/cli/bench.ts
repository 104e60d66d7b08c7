/** `twinccl bench`: measures a collective with nccl-tests' flags, and checks every result. */

import { hasUnevenBlocks } from "../api/collectives/call-layout.ts";
import { countText } from "../api/error-text.ts";
import { namedReduceOps } from "../api/index.ts";
import { benchOn } from "../bench/bench.ts";
import { type CalibrationOptions, measureCalibration } from "../bench/calibration/measure.ts";
import { type CalibrationSweep, leastBytes } from "../bench/calibration/sweeps.ts";
import type { GpuFacts } from "../bench/document.ts";
import {
  type BenchDocument,
  type BenchOptions,
  environment,
  environmentText,
  type MeasuredCollective,
  measuredCollectives,
  tableFoot,
  tableHead,
  tableRow,
  tally,
  toCsv,
} from "../bench/index.ts";
import { type BenchJob, openRanks } from "../bench/job.ts";
import { algorithmChoice, algorithmFile, algorithmFileHelp, algorithmHelp } from "./algorithms.ts";
import {
  callSizesOf,
  parseCollective,
  parseDtypes,
  parseOps,
  parseRoots,
  refuseUnused,
  sizeOptions,
  sizesOf,
  sweepOptions,
} from "./args.ts";
import { backendFiles, executorOption, variantBackend, variantHelp } from "./backends.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { outputFile, refuseSameFile } from "./files.ts";
import { oneOf, optionLines, type Parsed, parseOptions } from "./options.ts";
import { kindOf, placementOf, processesOption, processesStatus, startRanks } from "./placement.ts";

/** Options with nccl-tests' letters, and its long names if they are words. */
const benchOptions = {
  ...sweepOptions,
  ranks: { short: "g", value: "N", help: "number of ranks (8)" },
  iters: { short: "n", value: "N", help: "timed calls of each row (20)" },
  warmup: { short: "w", value: "N", help: "calls before them (5)" },
  check: { short: "c", value: "0|1", help: "compare every result with a naive oracle (1)" },
  dtype: {
    short: "d",
    value: "TYPE",
    help: "element type, nccl-tests' name for it, or all (float32)",
  },
  op: { short: "o", value: "OP", help: `${namedReduceOps.join(", ")} or all (sum)` },
  root: { short: "r", value: "RANK", help: "root, or all (0)" },
  seed: { value: "N", help: "fixes data, traffic and the order of ranks (0)" },
  algorithm: { value: "NAME|FILE", help: algorithmHelp },
  spread: { value: "0..1", help: "how unequal the blocks of a v-form are (0.5)" },
  backend: { value: "NAME", help: "sim, nccl or tcp; never another than the one named (sim)" },
  ...executorOption,
  mode: { value: "eager|graph", help: "graph: recorded graphs of up to 20 timed calls (eager)" },
  symmetric: { help: "buffers in symmetric memory, for which NCCL has other kernels" },
  latency: { help: "each call alone, until its promise settles: median and 99th percentile" },
  calibration: {
    help: "all calls that twinccl calibrate needs, without COLLECTIVE",
  },
  ...processesOption,
  json: { help: "print one JSON document instead of the table" },
  csv: { help: "print CSV instead of the table" },
  out: { value: "FILE", help: "also write the document (JSON; CSV with --csv) to FILE" },
} as const;

/** `twinccl bench --help`. */
const benchHelp: string = `Usage: twinccl bench COLLECTIVE [options]

Measures a collective as nccl-tests does, in its columns, and checks every result bit for bit.
COLLECTIVE: ${measuredCollectives.map(({ collective }) => collective).join(" ")}
(all-reduce, all_reduce and allreduce are allReduce, and so on)

${optionLines(benchOptions)}
${algorithmFileHelp}
${variantHelp}
Times are of all ranks' calls together, until the slowest has its result. On the simulation they
are this process's, not a network's; the last column is the time predicted on the virtual clock.
Elsewhere the calls of a row are issued back to back and the last one is awaited, as nccl-tests
does. On nccl one process drives all GPUs without --processes; tcp has a process for each rank.
Started by twinccl launch, torchrun, mpirun or srun, every process is one rank, and rank 0 prints.
--mode graph records up to 20 timed calls in a graph and replays it back to back: -n 200 replays it
10 times, so that its launch counts little; -n 21 makes 40 calls, two graphs. --calibration measures
several collectives in all ways of calling, up to 512M or the size of -e, without a check, for
\`twinccl calibrate\`. A row has the middle time of 5 rounds, each of 400 calls (-n), in sweeps above
16M a tenth of them.

Examples:
  twinccl bench all-reduce -b 8 -e 16M
  twinccl bench all-to-allv -b 1M -e 1M -g 16 --spread 0.9 --json
  twinccl bench all-reduce -b 8 -e 512M -f 4 --backend nccl --processes -g 4
  twinccl bench all-reduce -b 8 -e 64K -g 4 --backend nccl --processes --symmetric --mode graph
  twinccl bench all-reduce -b 8 -e 64M -f 8 --backend tcp -g 2
  twinccl bench all-reduce -b 1K -e 1K -n 500 -g 4 --backend nccl --latency
  twinccl bench all-reduce -g 4 --algorithm ./line.mjs
  twinccl bench --calibration --backend nccl --processes -g 4 --out four.json
  twinccl bench reduce-scatter -b 1K -e 1M -d all --backend sim:like=nccl-2.28

Exit status: 0 when every element is right, 1 when one is wrong, 2 for wrong usage.
${processesStatus}
`;

type Format = "table" | "json" | "csv";

/** The `bench` command. */
export const command: Command = {
  help: benchHelp,
  run: runBench,
};

async function runBench(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, benchOptions, 1);
  if (parsed.has("calibration")) return runCalibration(parsed, args, context);
  const name = parsed.text("backend") ?? "sim";
  const { ranks, isFirst, connected, isLauncher } = placementOf(name, parsed);
  const row = parseCollective(parsed.positionals[0]);
  refuseUnused(row, parsed, ["root", "op", "dtype", ...sizeOptions]);
  const format = formatOf(parsed);
  const seed = parsed.integer("seed", 0);
  const roots = parseRoots(parsed.text("root"), ranks);
  const worlds = { ranks, roots };
  const chosen = await algorithmChoice(row.collective, parsed.text("algorithm"), worlds);
  const simulated = kindOf(name) === "sim";
  const settings = {
    seed: simulated && parsed.has("seed") ? seed : undefined,
    algorithms: chosen.algorithms,
    executor: parsed.text("executor"),
  };
  const backend = await variantBackend(await context.backends(), "--backend", name, settings);
  const write = isFirst ? documentFile(parsed) : undefined;
  const style = { simulated, latency: parsed.has("latency") };
  const dtypes = parseDtypes(parsed.text("dtype"));
  const spread = parsed.decimal("spread", 0.5, [0, 1]);
  if (parsed.has("spread") && !hasUnevenBlocks(row.collective)) {
    throw new UsageError(`--spread: ${row.collective} has equal blocks`);
  }
  callSizesOf(parsed, { collective: row, dtypes, ranks, skew: { spread, seed } });
  const print = (text: string): void => {
    if (format === "table" && isFirst) context.out(text);
  };
  const options: BenchOptions = {
    backend,
    collective: row.collective,
    ranks,
    sizes: sizesOf(parsed),
    dtypes,
    ops: parseOps(parsed.text("op")),
    roots,
    iterations: parsed.integer("iters", 20, 1),
    warmup: parsed.integer("warmup", 5),
    check: parsed.integer("check", 1, 0, 1) > 0,
    seed,
    spread,
    mode: oneOf("--mode", parsed.text("mode") ?? "eager", ["eager", "graph"] as const),
    symmetric: parsed.has("symmetric"),
    latency: parsed.has("latency"),
    connected,
    onOpen: () => print(headLines(options, row, name, chosen.note) + tableHead(style)),
    onResult: (result) => print(tableRow(result)),
    onProgress: context.progress,
  };
  if (isLauncher) return startRanks({ name: "bench", args, size: ranks }, context);
  const measured = await onRanks(options, (job) => benchOn(job, options));
  const document = { ...measured, ...(await gpuFacts(name)) };
  print(tableFoot(document.results, style));
  if (format !== "table" && isFirst) context.out(documentText(document, format));
  write?.(documentText(document, format));
  return tally(document.results).wrong === 0 ? 0 : 1;
}

/** Opens the ranks for measurements. A failed rank leaves its job by the end of its process, so that the others fail after it. */
async function onRanks<T>(
  options: Pick<BenchOptions, "backend" | "ranks" | "connected">,
  measure: (job: BenchJob) => Promise<T>,
): Promise<T> {
  const job = await openRanks(options);
  const measured = await measure(job);
  await job.close();
  return measured;
}

/** Options that a calibration decides. */
const decided = [
  ...([
    "minbytes",
    "stepfactor",
    "stepbytes",
    "check",
    "dtype",
    "op",
    "root",
    "algorithm",
  ] as const),
  ...(["seed", "spread", "mode", "symmetric", "latency", "csv"] as const),
] as const;

/** `bench --calibration`. */
async function runCalibration(
  parsed: Parsed<typeof benchOptions>,
  args: readonly string[],
  context: Context,
): Promise<number> {
  const [collective] = parsed.positionals;
  if (collective !== undefined)
    throw new UsageError(`--calibration has its own collectives, not ${collective}`);
  const other = decided.find((each) => parsed.has(each));
  if (other !== undefined) throw new UsageError(`--${other} does not go with --calibration`);
  const name = parsed.text("backend") ?? "sim";
  const { ranks, isFirst, connected, isLauncher } = placementOf(name, parsed);
  const settings = { executor: parsed.text("executor") };
  const backend = await variantBackend(await context.backends(), "--backend", name, settings);
  const write = isFirst ? documentFile(parsed) : undefined;
  const mostBytes = parsed.has("maxbytes") ? sizesOf(parsed).max : Number.MAX_SAFE_INTEGER;
  if (mostBytes < leastBytes) {
    const found = parsed.text("maxbytes");
    throw new UsageError(
      `--maxbytes: found "${found}", needs ${leastBytes}, the smallest size of a calibration`,
    );
  }
  const counts = {
    iterations: parsed.integer("iters", 400, 1),
    warmup: parsed.integer("warmup", 5),
  };
  if (isLauncher) return startRanks({ name: "bench", args, size: ranks }, context);
  const print = (text: string): void => {
    if (!parsed.has("json") && isFirst) context.out(text);
  };
  const options: CalibrationOptions = {
    ...{ backend, ranks, connected, mostBytes, ...counts },
    onSweep: (sweep) => print(sweepHead(sweep, name, ranks)),
    onResult: (result) => print(tableRow(result)),
    onProgress: context.progress,
  };
  const measured = await onRanks(options, (job) => measureCalibration(job, options));
  const document = `${JSON.stringify({ ...measured, ...(await gpuFacts(name)) }, null, 2)}\n`;
  if (parsed.has("json") && isFirst) context.out(document);
  write?.(document);
  return 0;
}

/** The lines before the rows of a sweep. */
function sweepHead(sweep: CalibrationSweep, backend: string, ranks: number): string {
  const { collective, mode, symmetric, latency } = sweep;
  const issue = `${mode}${symmetric ? ", symmetric memory" : ""}${latency ? ", awaited" : ""}`;
  const simulated = kindOf(backend) === "sim";
  return `# ${collective} on backend ${backend}, ${countText(ranks, "rank")}: ${issue}\n${tableHead({ simulated, latency })}`;
}

/** The facts of measured times that `twinccl calibrate` needs; none where no GPU was measured. */
async function gpuFacts(backend: string): Promise<GpuFacts | undefined> {
  if (kindOf(backend) !== "nccl") return undefined;
  const { examine } = await import("../backends/nccl/discovery/examine.ts");
  const { versions, gpus } = await examine();
  return {
    nccl: versions.nccl,
    gpus: gpus.map(({ name }) => name ?? "unknown"),
    date: new Date().toISOString(),
  };
}

/** Writes the file of `--out`, which may not be one that is read. */
function documentFile(parsed: Parsed<typeof benchOptions>): ReturnType<typeof outputFile> {
  const out = parsed.text("out");
  refuseSameFile("--out", out, [
    { what: "--algorithm", path: algorithmFile(parsed.text("algorithm")) },
    ...backendFiles("--backend", parsed.text("backend")),
  ]);
  return outputFile("--out", out);
}

function formatOf(parsed: Parsed<typeof benchOptions>): Format {
  if (parsed.has("json") && parsed.has("csv")) throw new UsageError("--json or --csv, not both");
  if (parsed.has("json")) return "json";
  return parsed.has("csv") ? "csv" : "table";
}

/** The lines before a table: calls, repetitions and machine. */
function headLines(
  options: BenchOptions,
  row: MeasuredCollective,
  backend: string,
  note: string | undefined,
): string {
  const { ranks, sizes, iterations, warmup, check, seed, mode, symmetric, connected } = options;
  const { min, max, factor, step } = sizes;
  const stepText = factor === undefined ? `${step}(bytes)` : `${factor}(factor)`;
  return [
    `# ${row.collective} on backend ${backend}, ${countText(ranks, "rank")} in ${connected && ranks > 1 ? `${ranks} processes` : "one process"}, seed ${seed}`,
    ...(mode === "graph" || symmetric ? [`# ${mode}${symmetric ? ", symmetric memory" : ""}`] : []),
    ...(note === undefined ? [] : [`# ${note}`]),
    `# ${environmentText(environment())}`,
    row.moves
      ? `# minBytes ${min} maxBytes ${max} step: ${stepText} warmup iters: ${warmup} iters: ${iterations} validation: ${check ? 1 : 0}`
      : `# warmup iters: ${warmup} iters: ${iterations} validation: ${check ? 1 : 0}`,
    "#",
    "",
  ].join("\n");
}

function documentText(document: BenchDocument, format: Format): string {
  return format === "csv" ? toCsv(document.results) : `${JSON.stringify(document, null, 2)}\n`;
}
