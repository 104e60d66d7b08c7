/** Runs scripts as jobs of one process per rank, and reads the results that their ranks print. */
import { type Launch, launch } from "../unit/job/launched.ts";

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

/** Settings of a job. */
export interface ScriptSettings {
  /** More options of the launcher. */
  readonly launcher?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** Sees the running job. */
  readonly watch?: (job: Launch) => unknown;
}

/** Runs a script on so many ranks. The failure of one leaves the others alone. */
export async function runScript<R>(
  size: number,
  path: string,
  args: readonly string[] = [],
  { launcher = [], env = {}, watch }: ScriptSettings = {},
): Promise<JobResults<R>> {
  const own = ["-n", String(size), "--on-failure", "keep", "--grace", "1"];
  const job = launch([...own, ...launcher, "--", path, ...args], env);
  const timer = setTimeout(() => job.process.kill("SIGTERM"), patienceMs);
  watch?.(job);
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
