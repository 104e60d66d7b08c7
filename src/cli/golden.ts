/** `twinccl golden`: recorded results of NCCL, replayed and compared bit by bit, and recorded. */
import { constants } from "node:os";
import { countText } from "../api/error-text.ts";
import type { Backend } from "../api/index.ts";
import type { NcclBackend } from "../backends/nccl/index.ts";
import { type CheckReport, check, type Mismatch } from "../golden/check.ts";
import {
  type GoldenHead,
  type GoldenPlan,
  type GoldenRecord,
  headLine,
  lineOf,
} from "../golden/format.ts";
import { type GoldenFile, GoldenFormatError, readCases, readRecords } from "../golden/read.ts";
import { type Recording, record } from "../golden/record.ts";
import type { BackendFor } from "../golden/replay.ts";
import { executorOption, namedBackend } from "./backends.ts";
import { type BackendSettings, type Command, type Context, UsageError } from "./context.ts";
import { outputFile, readText, refuseSameFile } from "./files.ts";
import { graphFile, hostsOf, recordedHead, underGraphs } from "./golden/graphs.ts";
import { recordAsRank, recordLaunched } from "./golden/launched.ts";
import { hasLauncherChannel } from "./launch/job.ts";
import { type OptionTable, optionLines, type Parsed, parseOptions } from "./options.ts";
import { refuseOneRankEach } from "./placement.ts";

const options = {
  backend: {
    value: "NAME",
    help: "sim or nccl (check: sim; record: must be named; --launch: nccl or tcp)",
  },
  ...executorOption,
  most: { value: "COUNT", help: "check: leave out cases of more elements" },
  show: { value: "N", help: "check: show so many mismatches in full (5)" },
  sensitive: { help: "check: count elements with other bits in the reverse order of ranks" },
  json: { help: "check: print one JSON document instead" },
  out: { value: "FILE", help: "record: write to FILE instead of standard output" },
  launch: {
    help: "record: a process for each rank, on imitated hosts where FILE has hosts",
  },
  streams: { value: "N", help: "--launch: calls in flight, each on a communicator of its own (1)" },
  timeout: { value: "SECONDS", help: "--launch: longest time for each number of ranks (none)" },
  bits: {
    value: "BYTES",
    help: "record: keep the bits of outputs up to so long, not hashes alone (0)",
  },
} as const satisfies OptionTable;

type GoldenOptions = Parsed<typeof options>;

/** The `golden` command. */
export const command: Command = {
  help: `Usage: twinccl golden check FILE [options]
       twinccl golden record CASES --backend NAME [options]

check replays each call of FILE through createWorld, alloc and the collective, with NCCL's plans
and the settings it was recorded under, and compares hashes of every rank's output. It needs no
GPU. record makes each call of CASES (lines of the same format; results in them are not looked
at) and writes what comes out, with the plan that NCCL logged for it. A process has one size of
buffers: cases under others are reported and left out. The first line of the records names the
NCCL that made them, and with NCCL_GRAPH_FILE its graphs are the machine. The format:
test/golden/README.md in the repository, where the recorded results lie as well.

${optionLines(options)}
Examples:
  twinccl golden check test/golden/nccl-2.28.9-h200x8.jsonl
  twinccl golden record cases.jsonl --backend sim --out sim.jsonl
  twinccl golden record hosts.jsonl --backend nccl --launch --streams 4 --out recorded.jsonl

Exit status: 0 when all is identical (or recorded), 1 when something is not or nothing was compared,
2 for wrong usage or a file that is not in the format, 128 plus the signal that ended --launch.
`,
  run: runGolden,
};

async function runGolden(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 2);
  const [action, path] = parsed.positionals;
  if (action !== "check" && action !== "record") {
    const found = action === undefined ? "" : `found "${action}", `;
    throw new UsageError(`${found}needs an action: check or record`);
  }
  if (path === undefined) throw new UsageError(`${action}: name a file`);
  try {
    return await (action === "check" ? runCheck : runRecord)(path, parsed, context);
  } catch (error) {
    if (error instanceof GoldenFormatError) throw new UsageError(error.message);
    throw error;
  }
}

async function runCheck(path: string, parsed: GoldenOptions, context: Context): Promise<number> {
  refuse(parsed, "check", ["out", "bits", "launch", "streams", "timeout"]);
  const show = parsed.integer("show", 5);
  const file = readRecords(readText(path), path);
  const most = parsed.integer("most", Number.MAX_SAFE_INTEGER);
  const { head } = file;
  const places = [...file.cases.keys()].filter((at) => (file.cases[at]?.count ?? 0) <= most);
  const cases = places.map((at) => file.cases[at] as GoldenRecord);
  const name = parsed.text("backend") ?? "sim";
  const backendFor = await backendsOf(context, name, head, { executor: parsed.text("executor") });
  const found = await check(cases, backendFor, {
    countsSensitive: parsed.has("sensitive"),
    onProgress: (done, wrong) =>
      context.progress(`golden: ${done} of ${cases.length} replayed, ${wrong} not identical`),
  });
  const report = inFile(found, places);
  const json = parsed.has("json");
  context.out(json ? jsonText(path, file, report) : reportText(path, name, file, report, show));
  const { identical, planDifferences } = report;
  // Without comparisons, the command fails.
  const isFine = cases.length > 0 && identical === cases.length && planDifferences.length === 0;
  return isFine ? 0 : 1;
}

