/** The suite on ranks that are processes of their own, as `twinccl launch` starts them. */
import { type ConformanceClaims, type ConformanceParts, conformanceOfRanks } from "twinccl/testing";
import { afterAll } from "vitest";
import { KeptOpen } from "../support/kept-open.ts";
import { LaunchedRanks } from "../support/launched-ranks.ts";
import { testAll } from "./suite.ts";

/** A backend with ranks that find each other between processes. */
export interface ProcessCandidate extends ConformanceClaims {
  readonly name: string;
  /** Name of the backend. */
  readonly backend: string;
  /** Path of the script of a rank: it connects, and answers the suite's parts. */
  readonly script: string;
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** More options of the launcher for a job of so many ranks. */
  readonly launcher?: (size: number) => readonly string[];
  /** The arguments that turn on the comparison of calls, where it is an option. */
  readonly compare?: readonly string[];
}

/** Runs every test on one backend. One job of each size stays for all tests that leave theirs well. */
export function processesConform(candidate: ProcessCandidate): void {
  const { name, script, args = [], env = {}, launcher = () => [], compare, ...claims } = candidate;
  const jobsOf = (given: readonly string[]): KeptOpen<LaunchedRanks<ConformanceParts>> =>
    new KeptOpen((size) =>
      LaunchedRanks.open<ConformanceParts>({
        size,
        script,
        args: given,
        env,
        launcher: launcher(size),
      }),
    );
  const jobs = jobsOf(args);
  const compared = compare && jobsOf([...args, ...compare]);
  afterAll(async () => {
    await Promise.all([jobs.close(), compared?.close()]);
  }, 60_000);
  const cases = conformanceOfRanks({
    ...claims,
    use: (size, use) => jobs.use(size, use),
    ...(compared && { useCompared: (size, use) => compared.use(size, use) }),
  });
  testAll(name, cases);
}
