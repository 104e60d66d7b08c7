/** The processes of a job: their start, output and end. */

import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { Guardian } from "./guardian.ts";
import { LineSplitter } from "./lines.ts";
import type { JobReport, StreamName } from "./report.ts";

/** Place of a rank on imitated hosts: consecutive ranks share a host, and the sizes of hosts differ by at most one. */
interface HostPlace {
  readonly host: number;
  readonly localRank: number;
  /** Ranks on its host. */
  readonly localSize: number;
}

/** Host, local rank and local size of a rank in a job of `size` ranks on `hosts` hosts. */
export function hostPlace(rank: number, size: number, hosts: number): HostPlace {
  const firstOn = (host: number): number => Math.ceil((host * size) / hosts);
  const host = Math.floor((rank * hosts) / size);
  const first = firstOn(host);
  return { host, localRank: rank - first, localSize: firstOn(host + 1) - first };
}

/** The processes to start. */
export interface JobOptions {
  readonly size: number;
  /** Number of imitated hosts. */
  readonly hosts: number;
  /** The script and its arguments. */
  readonly command: readonly string[];
  /** Its own among all jobs. */
  readonly jobId: string;
  /** The variables of a rank, the job id among them. */
  readonly variables: (rank: number) => NodeJS.ProcessEnv;
  /** The effect of the first failure on the others. */
  readonly onFailure: "kill" | "keep";
  /** Time between SIGTERM and SIGKILL. */
  readonly graceMs: number;
  readonly report: JobReport;
  /** Called for the end of a rank while the job goes on. */
  readonly onEnded: (rank: number, how: string) => void;
  /** Receives messages of ranks, which have a channel to this process if it is given; `reply` answers one. */
  readonly onMessage?: MessageListener | undefined;
}

/** The field of a message that a rank of a command sends. Its program may send others, which are not for the launcher. */
export const messageField = "toTwincclLauncher";

function isRankMessage(sent: unknown): sent is Readonly<Record<typeof messageField, unknown>> {
  return typeof sent === "object" && sent !== null && Object.hasOwn(sent, messageField);
}

/** Listener of the messages of ranks. */
export type MessageListener = (
  rank: number,
  message: unknown,
  reply: (answer: unknown) => void,
) => void;

/** Longest time of reading output that a rank's children hold open, and its number of intervals. */
const outputMs = 1_000;
const outputParts = 20;

/** A running job. */
export class JobProcesses {
  /** Ends of the ranks, in the order of their ends. Resolves when all have ended. */
  readonly ended: Promise<readonly RankExit[]>;
  readonly #options: JobOptions;
  readonly #guardian: Guardian;
  readonly #running = new Map<number, ChildProcess>();
  readonly #ends: RankExit[] = [];
  readonly #began = performance.now();
  /** Aborted when the job no longer waits for unread output. */
  readonly #unread = new AbortController();
  #isStopping = false;
  #kill: NodeJS.Timeout | undefined;

