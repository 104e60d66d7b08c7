/** `twinccl bench`: measures a collective with nccl-tests' flags, and checks every result. */
import {
  type BenchDocument,
  type BenchOptions,
  bench,
  environment,
  environmentText,
  type MeasuredCollective,
  tableFoot,
  tableHead,
  tableRow,
  tally,
  toCsv,
} from "../bench/index.ts";
import { algorithmChoice } from "./algorithm-choice.ts";
import { variantBackend } from "./backends.ts";
import { benchHelp, benchOptions } from "./bench-options.ts";
import { placeOf, startRanks } from "./bench-ranks.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { outputFile } from "./files.ts";
import { oneOf, type Parsed, parseOptions } from "./options.ts";
import { Progress } from "./progress.ts";
import { sizesOf, wantedCollective, wantedDtypes, wantedOps, wantedRoots } from "./wanted.ts";

type Format = "table" | "json" | "csv";

/** The `bench` command. */
export const benchCommand: Command = {
  name: "bench",
  summary: "measure a collective in nccl-tests' language and check every result",
  help: benchHelp,
  run: runBench,
};

async function runBench(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, benchOptions, 1);
  const name = parsed.text("backend") ?? "sim";
  const place = placeOf(name, parsed);
  if (place.isLauncher) return startRanks("bench", args, place.ranks, context);
  const { ranks, isFirst, connected } = place;
  const row = wantedCollective(parsed.positionals[0]);
  const format = formatOf(parsed);
  const seed = parsed.integer("seed", 0);
  const roots = wantedRoots(parsed.text("root"), ranks);
  const worlds = { ranks, roots };
  const chosen = await algorithmChoice(row.collective, parsed.text("algorithm"), worlds);
  const settings = { seed, algorithms: chosen.algorithms, executor: parsed.text("executor") };
  const backend = await variantBackend(context.backends, "--backend", name, settings);
  const write = isFirst ? outputFile("--out", parsed.text("out")) : undefined;
  const simulated = name.split(":")[0] === "sim";
  const style = { simulated, latency: parsed.has("latency") };
  const progress = new Progress(context);
  const print = (text: string): void => {
    progress.clear();
    if (format === "table" && isFirst) context.out(text);
  };
  const options: BenchOptions = {
    backend,
    collective: row.collective,
    ranks,
    sizes: sizesOf(parsed),
    dtypes: wantedDtypes(parsed.text("dtype")),
    ops: wantedOps(parsed.text("op")),
    roots,
    iterations: parsed.integer("iters", 20, 1),
    warmup: parsed.integer("warmup", 5),
    check: parsed.integer("check", 1, 0, 1) > 0,
    seed,
    spread: spreadOf(parsed.text("spread")),
    mode: oneOf("--mode", parsed.text("mode") ?? "eager", ["eager", "graph"] as const),
    symmetric: parsed.has("symmetric"),
    latency: parsed.has("latency"),
    connected,
    onOpen: () => print(headLines(options, row, name, chosen.note) + tableHead(style)),
    onResult: (result) => print(tableRow(result)),
    onProgress: (text) => progress.show(text),
  };
  const document = await bench(options).finally(() => progress.clear());
  print(tableFoot(document.results, style));
  if (format !== "table" && isFirst) context.out(documentText(document, format));
  write?.(documentText(document, format));
  return tally(document.results).wrong === 0 ? 0 : 1;
}

function formatOf(parsed: Parsed<typeof benchOptions>): Format {
  if (parsed.has("json") && parsed.has("csv")) throw new UsageError("--json or --csv, not both");
  if (parsed.has("json")) return "json";
  return parsed.has("csv") ? "csv" : "table";
}

function spreadOf(text: string | undefined): number {
  const spread = text === undefined ? 0.5 : Number(text);
  if (text?.trim() !== "" && spread >= 0 && spread <= 1) return spread;
  throw new UsageError(`--spread: found "${text}", needs a number from 0 to 1`);
}

/** The lines before a table: what ran, how often, and where. */
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
    `# ${row.collective} on backend ${backend}, ${ranks} ranks in ${connected ? `${ranks} processes` : "one process"}, seed ${seed}`,
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
