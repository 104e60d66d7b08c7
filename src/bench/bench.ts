/** The collective benchmark: every requested size, dtype, operator and root, one row each. */
import {
  bytesOf,
  type DType,
  InvalidArgumentError,
  type NamedReduceOp,
  UnsupportedError,
} from "../api/index.ts";
import { findCollective, type MeasuredCollective, questionOf, type Skew } from "./collectives.ts";
import type { BenchDocument, BenchResult, Measurement } from "./document.ts";
import { environment } from "./environment.ts";
import { type Issue, timedCalls } from "./issue.ts";
import { type BenchJob, openRanks } from "./job.ts";
import { assertBenchOptions, type BenchOptions } from "./options.ts";
import { Oracle } from "./oracle.ts";
import { callSizes, sizeText } from "./sizes.ts";
import { runTrial, type Trial } from "./trial.ts";

/** One row still to be measured. */
interface Row {
  readonly collective: MeasuredCollective;
  readonly bytes: number;
  readonly dtype: DType;
  readonly op: NamedReduceOp;
  readonly root: number;
}

/**
 * Measures one collective and checks every result against a naive oracle.
 *
 * Times cover the calls of all ranks, until the slowest rank has its result. On the simulation they measure the work of all
 * ranks in this process, not a network; `predicted_us` predicts that.
 *
 * @throws InvalidArgumentError for an invalid collective, number or sweep.
 * @throws UnsupportedError for a collective that the backend does not support.
 */
export async function bench(options: BenchOptions): Promise<BenchDocument> {
  assertBenchOptions(options);
  const rows = rowsOf(options);
  const job = await openRanks(options);
  let document: BenchDocument;
  try {
    document = await measureRows(job, options, rows);
  } catch (error) {
    // After a failure closing reports the calls that it left unawaited; the failure itself says more.
    await job.close().catch(() => undefined);
    throw error;
  }
  await job.close();
  return document;
}

/** Measures one collective among ranks that have started. */
export function benchOn(job: BenchJob, options: BenchOptions): Promise<BenchDocument> {
  assertBenchOptions(options);
  return measureRows(job, options, rowsOf(options));
}

async function measureRows(
  job: BenchJob,
  options: BenchOptions,
  rows: readonly Row[],
): Promise<BenchDocument> {
  const { ranks, connected = false } = options;
  const virtual = await capabilitiesOf(job, rows);
  const results: BenchResult[] = [];
  options.onOpen?.();
  await warmUp(job, options, rows);
  for (const [index, row] of rows.entries()) {
    options.onProgress?.(progressText(row, index, rows.length));
    const result = await measureRow(job, options, row, virtual);
    results.push(result);
    options.onResult?.(result);
  }
  const processes = connected ? ranks : 1;
  const timing = timingText(virtual);
  return { ...environment(), timing, ...issueOf(options), processes, results };
}

/** The origin of times and bandwidths. */
function timingText(virtual: boolean): string {
  return virtual ? "simulated, in process" : "measured";
}

/** The rows of a benchmark, in nccl-tests' order: dtype, operator, root, size. */
function rowsOf(options: BenchOptions): Row[] {
  const { dtypes = ["float32"], ops = ["sum"], roots = [0] } = options;
  const collective = findCollective(options.collective);
  if (collective === undefined) {
    throw new InvalidArgumentError(
      { headline: `bench: "${options.collective}" is no collective that can be measured` },
      { field: "collective" },
    );
  }
  const { moves, reduces, rooted } = collective;
  const usedDtypes: readonly DType[] = moves ? dtypes : ["uint8"];
  const usedOps: readonly NamedReduceOp[] = reduces ? ops : ["sum"];
  const calls = { collective, dtypes: usedDtypes, ranks: options.ranks, skew: skewOf(options) };
  const sizes = callSizes(options.sizes, calls);
  return usedDtypes.flatMap((dtype, at) =>
    usedOps.flatMap((op) =>
      (rooted ? roots : [-1]).flatMap((root) =>
        (sizes[at] ?? []).map((bytes) => ({ collective, bytes, dtype, op, root })),
      ),
    ),
  );
}

/** True where time is virtual. Refuses a collective that the backend does not support. */
async function capabilitiesOf(job: BenchJob, [row]: readonly Row[]): Promise<boolean> {
  const answer = await job.ask((comm) => ({
    virtual: comm.capabilities.virtualTime,
    supported: row === undefined || comm.supports({ collective: row.collective.collective }),
  }));
  if (answer.supported === false) {
    throw new UnsupportedError({
      headline: `bench: ${job.backend} has no ${row?.collective.collective} in this version`,
    });
  }
  return answer.virtual;
}

/** Calls by which the engine has compiled what they run. */
const warmingCalls = 4000;

/** Microseconds that these calls may take. */
const mostWarmingUs = 1e6;

