/** Where the ranks of `twinccl bench` live: in this process, in processes that it starts, or in a launcher's. */
import { fileURLToPath } from "node:url";
import { launcherEnvironment } from "../backends/nccl/rendezvous/index.ts";
import type { benchOptions } from "./bench-options.ts";
import { type Context, UsageError } from "./context.ts";
import { runJob } from "./launch/run-job.ts";
import type { Parsed } from "./options.ts";
import { mostRanks } from "./wanted.ts";

/** The part of this process. */
export interface BenchPlace {
  readonly ranks: number;
  /** It only starts the processes of the ranks. */
  readonly isLauncher: boolean;
  /** It is one rank of a job. */
  readonly connected: boolean;
  /** It prints, and writes files. */
  readonly isFirst: boolean;
}

/** The role of this process by the options and a launcher's variables. */
export function placeOf(backend: string, parsed: Parsed<typeof benchOptions>): BenchPlace {
  const isLauncher = parsed.has("processes");
  if (isLauncher && backend !== "nccl") {
    throw new UsageError("--processes: needs --backend nccl; simulated ranks share one process");
  }
  const here = backend === "nccl" && !isLauncher ? launcherEnvironment(process.env) : undefined;
  const ranks = parsed.integer("ranks", here?.size ?? 8, 1, mostRanks);
  return {
    ranks,
    isLauncher,
    connected: here !== undefined,
    isFirst: here === undefined || here.rank === 0,
  };
}

/** Starts this command line once for each rank. Lines of rank 0 are as they are; others tell their rank. */
export function startRanks(
  name: "bench" | "run",
  args: readonly string[],
  size: number,
  context: Context,
): Promise<number> {
  const main = fileURLToPath(new URL("main.js", import.meta.url));
  const command = [main, name, ...args.filter((arg) => arg !== "--processes")];
  const prefix = (rank: number): string => (rank === 0 ? "" : `[${rank}] `);
  return runJob({ size, command, onFailure: "kill", graceMs: 5_000, prefix }, context);
}
