/** A job: its processes beside a store, stopped for signals, and the report of its end. */

import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { ranksText } from "../../api/error-text.ts";
import { StoreServer } from "../../job/server.ts";
import type { Context } from "../context.ts";
import { closedPipeStatus, onOutputClosed } from "../output.ts";
import {
  hostPlace,
  type JobOptions,
  JobProcesses,
  messageField,
  type RankExit,
} from "./processes.ts";
import type { JobReport } from "./report.ts";

/** Signals with a meaning of the program's own, as in mpirun: the job goes on. */
const userSignals: readonly NodeJS.Signals[] = ["SIGUSR1", "SIGUSR2"];

/** Signals that the launcher forwards to the ranks. */
const forwardedSignals = ["SIGINT", "SIGTERM", "SIGHUP", ...userSignals] as const;

/** Exit status of a job that its timeout ended: that of timeout(1). */
const timeoutStatus = 124;

/** The variable of ranks with a channel to their launcher. */
const channelVariable = "TWINCCL_LAUNCHER_CHANNEL";

/** Sends a message to the launcher, and resolves once it is sent; false without a channel. */
export async function reportToLauncher(message: unknown): Promise<boolean> {
  if (!hasLauncherChannel()) return false;
  await new Promise<void>((resolve, reject) => {
    const sent = (error: Error | null): void => (error ? reject(error) : resolve());
    process.send?.({ [messageField]: message }, undefined, undefined, sent);
  });
  return true;
}

/** Sends a message to the launcher, and resolves to its reply; rejects where the launcher ends instead. */
export async function askLauncher(message: unknown): Promise<unknown> {
  const over = new AbortController();
  const { signal } = over;
  try {
    const reply = once(process, "message", { signal });
    const ended = once(process, "disconnect", { signal }).then(() => {
      throw new Error("the launcher has ended");
    });
    await reportToLauncher(message);
    const [answer] = (await Promise.race([reply, ended])) as [unknown];
    return answer;
  } finally {
    over.abort();
  }
}

/** True for a rank with a channel to its launcher. */
export function hasLauncherChannel(): boolean {
  return process.env[channelVariable] === "1" && process.send !== undefined;
}

/** A job to run. */
interface Job extends Omit<JobOptions, "jobId" | "variables" | "onEnded"> {
  /** The command that starts it, for its summary. */
  readonly name: string;
  /** Longest time of the job; unlimited by default. */
  readonly timeoutMs?: number | undefined;
  /** Called for a signal that is handed on to the ranks and stops the job. */
  readonly onSignal?: ((signal: NodeJS.Signals) => void) | undefined;
}

/**
 * Starts the processes. Resolves to 0, the status of the rank that failed first, 124 after the timeout, or 141 without a reader
 * of the output.
 */
export async function runJob(
  { name, timeoutMs, onSignal, ...options }: Job,
  context: Pick<Context, "err">,
): Promise<number> {
  const { size, hosts, command, report } = options;
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
      ...(options.onMessage !== undefined && { [channelVariable]: "1" }),
      ...(hosts > 1 && { NCCL_HOSTID: `${jobId}-host${host}` }),
    };
  };
  const { pid } = process;
  const unix_ms = Date.now();
  report.event({ event: "job_started", job: jobId, ranks: size, hosts, pid, command, unix_ms });
  const onEnded = server.ended.bind(server);
  const job = new JobProcesses({ ...options, jobId, variables, onEnded });
  const watch = watchForStop(job, report, timeoutMs, onSignal);
  try {
    const ends = await job.ended;
    const first = firstFailure(ends);
    const status = watch.status() ?? first?.status ?? 0;
    const message = status === 0 ? null : summary(ends, watch.reason());
    const first_failed = first === undefined || first.isStopped ? null : first.rank;
    report.event({ event: "job_ended", status, first_failed, message });
    if (message !== null) context.err(`twinccl ${name}: ${message}\n`);
    return status;
  } finally {
    watch.over();
    await server.close();
  }
}