/** As nccl-tests: the largest and the smallest size before the first row; here also for the JIT compiler. */
async function warmUp(job: BenchJob, options: BenchOptions, rows: readonly Row[]): Promise<void> {
  const bySize = [...rows].sort((a, b) => b.bytes - a.bytes);
  const [largest, smallest] = [bySize[0], bySize.at(-1)];
  if (largest === undefined || smallest === undefined) return;
  const once = { warmup: 0, iterations: 2, check: false, inPlace: false };
  await runTrial(job, { ...trialOf(options, largest), ...once });
  let { time } = await runTrial(job, { ...trialOf(options, smallest), ...once });
  // Whole trials, checks included: code that first runs later would invalidate compiled code.
  const small = { ...trialOf(options, smallest), warmup: 50, iterations: 60 };
  const calls = small.warmup + small.iterations;
  // Processes know the same times, so that all make as many calls.
  for (let made = 0, us = time * calls; made < warmingCalls && us < mostWarmingUs; made += calls) {
    ({ time } = await runTrial(job, { ...small, inPlace: made % (2 * calls) === calls }));
    us += time * calls;
  }
}

function trialOf(options: BenchOptions, row: Row): Omit<Trial, "inPlace"> {
  const { ranks, warmup = 5, check = true, seed = 0 } = options;
  const { collective, dtype, op, root } = row;
  const elements = Math.floor(row.bytes / bytesOf(dtype));
  const shape = { ...collective.shape(elements, ranks, skewOf(options)), ranks, root };
  const oracle = new Oracle(collective, shape, dtype, op, seed);
  const issue = issueOf(options);
  const iterations = timedCalls(options.iterations ?? 20, issue);
  return { row: collective, shape, dtype, op, oracle, iterations, warmup, check, issue };
}

function skewOf({ seed = 0, spread = 0.5 }: BenchOptions): Skew {
  return { seed, spread };
}

function issueOf({ mode = "eager", latency = false, symmetric = false }: BenchOptions): Issue {
  return { mode, latency, symmetric };
}

async function measureRow(
  job: BenchJob,
  options: BenchOptions,
  row: Row,
  virtual: boolean,
): Promise<BenchResult> {
  const { collective, dtype, op, root } = row;
  const trial = trialOf(options, row);
  const { shape } = trial;
  const plan = planOf(job, trial);
  const { rounds = 1 } = options;
  const outOfPlace = await middleTrial(job, { ...trial, inPlace: false }, rounds);
  const inPlace =
    collective.inPlace && (await middleTrial(job, { ...trial, inPlace: true }, rounds));
  return {
    collective: collective.collective,
    backend: job.backend,
    ranks: options.ranks,
    algorithm: plan.algorithm,
    size: shape.sizeElements * bytesOf(dtype),
    count: shape.count,
    type: collective.moves ? dtype : "none",
    redop: collective.reduces ? op : "none",
    root,
    out_of_place: outOfPlace,
    in_place: inPlace ?? null,
    predicted_us: virtual ? microseconds(plan.predictedNs) : null,
  };
}

/** The trial with the middle time of several, and the checked elements of all. */
async function middleTrial(job: BenchJob, trial: Trial, rounds: number): Promise<Measurement> {
  const found: Measurement[] = [];
  for (let round = 0; round < rounds; round++) found.push(await runTrial(job, trial));
  found.sort((a, b) => a.time - b.time);
  const middle = found[Math.floor(rounds / 2)] as Measurement;
  const sum = (of: (each: Measurement) => number): number =>
    found.reduce((total, each) => total + of(each), 0);
  const nwrong = middle.nwrong === null ? null : sum((each) => each.nwrong ?? 0);
  return { ...middle, nwrong, checked: sum((each) => each.checked) };
}

/** The backend's plan. */
function planOf(
  job: BenchJob,
  { row, shape, dtype, op, issue }: Omit<Trial, "inPlace">,
): { readonly algorithm: string; readonly predictedNs: number | undefined } {
  try {
    return job.explain({ ...questionOf(row, shape, dtype, op), symmetric: issue?.symmetric });
  } catch (error) {
    // A backend may run calls that it cannot explain; unsupported calls fail when they are made.
    if (error instanceof UnsupportedError) return { algorithm: "none", predictedNs: undefined };
    throw error;
  }
}

/** Whole picoseconds in microseconds, so that the figure is the same however it was added up. */
function microseconds(ns: number | undefined): number | null {
  return ns === undefined ? null : Math.round(ns * 1000) / 1e6;
}

function progressText({ collective, bytes, dtype, op }: Row, index: number, rows: number): string {
  const what = collective.reduces ? `${dtype} ${op}` : dtype;
  return `${collective.collective} ${what} ${sizeText(bytes)} (${index + 1} of ${rows})`;
}
