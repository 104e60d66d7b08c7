/** `twinccl verify`: two backends against each other, bit by bit, or the catalogue's programs against their meaning. */
import { countText } from "../api/error-text.ts";
import { measuredCollectives } from "../bench/index.ts";
import { algorithmFileHelp, namedAlgorithm } from "./algorithms.ts";
import { maxRanks, parseCollective, parseDtypes, parseOps } from "./args.ts";
import { executorOption, variantBackend, variantHelp } from "./backends.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { hasLauncherChannel } from "./launch/job.ts";
import { PrefixedOutput } from "./launch/report.ts";
import {
  type OptionTable,
  optionLines,
  type Parsed,
  parseOptions,
  wholeNumbers,
  wordsOf,
} from "./options.ts";
import { hasOneRankEach, kindOf, processesStatus, startRanks } from "./placement.ts";
import { loadProgram, type RankProgram, withExitReport } from "./program-file.ts";
import { resultDifference } from "./verify/file-results.ts";
import {
  type CatalogueRow,
  catalogueRows,
  programsHead,
  programsLine,
  rankCounts,
  verifyPrograms,
} from "./verify/programs.ts";
import { JobEndedError, openSide, type Side, serveRank } from "./verify/sides.ts";
import { type Comparison, sweep } from "./verify/sweep.ts";

const options = {
  backend: { value: "BACKEND", help: "the first backend (sim)" },
  against: { value: "BACKEND", help: "the other one" },
  ...executorOption,
  ranks: {
    short: "n",
    value: "N",
    help: "FILE: ranks; else counts 1..N (8, or the GPUs here; tcp: 4; --programs: 64)",
  },
  collective: { value: "NAME", help: "only this collective" },
  dtype: { short: "d", value: "TYPE", help: "only these element types (all)" },
  op: { short: "o", value: "OP", help: "only these operators (all)" },
  counts: {
    value: "LIST",
    help: "elements of a call, such as 0,17,65536 (around edges of chunks)",
  },
  seed: { value: "N", help: "fixes the data (0)" },
  programs: { help: "no backends: verify every program of the catalogue symbolically" },
  algorithm: { value: "NAME", help: "--programs: only this one of --collective, or a FILE's" },
  json: { help: "print one JSON document instead" },
} as const satisfies OptionTable;

/** The `verify` command. */
export const command: Command = {
  help: `Usage: twinccl verify [FILE] --against BACKEND [options]
       twinccl verify --programs [--ranks N] [--collective NAME [--algorithm NAME|FILE]]

Makes the same calls on two backends and compares every result by its bits. FILE default-exports
\`async (comm) => result\`: what its ranks return is compared. Without FILE every collective is
swept over dtypes, operators, rank counts and element counts, on arbitrary bits where both
backends follow the same plan, else on numbers whose folds never round.
Of a reduction any NaN equals any NaN, and after min and max 0 equals -0. Ranks of tcp are
processes: a job for each number of ranks.

${variantHelp}
${optionLines(options)}
${algorithmFileHelp}
Examples:
  twinccl verify --against sim:seed=7 --collective all-reduce
  twinccl verify program.mjs --backend sim:like=nccl-2.28 --against sim:like=nccl-2.28,protocol=LL
  twinccl verify --backend nccl --against sim --collective all-reduce
  twinccl verify --backend tcp --against sim --ranks 4
  twinccl verify --backend nccl:protocol=LL --against sim:like=nccl-2.28,protocol=LL
  twinccl verify --programs --ranks 16 --json
  twinccl verify --programs --collective all-reduce --algorithm ./line.mjs

Exit status: 0 when all is identical (or sound), 1 when something differs or the process ended
before all was compared, 2 for wrong usage.
${processesStatus}
`,
  run: runVerify,
};

type VerifyOptions = Parsed<typeof options>;

async function runVerify(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const [file] = parsed.positionals;
  if (parsed.has("programs")) {
    if (file !== undefined) throw new UsageError("FILE or --programs, not both");
    refuseOptions(
      parsed,
      ["backend", "against", "executor", "dtype", "op", "counts", "seed"],
      "--programs",
    );
    return runPrograms(parsed, context);
  }
  if (file === undefined && parsed.has("algorithm")) {
    throw new UsageError("--algorithm goes with --programs");
  }
  const against = parsed.text("against");
  if (against === undefined) throw new UsageError("--against: name the other backend");
  const executor = parsed.text("executor");
  const given = { executor, file };
  const names = [parsed.text("backend") ?? "sim", against] as const;
  if (executor !== undefined && names.every((name) => kindOf(name) !== "sim")) {
    throw new UsageError("--executor: needs sim as --backend or --against, has neither");
  }
  const a = await sideOf(context, "--backend", names[0], given);
  if (hasLauncherChannel()) {
    await serveRank(a, context);
    return 0;
  }
  const b = await sideOf(context, "--against", against, given);
  try {
    return await compareSides(parsed, context, [a, b]);
  } catch (error) {
    if (error instanceof JobEndedError && error.status !== 0) return error.status;
    throw error;
  }
}