/** Stops the job for a signal, at its timeout, and when its output loses its reader. */
interface Watch {
  /** Reason of the stop; `undefined` without one. */
  reason(): string | undefined;
  /** Exit status of a job that its timeout or its output stopped, whatever its ranks ended with. */
  status(): number | undefined;
  /**
   * Ends the watch after the job: later signals apply to this process. The listeners stay after the job's end, because removing
   * them could lose a signal in transit. They then perform the signal's default action, and none for a signal of the program's own.
   */
  over(): void;
}

/** Jobs of this process that are under way: a signal is theirs, and listeners of earlier jobs do not raise it again. */
let watchedJobs = 0;

function watchForStop(
  job: JobProcesses,
  report: JobReport,
  timeoutMs: number | undefined,
  onHandedOn: ((signal: NodeJS.Signals) => void) | undefined,
): Watch {
  let reason: string | undefined;
  let status: number | undefined;
  let isOver = false;
  const onSignal = (signal: NodeJS.Signals): void => {
    if (userSignals.includes(signal)) {
      job.signal(signal);
      return;
    }
    if (isOver) {
      for (const each of forwardedSignals) process.removeListener(each, onSignal);
      if (watchedJobs === 0) process.kill(process.pid, signal);
      return;
    }
    reason ??= `${signal} was handed on`;
    onHandedOn?.(signal);
    job.stop(signal);
  };
  const onClosed = (): void => {
    // Each write fails anew, and a second stop would kill the ranks.
    if (job.isStopping) return;
    status = closedPipeStatus;
    reason = "the output has no reader any more";
    job.stop("SIGTERM");
  };
  const onTimeout = (limitMs: number): void => {
    const running = job.running;
    if (job.isStopping || running.length === 0) return;
    status = timeoutStatus;
    reason = `timed out after ${limitMs / 1_000} s with ${ranksText(running)} still running`;
    report.event({ event: "timeout", timeout_ms: limitMs, ranks: running });
    job.stop("SIGTERM");
  };
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs, timeoutMs);
  for (const signal of forwardedSignals) process.on(signal, onSignal);
  watchedJobs++;
  onOutputClosed.add(onClosed);
  const over = (): void => {
    isOver = true;
    watchedJobs--;
    clearTimeout(timer);
    onOutputClosed.delete(onClosed);
  };
  return { reason: () => reason, status: () => status, over };
}

/** The failed rank to report: the first that failed by itself, otherwise the first that failed by the launcher's signal. */
function firstFailure(ends: readonly RankExit[]): RankExit | undefined {
  const failed = ends.filter(({ status }) => status !== 0);
  return failed.find(({ isStopped }) => !isStopped) ?? failed[0];
}

/** The summary of a failed job. `cause` is the reason of the launcher's stop. */
function summary(ends: readonly RankExit[], cause: string | undefined): string {
  const first = firstFailure(ends);
  const others = ends.filter((end) => end !== first).sort((a, b) => a.rank - b.rank);
  const stopped = others.filter(({ isStopped, status }) => isStopped && status !== 0);
  const failed = others.filter(({ isStopped, status }) => !isStopped && status !== 0);
  const well = others.filter(({ status }) => status === 0);
  const parts = [
    ...(cause === undefined ? [] : [cause]),
    ...(first === undefined ? [] : [firstText(first)]),
    ...failed.map(({ rank, how }) => `rank ${rank} failed too: ${how}`),
    ...(stopped.length === 0 ? [] : [`${ranksText(ranksOf(stopped))} stopped`]),
    ...(well.length === 0 ? [] : [`${ranksText(ranksOf(well))} ended well`]),
  ];
  return parts.join("; ");
}

function firstText({ rank, isStopped, afterMs, how }: RankExit): string {
  const verb = isStopped ? "was stopped" : "failed first";
  return `rank ${rank} ${verb} after ${(afterMs / 1_000).toFixed(1)} s: ${how}`;
}

function ranksOf(ends: readonly RankExit[]): readonly number[] {
  return ends.map(({ rank }) => rank);
}
