/** The processes of a job: starts them, watches them, stops them. */
import { type ChildProcess, spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { standardOutput } from "../standard-output.ts";
import { Guardian } from "./guardian.ts";
import { LinePrefixer, ThrottledSink } from "./lines.ts";
import type { RankEnd } from "./rank-end.ts";
import { endOf } from "./report.ts";

/** The processes to start. */
export interface JobOptions {
  readonly size: number;
  /** The script and its arguments. */
  readonly command: readonly string[];
  /** The variables of a rank. */
  readonly variables: (rank: number) => NodeJS.ProcessEnv;
  /** The effect of the first failure on the others. */
  readonly onFailure: "kill" | "keep";
  /** From the signal that asks a rank to end to the one that ends it. */
  readonly graceMs: number;
  /** The prefix of every line of a rank's output; `[3] ` when left out. */
  readonly prefix?: (rank: number) => string;
}

/** Longest time of reading output that a rank's own children hold open, and the number of parts in which it is counted. */
const outputMs = 1_000;
const outputParts = 20;

/** A running job. */
export class Job {
  /** The end of each rank, in that order. Resolves when all have ended. */
  readonly ended: Promise<readonly RankEnd[]>;
  readonly #options: JobOptions;
  readonly #guardian: Guardian;
  readonly #running = new Map<number, ChildProcess>();
  readonly #ends: RankEnd[] = [];
  readonly #began = performance.now();
  readonly #sinks = {
    stdout: new ThrottledSink(standardOutput),
    stderr: new ThrottledSink(process.stderr),
  };
  /** Fires when output that is still to be read is waited for no longer. */
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
   * Hands a signal on to all ranks; what still runs after the grace time, or at the second signal, is killed. At that their
   * output is given up as well, which may wait for a slow reader.
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
    // Behind `--` a script with a name that begins with a dash is no option of Node's.
    const child = spawn(process.execPath, ["--", ...command], {
      env: variables(rank),
      stdio: ["ignore", "pipe", "pipe"],
      // A group of its own: what a rank starts ends with it, and signals of the terminal come once, from us.
      detached: true,
    });
    this.#running.set(rank, child);
    const { pid } = child;
    if (pid !== undefined) this.#guardian.started(pid);
    const outputs = Promise.all([
      this.#forward(child, "stdout", rank),
      this.#forward(child, "stderr", rank),
    ]);
    const end = await new Promise<Pick<RankEnd, "status" | "how">>((resolve) => {
      child.once("error", ({ message }) => {
        if (pid === undefined) resolve({ status: 127, how: `it could not start: ${message}` });
      });
      child.once("exit", (code, signal) => resolve(endOf(code, signal)));
    });
    this.#running.delete(rank);
    if (pid !== undefined) {
      // What the rank left behind in its group.
      signalGroup(child, "SIGKILL");
      this.#guardian.ended(pid);
    }
    this.#note(rank, end);
    await Promise.race([outputs, readingTime(child, this.#unread.signal)]);
    child.stdout?.destroy();
    child.stderr?.destroy();
  }

  #note(rank: number, end: Pick<RankEnd, "status" | "how">): void {
    const afterMs = performance.now() - this.#began;
    const isStopped = this.#isStopping;
    this.#ends.push({ ...end, rank, isStopped, afterMs });
    if (end.status !== 0 && !isStopped && this.#options.onFailure === "kill") this.stop("SIGTERM");
  }

  #forward(child: ChildProcess, name: "stdout" | "stderr", rank: number): Promise<void> {
    // A process for which no file handle was left has no streams either.
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

/** To the whole group of a child, where there is one. */
function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // No such group any more.
  }
}

/**
 * Resolves after as much time for reading from a child that has ended, or when that is given up. Time in which nothing can be
 * read does not count, be it that our own reader is slow or that this process was: what the rank wrote is still in the pipe.
 */
async function readingTime({ stdout, stderr }: ChildProcess, over: AbortSignal): Promise<void> {
  for (let part = 0; part < outputParts && !over.aborted; ) {
    await unreferenced(outputMs / outputParts);
    const isPaused = stdout?.isPaused() === true || stderr?.isPaused() === true;
    if (!isPaused) part += 1;
  }
}

function unreferenced(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}
