// A peer of the comparison: its processes, which wait for commands on standard input and answer each with a line of JSON.
// All peers are alive at the same time and one at a time is at work, so that their measurements can be interleaved.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { reasonIn } from "./reason.mjs";

/** The longest time for a peer to come up, and to answer. */
const startMs = 120_000;
const answerMs = 30_000;

/** One process of a peer. */
class Worker {
  #waiting = [];
  #lines = [];
  #errors = "";
  #ended;

  constructor({ file, args, env }) {
    this.child = spawn(file, args, {
      stdio: ["pipe", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    this.child.stdin.on("error", () => undefined);
    this.child.stderr.on("data", (chunk) => {
      this.#errors = (this.#errors + chunk).slice(-4000);
    });
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      if (line.startsWith("{")) this.#deliver({ reply: JSON.parse(line) });
    });
    this.ended = new Promise((resolve) => {
      const end = (how) => {
        this.#ended ??= how;
        for (const take of this.#waiting.splice(0)) take({ failure: this.#failure() });
        resolve();
      };
      this.child.once("error", ({ message }) => end(message));
      this.child.once("close", (code, signal) => end(signal ?? `exit status ${code}`));
    });
  }

  say(line) {
    this.child.stdin.write(`${line}\n`);
  }

  /** The next line of JSON, or why there will be none. */
  next(ms) {
    const known = this.#lines.shift();
    if (known !== undefined) return Promise.resolve(known);
    if (this.#ended !== undefined) return Promise.resolve({ failure: this.#failure() });
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve({ failure: `no answer in ${ms / 1000} s` }), ms);
      this.#waiting.push((outcome) => {
        clearTimeout(timer);
        resolve(outcome);
      });
    });
  }

  #deliver(outcome) {
    const take = this.#waiting.shift();
    if (take === undefined) this.#lines.push(outcome);
    else take(outcome);
  }

  #failure() {
    const reason = reasonIn(this.#errors);
    return `${this.#ended}${reason === "" ? "" : `: ${reason}`}`;
  }
}

/** The processes of one peer. */
export class Peer {
  /** Why it is not there any more. */
  failure;
  hello;
  #workers;

  constructor(name, processes) {
    this.name = name;
    this.#workers = processes.map((each) => new Worker(each));
  }

  /** Waits until all of its processes are ready. */
  async open() {
    const [first] = await this.#answers(startMs);
    this.hello = first;
    return this;
  }

  /** Has all processes do a command: their answers, or why there are none. */
  async ask(line) {
    if (this.failure !== undefined) return { error: this.failure };
    for (const worker of this.#workers) worker.say(line);
    const answers = await this.#answers(answerMs);
    const refused = answers?.find(({ error }) => error !== undefined);
    return this.failure === undefined ? (refused ?? { answers }) : { error: this.failure };
  }

  /** The numbers of its processes, by rank; one process may have all ranks. */
  get processes() {
    return this.#workers.map(({ child }) => child.pid);
  }

  /** Ends its processes. */
  async quit() {
    // A process that reads from a pipe may stay for as long as the pipe is open.
    for (const { child } of this.#workers) child.stdin.end("quit\n");
    const timer = setTimeout(() => this.#kill(), 10_000);
    await Promise.all(this.#workers.map(({ ended }) => ended));
    clearTimeout(timer);
  }

  async #answers(ms) {
    const outcomes = await Promise.all(this.#workers.map((worker) => worker.next(ms)));
    const failed = outcomes.find(
      ({ failure, reply }) => failure !== undefined || (ms === startMs && reply.error),
    );
    if (failed !== undefined) {
      this.failure = failed.failure ?? failed.reply.error;
      // The others may wait for ever inside of a collective call.
      this.#kill();
      return [];
    }
    return outcomes.map(({ reply }) => reply);
  }

  #kill() {
    for (const { child } of this.#workers) child.kill("SIGKILL");
  }
}
