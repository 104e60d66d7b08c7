/**
 * Ranks as processes of their own, started as `twinccl launch` does; they run named parts on request.
 *
 * They call on a local socket. Nothing is waited for longer than is said: a rank that fails, dies or hangs in a part
 * ends its job, and the error shows what the job had printed.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { PartArguments, PartResult } from "twinccl/testing";
import { type Launch, launch } from "../unit/job/launched.ts";
import { sendMessage, takeMessages } from "./messages.ts";
import { type Answer, type Parts, socketVariable } from "./parts.ts";
import { type Collected, collected } from "./patience.ts";

/** A job to start. */
export interface JobOfParts {
  readonly size: number;
  /** Path of the script that every rank runs: it ends with `answerParts`. */
  readonly script: string;
  readonly args?: readonly string[];
  /** More options of the launcher. */
  readonly launcher?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** The longest time for the ranks to connect; 50 s when left out, which is below every test's timeout. */
  readonly openMs?: number;
  /** The longest time of a part; 30 s when left out. */
  readonly partMs?: number;
}

/** The longest time for ranks to close, and for a stopped rank to end. */
const [closeMs, stopMs] = [15_000, 5_000];

/** A running job. */
export class LaunchedRanks<P extends Parts<never, keyof P>> {
  readonly size: number;
  /** The longest time of the parts that follow. */
  partMs: number;
  readonly #folder: string;
  readonly #server: Server;
  readonly #lines: readonly RankLine[];
  readonly #launch: Launch;
  /** Set once the job is over or on its way out. */
  #end: Promise<string> | undefined;

  private constructor(job: JobOfParts, folder: string, server: Server) {
    this.size = job.size;
    this.partMs = job.partMs ?? 30_000;
    this.#folder = folder;
    this.#server = server;
    this.#lines = Array.from({ length: job.size }, () => new RankLine());
    server.on("connection", (socket: Socket) => this.#called(socket));
    const { size, script, args = [], launcher = [], env = {} } = job;
    const own = ["-n", String(size), "--grace", "1", ...launcher, "--", script, ...args];
    this.#launch = launch(own, { ...env, [socketVariable]: socketIn(folder) });
    void this.#launch.ended.then(() => {
      for (const line of this.#lines) line.lost();
    });
  }

  /** Starts a job; rejects when its ranks do not come. */
  static async open<P extends Parts<never, keyof P>>(job: JobOfParts): Promise<LaunchedRanks<P>> {
    const folder = mkdtempSync(join(tmpdir(), "twinccl-ranks-"));
    const server = createServer();
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject).listen(socketIn(folder), resolve);
    });
    const ranks = new LaunchedRanks<P>(job, folder, server);
    const come = ranks.#lines.map((line) => line.come);
    await ranks.#judged("opening", await collected(come, job.openMs ?? 50_000));
    return ranks;
  }

  /** Runs a part on every rank; returns the results by rank. Rejects when a rank fails or takes too long. */
  async each<N extends keyof P & string>(
    part: N,
    ...args: PartArguments<P[N]>
  ): Promise<PartResult<P[N]>[]> {
    if (this.#end !== undefined) throw new Error(`part "${part}": the job has ended`);
    const answers = this.#lines.map((line) => line.ask({ part, args }));
    const found = await this.#judged(`part "${part}"`, await collected(answers, this.partMs));
    return found as PartResult<P[N]>[];
  }

  /** Has the ranks close what they have and end; rejects when they do not end well. */
  async close(): Promise<void> {
    if (this.#end !== undefined) return void (await this.#end);
    for (const line of this.#lines) line.hangUp();
    const text = await this.#stopped(closeMs);
    if (!text.startsWith("status 0\n")) throw new Error(`closing ${this.#ranks}: ${text}`);
  }

  get #ranks(): string {
    return this.size === 1 ? "1 rank" : `${this.size} ranks`;
  }

  /** The values of all ranks; where one has none the job is ended, and what it printed is shown. */
  async #judged(what: string, { answers, faults }: Collected): Promise<unknown[]> {
    if (faults.length === 0) return answers.map((answer) => (answer as { value: unknown }).value);
    const text = await this.#stopped(0);
    throw new Error(`${what} on ${this.#ranks} failed\n${faults.join("\n")}\n\nthe job: ${text}`);
  }

  /** A rank calls, and says which one it is. */
  #called(socket: Socket): void {
    let line: RankLine | undefined;
    takeMessages(socket, (message) => {
      if (line === undefined) {
        line = this.#lines[message as number];
        line?.arrived(socket);
      } else line.answered(message as Answer);
    });
    // What breaks off is closed next.
    socket.on("error", () => undefined).once("close", () => line?.lost());
  }

  /** Ends the job, by force after the grace period, and gives all that it printed. */
  #stopped(graceMs: number): Promise<string> {
    this.#end ??= this.#stop(graceMs);
    return this.#end;
  }

  async #stop(graceMs: number): Promise<string> {
    const { process: launcher, ended } = this.#launch;
    const signals = [
      setTimeout(() => launcher.kill("SIGTERM"), graceMs),
      // Its guardian ends the ranks then.
      setTimeout(() => launcher.kill("SIGKILL"), graceMs + stopMs),
    ];
    const { status, signal, lines, err } = await ended;
    for (const timer of signals) clearTimeout(timer);
    for (const line of this.#lines) line.hangUp();
    this.#server.close();
    rmSync(this.#folder, { recursive: true, force: true });
    const seen = lines.map((line) => line.slice(0, 400)).join("\n");
    return `status ${status ?? signal}\n${seen}\n${err}`;
  }
}

function socketIn(folder: string): string {
  return join(folder, "socket");
}

const gone: Answer = { fault: "its process is gone" };

/** The line to one rank: one question at a time. */
class RankLine {
  readonly come: Promise<Answer>;
  #socket: Socket | undefined;
  #isLost = false;
  #settle: (answer: Answer) => void = () => undefined;

  constructor() {
    this.come = this.#next();
  }

  arrived(socket: Socket): void {
    this.#socket = socket;
    this.answered({ value: undefined });
  }

  ask(request: unknown): Promise<Answer> {
    if (this.#isLost || this.#socket === undefined) return Promise.resolve(gone);
    const next = this.#next();
    sendMessage(this.#socket, request);
    return next;
  }

  answered(answer: Answer): void {
    this.#settle(answer);
  }

  lost(): void {
    this.#isLost = true;
    this.#settle(gone);
  }

  hangUp(): void {
    this.#socket?.end();
  }

  #next(): Promise<Answer> {
    return new Promise((resolve) => {
      this.#settle = resolve;
    });
  }
}