/** Compares the results of a file, or of a sweep of calls. */
async function compareSides(
  parsed: VerifyOptions,
  context: Context,
  [a, b]: readonly [Side, Side],
): Promise<number> {
  const [file] = parsed.positionals;
  if (file === undefined) return runSweep(parsed, context, a, b);
  refuseOptions(parsed, ["collective", "dtype", "op", "counts", "seed", "algorithm"], "FILE");
  const ranks = parsed.integer("ranks", await machineRanks([a, b]), 1, maxRanks);
  const findings = new Findings(context, parsed.has("json"), {
    file,
    backend: a.name,
    against: b.name,
    ranks,
  });
  return withExitReport("verify", context, async (watch) =>
    runFile({ file, program: watch(await loadProgram(file)), ranks }, context, findings, [a, b]),
  );
}

/** Refuses options that this form of the command would ignore. */
function refuseOptions(
  parsed: VerifyOptions,
  names: readonly (keyof typeof options)[],
  form: string,
): void {
  const name = names.find((each) => parsed.has(each));
  if (name !== undefined) throw new UsageError(`--${name} does not go with ${form}`);
}

/**
 * Most ranks that both sides support here, up to 8, or 4 processes, which share the cores of this machine. If a side supports none,
 * its error then states the reason.
 */
async function machineRanks(sides: readonly Side[]): Promise<number> {
  const most = sides.some(({ start }) => start !== undefined) ? 4 : 8;
  for (let size = most; size > 0; size--) {
    const local = sides.filter(({ start }) => start === undefined);
    const probes = local.map(({ backend }) => backend.probe({ size, name: "verify" }));
    if ((await Promise.all(probes)).every(({ ok }) => ok)) return size;
  }
  return most;
}

/** `executor` applies to the simulations among the sides; an executor in a side's name overrides it. */
async function sideOf(
  context: Context,
  option: string,
  name: string,
  { executor, file }: { readonly executor: string | undefined; readonly file: string | undefined },
): Promise<Side> {
  // The ranks of a sweep make the same list of calls.
  const isSimulated = kindOf(name) === "sim";
  const settings = isSimulated ? {} : { comparesCalls: file !== undefined };
  const table = await context.backends();
  const defaultExecutor = isSimulated ? executor : undefined;
  const backend = await variantBackend(table, option, name, settings, defaultExecutor);
  if (!hasOneRankEach(name)) return { name, backend };
  // A rank opens the first backend; standard output is the document's.
  const args = [...(file === undefined ? [] : [file]), "--backend", name, "--against", "sim"];
  const start: Side["start"] = (size, onMessage) => {
    const outputs = { stdout: process.stderr, stderr: process.stderr };
    const report = new PrefixedOutput(undefined, outputs, context.clearProgress);
    return startRanks({ name: "verify", args, size, report, onMessage }, context);
  };
  return { name, backend, start };
}

async function runSweep(
  parsed: VerifyOptions,
  context: Context,
  a: Side,
  b: Side,
): Promise<number> {
  const collective = parsed.text("collective");
  const rows = collective === undefined ? measuredCollectives : [parseCollective(collective)];
  const mostRanks = parsed.integer("ranks", await machineRanks([a, b]), 1, maxRanks);
  const seed = parsed.integer("seed", 0);
  const counts = parsed.text("counts");
  const facts = { backend: a.name, against: b.name, most_ranks: mostRanks, seed };
  const findings = new Findings(context, parsed.has("json"), facts);
  const found = sweep({
    a,
    b,
    rows,
    dtypes: parseDtypes(parsed.text("dtype") ?? "all"),
    ops: parseOps(parsed.text("op") ?? "all"),
    maxRanks: mostRanks,
    elements:
      counts === undefined
        ? undefined
        : wholeNumbers("--counts", wordsOf("--counts", counts), "commas", 0),
    seed,
    onProgress: context.progress,
    onOpened: (ranks) => {
      if (ranks === 1) {
        findings.text(`# ${a.name} against ${b.name}, ${rankCounts(mostRanks)}, seed ${seed}\n`);
      }
      // Only a write shows that nothing reads the output any more (`| head -1`): long before the first row.
      if (ranks === Math.min(2, mostRanks)) {
        findings.text(`#${"collective".padStart(15)}  results  on bits     elements\n`);
      }
    },
  });
  for await (const comparison of found) {
    const { row, results, identical, elements, onBits, leftOut, first } = comparison;
    const rowFacts = { collective: row.collective, results, identical, elements, on_bits: onBits };
    const document = { ...rowFacts, left_out: leftOut, first_difference: first };
    findings.row(comparisonLines(comparison), document, identical, results);
  }
  return findings.end("identical");
}

