/** A job: its processes beside a store, stopped for signals, and the report of its end. */

import { randomBytes } from "node:crypto";
import { StoreServer } from "../../job/server.ts";
import type { Context } from "../context.ts";
import { standardOutput } from "../output.ts";
import { hostPlace, type JobOptions, JobProcesses, type RankExit } from "./processes.ts";

/** Signals that the launcher forwards to the ranks. */
const forwardedSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Starts the processes, on as many imitated hosts, and resolves to 0 or the status of the rank that failed first. */
export async function runJob(
  { hosts = 1, ...options }: Omit<JobOptions, "variables"> & { readonly hosts?: number },
  context: Pick<Context, "err">,
): Promise<number> {
  const { size } = options;
  const jobId = `launch-${randomBytes(8).toString("hex")}`;
  const secret = randomBytes(32).toString("hex");
  const server = await StoreServer.listen({ jobId, size, hosted: false, secret });
  const variables = (rank: number): NodeJS.ProcessEnv => {
    const { host, localRank, localSize } = hostPlace(rank, size, hosts);
    return {
      ...process.env,
      TWINCCL_RANK: String(rank),
      TWINCCL_SIZE: String(size),
      TWINCCL_LOCAL_RANK: String(localRank),
      TWINCCL_LOCAL_SIZE: String(localSize),
      TWINCCL_JOB_ID: jobId,
      TWINCCL_STORE: "launcher",
      TWINCCL_ADDRESS: server.host,
      TWINCCL_PORT: String(server.port),
      TWINCCL_SECRET: secret,
      ...(hosts > 1 && { NCCL_HOSTID: `${jobId}-host${host}` }),
    };
  };
  const job = new JobProcesses({ ...options, variables });
  const watch = watchForStop(job);
  try {
    const ends = await job.ended;
    context.err(summary(ends, watch.reason()));
    return firstFailure(ends)?.status ?? 0;
  } finally {
    watch.over();
    await server.close();
  }
}

/** Stops the job for a signal, and when its output loses its reader. */
interface Watch {
  /** Reason of the stop; `undefined` without one. */
  reason(): string | undefined;
  /**
   * Ends the watch after the job: later signals apply to this process. The listeners stay after the job's end, because removing
   * them could lose a signal in transit. They then perform the signal's default action.
   */
  over(): void;
}

function watchForStop(job: JobProcesses): Watch {
  let reason: string | undefined;
  let isOver = false;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (isOver) {
      for (const each of forwardedSignals) process.removeListener(each, onSignal);
      process.kill(process.pid, signal);
      return;
    }
    reason ??= `${signal} was handed on`;
    job.stop(signal);
  };
  const onClosed = (): void => {
    reason ??= "the output has no reader any more";
    job.stop("SIGTERM");
  };
  for (const signal of forwardedSignals) process.on(signal, onSignal);
  for (const stream of [standardOutput, process.stderr]) stream.once("error", onClosed);
  const over = (): void => {
    isOver = true;
    for (const stream of [standardOutput, process.stderr]) stream.removeListener("error", onClosed);
  };
  return { reason: () => reason, over };
}

/** The failed rank to report: the first that failed by itself, otherwise the first that failed by the launcher's signal. */
function firstFailure(ends: readonly RankExit[]): RankExit | undefined {
  const failed = ends.filter(({ status }) => status !== 0);
  return failed.find(({ isStopped }) => !isStopped) ?? failed[0];
}

/** The summary of a failed job, otherwise empty. `cause` is the reason of the launcher's stop. */
function summary(ends: readonly RankExit[], cause: string | undefined): string {
  const first = firstFailure(ends);
  if (first === undefined) return "";
  const others = ends.filter((end) => end !== first).sort((a, b) => a.rank - b.rank);
  const stopped = others.filter(({ isStopped, status }) => isStopped && status !== 0);
  const failed = others.filter(({ isStopped, status }) => !isStopped && status !== 0);
  const well = others.filter(({ status }) => status === 0);
  const seconds = (first.afterMs / 1_000).toFixed(1);
  const verb = first.isStopped ? "was stopped" : "failed first";
  const parts = [
    ...(cause === undefined ? [] : [cause]),
    `rank ${first.rank} ${verb} after ${seconds} s: ${first.how}`,
    ...failed.map(({ rank, how }) => `rank ${rank} failed too: ${how}`),
    ...(stopped.length === 0 ? [] : [`${ranks(stopped)} stopped`]),
    ...(well.length === 0 ? [] : [`${ranks(well)} ended well`]),
  ];
  return `twinccl launch: ${parts.join("; ")}\n`;
}

function ranks(ends: readonly RankExit[]): string {
  const numbers = ends.map(({ rank }) => rank);
  return `${numbers.length === 1 ? "rank" : "ranks"} ${numbers.join(", ")}`;
}
