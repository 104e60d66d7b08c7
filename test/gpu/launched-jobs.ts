/**
 * Runs the scripts of `jobs/` as jobs of one process per rank, and reads the results that their ranks print.
 *
 * Each rank has a GPU of its own. Where there is only one, the ranks share it, each on an imitated host of its own, between
 * which NCCL uses sockets: what does not depend on the links is tested there too.
 */
import { fileURLToPath } from "node:url";
import { launch } from "../unit/job/launched.ts";
import { gpuSizes } from "./machine.ts";

const gpus = (await gpuSizes()).length;

/** True where the ranks of jobs share a GPU. */
export const isShared = gpus === 1;

/** Ranks that jobs have at most: a GPU each, or as many as shall share one, two at least. */
export const jobRanks = isShared ? wantedHosts() : gpus;

function wantedHosts(): number {
  const wanted = process.env["TWINCCL_TEST_HOSTS"] ?? "4";
  if (/^([2-9]|\d{2})$/.test(wanted)) return Number(wanted);
  throw new Error(`TWINCCL_TEST_HOSTS: found "${wanted}", needs a number of ranks from 2 to 99`);
}

/** The launcher's options for the hosts of a job's ranks. */
export function hostOptions(size: number): readonly string[] {
  return isShared ? ["--hosts", String(size)] : [];
}

if (isShared)
  process.stderr.write(`jobs: up to ${jobRanks} ranks share one GPU, on imitated hosts\n`);

/** The end of a job, and its ranks' output as `result {…}`. */
export interface JobResults<R> {
  readonly status: number | null;
  /** By rank; `undefined` for ranks that printed none. */
  readonly results: readonly (R | undefined)[];
  /** All that was printed, for failures. */
  readonly text: string;
}

/** No job takes longer; one that does is stopped, and its output shows its progress. */
const patienceMs = 150_000;

/** The path of a script. */
export function jobPath(script: string): string {
  return fileURLToPath(new URL(`jobs/${script}`, import.meta.url));
}

/** Runs a script on so many ranks. The failure of one leaves the others alone. */
export async function runJob<R>(
  size: number,
  script: string,
  ...args: readonly string[]
): Promise<JobResults<R>> {
  const own = ["-n", String(size), "--on-failure", "keep", "--grace", "1"];
  const job = launch([...own, ...hostOptions(size), "--", jobPath(script), ...args]);
  const timer = setTimeout(() => job.process.kill("SIGTERM"), patienceMs);
  const { status, lines, err } = await job.ended;
  clearTimeout(timer);
  const results = Array.from({ length: size }, (): R | undefined => undefined);
  for (const line of lines) {
    const [, rank, json] = /^\[(\d+)\] result (.*)$/.exec(line) ?? [];
    if (json !== undefined) results[Number(rank)] = JSON.parse(json) as R;
  }
  const seen = lines.map((line) => line.slice(0, 400)).join("\n");
  return { status, results, text: `status ${status}\n${seen}\n${err}` };
}