  constructor(options: JobOptions) {
    this.#options = options;
    this.#guardian = new Guardian(options.graceMs, options.jobId);
    const ranks = Array.from({ length: options.size }, (_, rank) => this.#start(rank));
    this.#guardian.allStarted();
    this.ended = Promise.all(ranks).then(() => {
      clearTimeout(this.#kill);
      this.#guardian.close();
      return this.#ends;
    });
  }

  /** Ranks with a running process. */
  get running(): readonly number[] {
    return [...this.#running.keys()];
  }

  /** True after a call of `stop`. */
  get isStopping(): boolean {
    return this.#isStopping;
  }

  /**
   * Stops the job by a signal to all ranks. Ranks that run after the grace time, or at the second signal, are killed. Their remaining
   * output, which may wait for a slow reader, is dropped as well.
   */
  stop(signal: NodeJS.Signals): void {
    const first = !this.#isStopping;
    this.#isStopping = true;
    if (!first) this.#unread.abort();
    this.signal(first ? signal : "SIGKILL");
    if (first) this.#kill = setTimeout(() => this.signal("SIGKILL"), this.#options.graceMs);
  }

  /** Signals the processes of all ranks. */
  signal(signal: NodeJS.Signals): void {
    const ranks = this.running;
    if (ranks.length > 0) this.#options.report.event({ event: "signal_sent", signal, ranks });
    for (const child of this.#running.values()) signalGroup(child, signal);
  }

  async #start(rank: number): Promise<void> {
    const { command, size, hosts, report, onMessage } = this.#options;
    let child: ChildProcess;
    try {
      child = this.#spawn(rank);
    } catch (error) {
      // All ranks are started before a failure stops them.
      await Promise.resolve();
      this.#note(rank, notStarted(command, error as Error));
      return;
    }
    this.#running.set(rank, child);
    child.on("message", (sent) => {
      if (!isRankMessage(sent)) return;
      onMessage?.(rank, sent[messageField], (answer) => sendTo(child, answer));
    });
    const { pid } = child;
    if (pid !== undefined) {
      this.#guardian.started(pid);
      const { host, localRank } = hostPlace(rank, size, hosts);
      report.event({ event: "rank_started", rank, pid, host, local_rank: localRank });
    }
    const outputs = Promise.all([
      this.#forward(child, "stdout", rank),
      this.#forward(child, "stderr", rank),
    ]);
    const end = await new Promise<ProcessEnd>((resolve) => {
      child.once("error", (error) => {
        if (pid === undefined) resolve(notStarted(command, error));
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
    // Their last lines are written before the job's end is reported.
    await outputs;
  }

  /** Starts a rank's process. Some failures are thrown, such as a list of arguments that is too long; others are events. */
  #spawn(rank: number): ChildProcess {
    const { command, variables, onMessage } = this.#options;
    // After `--`, Node.js does not parse a script name with a leading dash as an option.
    return spawn(process.execPath, ["--", ...command], {
      env: variables(rank),
      stdio: ["ignore", "pipe", "pipe", ...(onMessage === undefined ? [] : (["ipc"] as const))],
      // Results hold arrays and big integers.
      serialization: "advanced",
      // A separate process group: a rank's children end with it, and the launcher alone forwards signals of the terminal.
      detached: true,
    });
  }

  #note(rank: number, end: ProcessEnd): void {
    const { report, onFailure, onEnded } = this.#options;
    const afterMs = performance.now() - this.#began;
    const isStopped = this.#isStopping;
    this.#ends.push({ ...end, rank, isStopped, afterMs });
    const { status, code, signal, how } = end;
    const fields = { rank, status, code, signal, how, stopped: isStopped };
    report.event({ event: "rank_exited", ...fields });
    if (isStopped) return;
    if (status !== 0 && onFailure === "kill") this.stop("SIGTERM");
    else onEnded(rank, how);
  }

  #forward(child: ChildProcess, name: StreamName, rank: number): Promise<void> {
    // A process that failed for lack of file handles has no streams.
    const source = child[name] as Readable | null | undefined;
    if (source === null || source === undefined) return Promise.resolve();
    const { report } = this.#options;
    const sink = report.sinkOf(name);
    const splitter = new LineSplitter(report.formatOf(rank, name));
    return new Promise((resolve) => {
      source.on("data", (chunk: Buffer) => {
        sink.write(splitter.push(chunk), source);
      });
      source.on("error", () => undefined);
      source.once("close", () => {
        sink.write(splitter.end(), source);
        resolve();
      });
    });
  }
}

/** Sends a message, unless the process has ended. */
function sendTo(child: ChildProcess, message: unknown): void {
  // A failure to send is the end of the process, which is reported as such.
  if (child.connected) child.send(message as object, () => undefined);
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
 * whether the reader of the launcher's output or this process is slow: the rank's output is still in the pipe.
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

/** The end of a process that never ran. */
function notStarted([script]: readonly string[], { message }: Error): ProcessEnd {
  const how = `it could not start: ${script}: ${message}`;
  return { status: 127, how, code: null, signal: null };
}

/** The end of a process as a status and in words. */
function exitOf(code: number | null, signal: NodeJS.Signals | null): ProcessEnd {
  if (signal !== null) {
    return { status: 128 + constants.signals[signal], how: signal, code, signal };
  }
  return { status: code ?? 1, how: `exit status ${code}`, code, signal };
}

/** The end of a process. */
interface ProcessEnd {
  /** Exit status; 128 plus the number of a signal; 127 for a process that could not start. */
  readonly status: number;
  /** Description of the end. */
  readonly how: string;
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The end of a rank's process. */
export interface RankExit extends ProcessEnd {
  readonly rank: number;
  /** True if the launcher's signal ended it. */
  readonly isStopped: boolean;
  readonly afterMs: number;
}
