/** The processes of a command: one for all ranks, or one for each, which the command itself or a launcher starts. */
import { launcherEnvironment } from "../api/world/launchers.ts";
import { maxRanks } from "./args.ts";
import { type Context, UsageError } from "./context.ts";
import { runJob } from "./launch/job.ts";
import type { MessageListener } from "./launch/processes.ts";
import { type JobReport, PrefixedOutput } from "./launch/report.ts";

/** The role of this process. */
export interface Placement {
  readonly ranks: number;
  /** True if it only starts the processes of the ranks. */
  readonly isLauncher: boolean;
  /** True if it is one rank of a job. */
  readonly connected: boolean;
  /** True if it prints and writes files. */
  readonly isFirst: boolean;
}

/** The row of `--processes` in a command's table. */
export const processesOption = {
  processes: { help: "nccl: start one process for each rank; tcp: always so" },
} as const;

/** The exit status of a command whose processes have failed, for its help. */
export const processesStatus =
  "With a process for each rank it is that of the rank that failed first, as of launch.";

/** True for the backend that has one rank in each process. */
export function hasOneRankEach(backend: string): boolean {
  return kindOf(backend) === "tcp";
}

/**
 * Refuses the backend with one rank in each process, where a command has all ranks in its own.
 *
 * @throws UsageError that names `instead`.
 */
export function refuseOneRankEach(option: string, backend: string, instead: string): void {
  if (!hasOneRankEach(backend)) return;
  throw new UsageError(`${option}: ${backend} has one rank in each process, needs ${instead}`);
}

/** The backend of a name with settings. */
export function kindOf(backend: string): string {
  return backend.split(":")[0] ?? "";
}

/**
 * The role of this process by its options and a launcher's variables.
 *
 * @throws UsageError for processes of a simulation, or a number of ranks out of range.
 */
export function placementOf(
  backend: string,
  parsed: {
    readonly has: (name: "processes") => boolean;
    readonly integer: (name: "ranks", fallback: number, least: number, most: number) => number;
  },
): Placement {
  const isSimulated = kindOf(backend) === "sim";
  const isAsked = parsed.has("processes");
  if (isAsked && isSimulated) {
    throw new UsageError(
      "--processes: needs --backend nccl or tcp; simulated ranks share one process",
    );
  }
  const here = isSimulated || isAsked ? undefined : launcherEnvironment(process.env);
  return {
    ranks: parsed.integer("ranks", here?.size ?? 8, 1, maxRanks),
    isLauncher: isAsked || (hasOneRankEach(backend) && here === undefined),
    connected: here !== undefined,
    isFirst: here === undefined || here.rank === 0,
  };
}

/** A command line to start once for each rank. */
export interface RankCommand {
  readonly name: string;
  readonly args: readonly string[];
  readonly size: number;
  /** Number of imitated hosts; 1 when left out. */
  readonly hosts?: number;
  /** By default lines of rank 0 are unchanged, and those of others begin with their rank. */
  readonly report?: JobReport;
  /** Longest time of all ranks; unlimited by default. */
  readonly timeoutMs?: number;
  /** Receives what ranks pass to `reportToLauncher`. */
  readonly onMessage?: MessageListener;
  /** Called for a signal that is handed on to the ranks. */
  readonly onSignal?: (signal: NodeJS.Signals) => void;
}

/** Starts this program once for each rank; resolves to the exit status of the rank that failed first, or 0. */
export function startRanks(
  { name, args, hosts = 1, report, ...job }: RankCommand,
  context: Pick<Context, "err" | "main" | "clearProgress">,
): Promise<number> {
  const command = [context.main, name, ...args.filter((arg) => arg !== "--processes")];
  const ends = { onFailure: "kill", graceMs: 5_000 } as const;
  const shown = report ?? new PrefixedOutput(firstIsPlain, undefined, context.clearProgress);
  return runJob({ ...job, name, hosts, command, ...ends, report: shown }, context);
}

function firstIsPlain(rank: number): string {
  return rank === 0 ? "" : `[${rank}] `;
}
