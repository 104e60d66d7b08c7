/** The processes of a job: starts them beside a store, watches them, stops them, and reports how they ended. */

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { StoreServer } from "../../job/server.ts";
import type { Context } from "../context.ts";
import { standardOutput } from "../output.ts";
import { Guardian } from "./guardian.ts";
import { LinePrefixer, ThrottledSink } from "./lines.ts";

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

/** Place of a rank on imitated hosts: consecutive ranks share a host, and the sizes of hosts differ by at most one. */
interface HostPlace {
  readonly host: number;
  readonly localRank: number;
  /** Ranks on its host. */
  readonly localSize: number;
}

/** Host, local rank and local size of a rank in a job of `size` ranks on `hosts` hosts. */
function hostPlace(rank: number, size: number, hosts: number): HostPlace {
  const firstOn = (host: number): number => Math.ceil((host * size) / hosts);
  const host = Math.floor((rank * hosts) / size);
  const first = firstOn(host);
  return { host, localRank: rank - first, localSize: firstOn(host + 1) - first };
}

/** The processes to start. */
interface JobOptions {
  readonly size: number;
  /** The script and its arguments. */
  readonly command: readonly string[];
  /** The variables of a rank. */
  readonly variables: (rank: number) => NodeJS.ProcessEnv;
  /** The effect of the first failure on the others. */
  readonly onFailure: "kill" | "keep";
  /** Time between SIGTERM and SIGKILL. */
  readonly graceMs: number;
  /** Prefix of every line of a rank's output; by default `[3] `. */
  readonly prefix?: (rank: number) => string;
}

/** Longest time of reading output that a rank's children hold open, and its number of intervals. */
const outputMs = 1_000;
const outputParts = 20;

/** A running job. */
class JobProcesses {
  /** Ends of the ranks, in the order of their ends. Resolves when all have ended. */
  readonly ended: Promise<readonly RankExit[]>;
  readonly #options: JobOptions;
  readonly #guardian: Guardian;
  readonly #running = new Map<number, ChildProcess>();
  readonly #ends: RankExit[] = [];
  readonly #began = performance.now();
  readonly #sinks = {
    stdout: new ThrottledSink(standardOutput),
    stderr: new ThrottledSink(process.stderr),
  };
  /** Aborted when the job no longer waits for unread output. */
  readonly #unread = new AbortController();
  #isStopping = false;
  #kill: NodeJS.Timeout | undefined;

  constructor(options: JobOptions) {
    this.#options = options;
    this.#guardian = new Guardian(options.graceMs);
    const ranks = Array.from({ length: options.size }, (_, rank) => this.#start(rank));
    this.ended = Promise.all(ranks).then(() => {
      clearTimeout(this.#kill);
      this.#guardian.close();
      return this.#ends;
    });
  }

  /**
   * Forwards a signal to all ranks. Ranks that run after the grace time, or at the second signal, are killed. Their remaining
   * output, which may wait for a slow reader, is dropped as well.
   */
  stop(signal: NodeJS.Signals): void {
    const first = !this.#isStopping;
    this.#isStopping = true;
    if (!first) this.#unread.abort();
    this.#signal(first ? signal : "SIGKILL");
    if (first) this.#kill = setTimeout(() => this.#signal("SIGKILL"), this.#options.graceMs);
  }

  #signal(signal: NodeJS.Signals): void {
    for (const child of this.#running.values()) signalGroup(child, signal);
  }

  async #start(rank: number): Promise<void> {
    const { command, variables } = this.#options;
    // After `--`, Node.js does not parse a script name with a leading dash as an option.
    const child = spawn(process.execPath, ["--", ...command], {
      env: variables(rank),
      stdio: ["ignore", "pipe", "pipe"],
      // A separate process group: a rank's children end with it, and the launcher alone forwards signals of the terminal.
      detached: true,
    });
    this.#running.set(rank, child);
    const { pid } = child;
    if (pid !== undefined) this.#guardian.started(pid);
    const outputs = Promise.all([
      this.#forward(child, "stdout", rank),
      this.#forward(child, "stderr", rank),
    ]);
    const end = await new Promise<Pick<RankExit, "status" | "how">>((resolve) => {
      child.once("error", ({ message }) => {
        if (pid === undefined) resolve({ status: 127, how: `it could not start: ${message}` });
      });
      child.once("exit", (code, signal) => resolve(exitOf(code, signal)));
    });
    this.#running.delete(rank);
    if (pid !== undefined) {
      // Remaining processes of the rank's group.
      signalGroup(child, "SIGKILL");
      this.#guardian.ended(pid);
    }
    this.#note(rank, end);
    await Promise.race([outputs, outputGracePeriod(child, this.#unread.signal)]);
    child.stdout?.destroy();
    child.stderr?.destroy();
  }

  #note(rank: number, end: Pick<RankExit, "status" | "how">): void {
    const afterMs = performance.now() - this.#began;
    const isStopped = this.#isStopping;
    this.#ends.push({ ...end, rank, isStopped, afterMs });
    if (end.status !== 0 && !isStopped && this.#options.onFailure === "kill") this.stop("SIGTERM");
  }

  #forward(child: ChildProcess, name: "stdout" | "stderr", rank: number): Promise<void> {
    // A process that failed for lack of file handles has no streams.
    const source = child[name] as Readable | null | undefined;
    if (source === null || source === undefined) return Promise.resolve();
    const sink = this.#sinks[name];
    const prefixer = new LinePrefixer(this.#options.prefix?.(rank) ?? `[${rank}] `);
    return new Promise((resolve) => {
      source.on("data", (chunk: Buffer) => {
        sink.write(prefixer.push(chunk), source);
      });
      source.on("error", () => undefined);
      source.once("close", () => {
        sink.write(prefixer.end(), source);
        resolve();
      });
    });
  }
}

/** Signals the whole process group of a child, if it exists. */
function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group no longer exists.
  }
}

/**
 * Resolves after the reading time of an ended child's output, or when reading is cancelled. Time without reads does not count,
 * whether the reader of our output or this process is slow: the rank's output is still in the pipe.
 */
async function outputGracePeriod(
  { stdout, stderr }: ChildProcess,
  over: AbortSignal,
): Promise<void> {
  for (let part = 0; part < outputParts && !over.aborted; ) {
    await unreferenced(outputMs / outputParts);
    const isPaused = stdout?.isPaused() === true || stderr?.isPaused() === true;
    if (!isPaused) part += 1;
  }
}

function unreferenced(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}

/** The end of a process as a status and in words. */
function exitOf(
  code: number | null,
  signal: NodeJS.Signals | null,
): Pick<RankExit, "status" | "how"> {
  if (signal !== null) return { status: 128 + constants.signals[signal], how: signal };
  return { status: code ?? 1, how: `exit status ${code}` };
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

/** The end of a rank's process. */
interface RankExit {
  readonly rank: number;
  /** Exit status; 128 plus the number of a signal; 127 for a process that could not start. */
  readonly status: number;
  /** Description of the end. */
  readonly how: string;
  /** True if the launcher's signal ended it. */
  readonly isStopped: boolean;
  readonly afterMs: number;
}
