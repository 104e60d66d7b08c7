/**
 * Runs the scripts of `jobs/` as jobs of one process per rank.
 *
 * Each rank has a GPU of its own. Where there is only one, the ranks share it, each on an imitated host of its own, between
 * which NCCL uses sockets: what does not depend on the links is tested there too.
 */
import { fileURLToPath } from "node:url";
import { type JobResults, runScript } from "../support/script-jobs.ts";
import { gpuSizes } from "./machine.ts";

export type { JobResults } from "../support/script-jobs.ts";

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

/** The path of a script. */
export function jobPath(script: string): string {
  return fileURLToPath(new URL(`jobs/${script}`, import.meta.url));
}

/** Runs a script of `jobs/` on so many ranks. The failure of one leaves the others alone. */
export function runJob<R>(
  size: number,
  script: string,
  ...args: readonly string[]
): Promise<JobResults<R>> {
  return runScript<R>(size, jobPath(script), args, { launcher: hostOptions(size) });
}
