/** A process that outlives the launcher until all ranks have ended. If the launcher is killed, the guardian stops the ranks. */
import { type ChildProcess, spawn } from "node:child_process";

/**
 * Script of the guardian. It reads lines `+PID` and `-PID` of ranks, and `=` after the start of the last one; at the end of input it
 * stops the remaining ranks.
 *
 * A launcher may be killed within the start of a rank, before it has its number. On Linux such a rank is found by the job id among
 * its variables.
 */
const program = `
const { readdirSync, readFileSync } = require("node:fs");
const [graceMs, jobId] = process.argv.slice(1);
const ranks = new Set();
let text = "";
let allStarted = false;
const attempt = (action, otherwise) => {
  try { return action(); } catch { return otherwise; }
};
const find = () => {
  for (const name of attempt(() => readdirSync("/proc"), [])) {
    const environ = () => readFileSync("/proc/" + name + "/environ", "latin1");
    const variables = /^[0-9]+$/.test(name) ? attempt(environ, "") : "";
    if (variables.split("\\0").includes("TWINCCL_JOB_ID=" + jobId)) ranks.add(Number(name));
  }
};
const stop = (signal) => {
  if (!allStarted) find();
  for (const pid of ranks) {
    try { process.kill(-pid, signal); } catch { ranks.delete(pid); }
  }
};
process.stdin.on("data", (chunk) => {
  const lines = (text + chunk).split("\\n");
  text = lines.pop();
  for (const line of lines) {
    if (line === "=") allStarted = true;
    else ranks[line[0] === "+" ? "add" : "delete"](Number(line.slice(1)));
  }
});
process.stdin.on("end", () => {
  stop("SIGTERM");
  if (ranks.size > 0 || !allStarted) setTimeout(stop, Number(graceMs), "SIGKILL");
});
`;

/** The guardian of one job. */
export class Guardian {
  #process: ChildProcess | undefined;

  /** Without a guardian the job continues; only a killed launcher then leaves ranks behind. */
  constructor(graceMs: number, jobId: string) {
    const args = ["-e", program, "--", String(graceMs), jobId];
    try {
      this.#process = spawn(process.execPath, args, {
        stdio: ["pipe", "ignore", "ignore"],
        // A separate session, so that signals to the launcher do not reach the guardian.
        detached: true,
      });
    } catch {
      // Some failures are thrown, such as too little memory; others are events.
    }
    this.#process?.on("error", () => undefined);
    this.#process?.stdin?.on("error", () => undefined);
    this.#process?.unref();
  }

  /** Registers a running rank. */
  started(pid: number): void {
    this.#process?.stdin?.write(`+${pid}\n`);
  }

  /** All ranks that could start are registered. */
  allStarted(): void {
    this.#process?.stdin?.write("=\n");
  }

  /** Removes an ended rank. */
  ended(pid: number): void {
    this.#process?.stdin?.write(`-${pid}\n`);
  }

  /** Ends the guardian after the last rank. */
  close(): void {
    this.#process?.stdin?.end();
  }
}