/** A report in which indices are those of the file: `places` has those of the replayed cases. */
function inFile(report: CheckReport, places: readonly number[]): CheckReport {
  const placed = <T extends { readonly index: number }>(list: readonly T[]): T[] =>
    list.map((each) => ({ ...each, index: places[each.index] as number }));
  return {
    ...report,
    mismatches: placed(report.mismatches),
    refusals: placed(report.refusals),
    planDifferences: placed(report.planDifferences),
  };
}

async function runRecord(path: string, parsed: GoldenOptions, context: Context): Promise<number> {
  refuse(parsed, "record", ["most", "show", "sensitive", "json"]);
  const name = parsed.text("backend");
  if (name === undefined) throw new UsageError("record: name the backend: --backend nccl or sim");
  if (parsed.has("launch")) return runLaunched(path, name, parsed, context);
  for (const option of ["streams", "timeout"] as const) {
    if (parsed.has(option)) throw new UsageError(`--${option} goes with --launch`);
  }
  const { cases, ...file } = readCases(readText(path), path);
  const head = name === "nccl" ? await recordedHead(file.head) : file.head;
  if (name !== "sim" && cases.some(({ ranks }) => hostsOf(head, ranks) > 1)) {
    throw new UsageError("record: ranks on hosts of their own are processes: add --launch");
  }
  const write = recordsFile(path, parsed);
  let backend: Backend | undefined;
  const given = { readPlan: true, executor: parsed.text("executor") };
  const makeBackend = await backendsOf(context, name, head, given);
  const recordAll = (): Promise<Recording> =>
    record(cases, {
      backendFor: async (setup) => {
        backend = await makeBackend(setup);
        return backend;
      },
      bitsUpTo: parsed.integer("bits", 0),
      // The simulation runs the plans that it explains. For NCCL an explanation is only a prediction, so that its log is read.
      planOf: (_, outcome) => (name === "sim" ? outcome.plan() : loggedPlan(backend)),
      onProgress: (done) => context.progress(`golden: ${done} of ${cases.length} recorded`),
    });
  const recording = await (name === "nccl" ? underGraphs(head, recordAll) : recordAll());
  return writeRecords(recording, head, write, context);
}

/** Writes the file of `--out`, which may not be that of the cases or of NCCL's graphs. */
function recordsFile(path: string, parsed: GoldenOptions): ReturnType<typeof outputFile> {
  const out = parsed.text("out");
  refuseSameFile("--out", out, [{ what: "the cases", path }, graphFile()]);
  return outputFile("--out", out);
}

/** Records with a process for each rank; this is their launcher, or one of them. */
async function runLaunched(
  path: string,
  name: string,
  parsed: GoldenOptions,
  context: Context,
): Promise<number> {
  if (name !== "nccl" && name !== "tcp") {
    throw new UsageError(`--launch: ${name} has all ranks in one process, needs nccl or tcp`);
  }
  refuse(parsed, "record --launch", ["executor"]);
  const streams = parsed.integer("streams", 1, 1, 64);
  const bitsUpTo = parsed.integer("bits", 0);
  if (hasLauncherChannel()) {
    await recordAsRank({ backends: await context.backends(), name, streams, bitsUpTo });
    return 0;
  }
  const { cases, ...file } = readCases(readText(path), path);
  const head = name === "nccl" ? await recordedHead(file.head) : file.head;
  const write = recordsFile(path, parsed);
  const seconds = parsed.has("timeout") ? parsed.integer("timeout", 1, 1, 86_400) : undefined;
  const recording = await recordLaunched(
    cases,
    {
      args: ["record", path, "--backend", name, "--launch"].concat(
        ["--streams", String(streams)],
        ["--bits", String(bitsUpTo)],
      ),
      head,
      timeoutMs: seconds && 1000 * seconds,
    },
    context,
  );
  const status = writeRecords(recording, head, write, context);
  const { endedBy } = recording;
  return status === 0 || endedBy === undefined ? status : 128 + constants.signals[endedBy];
}

/** Writes a recording with the reasons of missing records; the result is the exit status. */
function writeRecords(
  { records, failures }: Recording,
  head: GoldenHead,
  write: ((text: string) => void) | undefined,
  context: Context,
): number {
  const text = [headLine(head), ...records.map(lineOf), ""].join("\n");
  for (const { case: id, reason } of failures)
    context.err(`golden: no record of ${id}: ${reason}\n`);
  const summary = `golden: ${records.length} of ${records.length + failures.length} recorded\n`;
  if (write === undefined) {
    context.out(text);
    context.err(summary);
  } else {
    write(text);
    context.out(summary);
  }
  return failures.length === 0 ? 0 : 1;
}

