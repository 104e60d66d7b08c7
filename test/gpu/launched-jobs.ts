/** Runs the scripts of `jobs/` as jobs of one process per GPU, and reads the results that their ranks print. */
import { fileURLToPath } from "node:url";
import { launch } from "../unit/nccl-rendezvous/launched.ts";

/** How a job ended, and what its ranks printed as `result {…}`. */
export interface JobResults<R> {
  readonly status: number | null;
  /** By rank; `undefined` for ranks that printed none. */
  readonly results: readonly (R | undefined)[];
  /** All that was printed, for failures. */
  readonly text: string;
}

/** No job takes longer; one that does is stopped and its output tells how far it came. */
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
  const job = launch([...own, "--", jobPath(script), ...args]);
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