function comparisonLines({ row, results, identical, elements, ...rest }: Comparison): string {
  const { onBits, leftOut, first } = rest;
  const figures = `${`${results}`.padStart(9)}${`${onBits}`.padStart(9)}${`${elements}`.padStart(13)}`;
  const differ = results - identical;
  const state = differ === 0 ? "identical" : `${differ} differ`;
  const lines = [
    `${row.collective.padStart(16)}${figures}  ${results === 0 ? "" : state}`.trimEnd(),
  ];
  if (first !== undefined) lines.push(`#   first: ${first}`);
  if (leftOut > 0)
    lines.push(`#   left out: ${countText(leftOut, "call")} that one of the backends does not do`);
  return `${lines.join("\n")}\n`;
}

/** Runs a program on both backends, one after the other, and compares by rank. */
async function runFile(
  { file, program, ranks }: { file: string; program: RankProgram; ranks: number },
  { err }: Context,
  findings: Findings,
  sides: readonly [Side, Side],
): Promise<number> {
  const results: (readonly unknown[])[] = [];
  for (const side of sides) {
    const world = await openSide(side, ranks, true);
    try {
      results.push(await world.results(file, program));
    } catch (error) {
      const ended = error instanceof JobEndedError ? ` ${error.message}` : "";
      err(`twinccl verify: on ${side.name}:${ended}\n`);
      throw error;
    } finally {
      await world.close();
    }
  }
  const [ofA = [], ofB = []] = results;
  const names = [sides[0].name, sides[1].name] as const;
  for (let rank = 0; rank < ranks; rank++) {
    const difference = resultDifference(ofA[rank], ofB[rank], names);
    const text = `rank ${rank}: ${difference ?? "identical"}\n`;
    findings.row(text, { rank, difference }, difference === undefined ? 1 : 0, 1);
  }
  return findings.end("identical");
}

/** The rows of the catalogue, of one collective, or of the algorithm of `--algorithm`. */
async function selectedRows(
  parsed: VerifyOptions,
): Promise<{ readonly rows: readonly CatalogueRow[]; readonly subject: string }> {
  const [collectiveName, name] = [parsed.text("collective"), parsed.text("algorithm")];
  const subject = "the catalogue";
  if (collectiveName === undefined) {
    if (name !== undefined) throw new UsageError("--algorithm: name its --collective");
    return { rows: catalogueRows(), subject };
  }
  const { collective } = parseCollective(collectiveName);
  const rows = catalogueRows().filter((row) => row.collective === collective);
  if (name === undefined) {
    if (rows.length > 0) return { rows, subject };
    throw new UsageError(`--collective: ${collective} has no program in the catalogue`);
  }
  const { algorithm, own } = await namedAlgorithm("--algorithm", collective, name);
  if (own === undefined)
    return { rows: rows.filter((row) => row.algorithm === algorithm), subject };
  return { rows: [{ collective: own.collective, algorithm }], subject: own.file };
}

async function runPrograms(parsed: VerifyOptions, context: Context): Promise<number> {
  const mostRanks = parsed.integer("ranks", 64, 1, maxRanks);
  const { rows, subject } = await selectedRows(parsed);
  const findings = new Findings(context, parsed.has("json"), { most_ranks: mostRanks });
  findings.text(`${programsHead(mostRanks, subject)}\n`);
  for (const row of rows) {
    const report = verifyPrograms(row, mostRanks, (ranks) =>
      context.progress(`verifying ${row.collective} ${row.algorithm.name}, ${ranks} ranks`),
    );
    const { algorithm, ...facts } = report;
    const document = { ...facts, algorithm: algorithm.name };
    findings.row(programsLine(report), document, report.sound, report.programs);
  }
  return findings.end("sound");
}

/** Collects findings and derives the exit status. */
class Findings {
  readonly #out: Context["out"];
  readonly #json: boolean;
  readonly #rows: object[] = [];
  readonly #facts: object;
  #good = 0;
  #all = 0;

  /** `facts` are the document's fields beside the rows. */
  constructor({ out }: Pick<Context, "out">, json: boolean, facts: object) {
    this.#out = out;
    this.#json = json;
    this.#facts = facts;
  }

  /** Prints text, unless the output is JSON. */
  text(text: string): void {
    if (!this.#json) this.#out(text);
  }

  /** Adds one row: `good` of `all` results. */
  row(text: string, row: object, good: number, all: number): void {
    this.text(text);
    this.#rows.push(row);
    this.#good += good;
    this.#all += all;
  }

  /** Prints the summary and returns the exit status. `word` describes the good results. */
  end(word: "identical" | "sound"): number {
    const [good, all] = [this.#good, this.#all];
    if (this.#json) {
      const document = { ...this.#facts, rows: this.#rows, judged: all, [word]: good };
      this.#out(`${JSON.stringify(document, null, 2)}\n`);
    } else this.#out(`verify: ${good} of ${all} ${word}\n`);
    // Without comparisons, the command fails.
    return good === all && all > 0 ? 0 : 1;
  }
}