/** Backends by NCCL's settings; a simulation follows the plans of the file's library. */
async function backendsOf(
  context: Context,
  name: string,
  head: GoldenHead,
  { readPlan, executor }: Pick<BackendSettings, "readPlan" | "executor">,
): Promise<BackendFor> {
  refuseOneRankEach("--backend", name, "sim or nccl");
  const backends = await context.backends();
  const { library, topology } = head;
  const followed = name === "sim" ? { like: library, topology } : { readPlan };
  return (plan) => namedBackend(backends, name, { ...followed, plan, executor });
}

/** The plan that NCCL logged for the last call. */
function loggedPlan(backend: Backend | undefined): GoldenPlan | undefined {
  const plan = (backend as Partial<NcclBackend> | undefined)?.plans?.take().at(-1);
  if (plan === undefined) return undefined;
  const { algorithm, protocol, channels } = plan;
  return { algorithm, protocol, channels };
}

function refuse(
  parsed: GoldenOptions,
  action: string,
  names: readonly (keyof typeof options)[],
): void {
  for (const name of names) {
    if (parsed.has(name)) throw new UsageError(`--${name} does not belong to ${action}`);
  }
}

function jsonText(path: string, { head }: GoldenFile<unknown>, report: CheckReport): string {
  return `${JSON.stringify({ file: path, ...head, ...report }, null, 2)}\n`;
}

/** All differences; the last line counts them. */
function reportText(
  path: string,
  backend: string,
  { head, cases, lines, unknownFields }: GoldenFile<GoldenRecord>,
  report: CheckReport,
  show: number,
): string {
  const { identical, mismatches } = report;
  const machine =
    typeof head.topology === "string" ? head.topology : "the machine of its first line";
  const text = [
    `# ${path}: ${countText(report.cases, "call")} of ${head.library} on ${machine}, replayed on ${backend}`,
  ];
  if (unknownFields.length > 0) text.push(`# not looked at: ${unknownFields.join(", ")}`);
  for (const mismatch of mismatches.slice(0, show)) {
    const line = lines[mismatch.index] ?? 0;
    text.push(...mismatchLines(mismatch, line, cases[mismatch.index]?.count ?? 0));
  }
  if (mismatches.length > show) text.push(`# ${mismatches.length - show} more are not identical`);
  for (const line of refusalLines(report)) text.push(line);
  text.push(...planLines(report, head.library, show), elementsLine(report));
  text.push(`golden: ${identical} of ${report.cases} identical`, "");
  return text.join("\n");
}

function planLines(
  { plans, choices, planDifferences }: CheckReport,
  library: string,
  show: number,
): string[] {
  if (plans === 0) return [];
  const otherwise = planDifferences.filter(({ isChoice }) => isChoice).length;
  return [
    `# plans: ${plans - planDifferences.length} of ${plans} as ${library} reported them; ` +
      `${choices - otherwise} of ${choices} where it chose`,
    ...planDifferences.slice(0, show).map(({ case: id, plan, recordedPlan }) => {
      return `#   ${id}: ${planText(plan)}; reported: ${planText(recordedPlan)}`;
    }),
  ];
}

function elementsLine({ elements, orderSensitiveElements: sensitive }: CheckReport): string {
  const of =
    sensitive === undefined ? "" : `, ${sensitive} of them with other bits in the reverse order`;
  return `# elements: ${elements} identical${of}`;
}

function mismatchLines(mismatch: Mismatch, line: number, count: number): string[] {
  const { element, wantHash, haveHash, plan, recordedPlan } = mismatch;
  const reported = recordedPlan === undefined ? "" : `; reported: ${planText(recordedPlan)}`;
  const where =
    element === undefined
      ? `unknown: the file holds a hash of all ${count}, not their bits`
      : `${element.element} of ${element.length}`;
  const bits = (text: string | undefined, hash: string): string =>
    text === undefined ? `hash ${hash}` : `${text} (hash ${hash})`;
  return [
    `# not identical: ${mismatch.case}, line ${line}`,
    `#   rank     ${mismatch.rank}`,
    `#   element  ${where}`,
    `#   want     ${bits(element?.want, wantHash)}`,
    `#   have     ${bits(element?.have, haveHash)}`,
    `#   plan     ${planText(plan)}${reported}`,
  ];
}

/** One line per reason, because many cases share one. */
function refusalLines({ refusals }: CheckReport): string[] {
  const counts = new Map<string, number>();
  for (const { reason } of refusals) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts].map(([reason, count]) => {
    const first = refusals.find((each) => each.reason === reason)?.case;
    return `# ${count} could not be replayed, first ${first}: ${reason}`;
  });
}

function planText(plan: GoldenPlan | undefined): string {
  if (plan === undefined) return "unknown";
  const { algorithm, protocol, channels } = plan;
  return `${algorithm} ${protocol} over ${countText(channels, "channel")}`;
}
