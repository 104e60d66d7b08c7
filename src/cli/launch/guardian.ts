/** A process that outlives the launcher until all ranks have ended. If the launcher is killed, the guardian stops the ranks. */
import { type ChildProcess, spawn } from "node:child_process";

/** Script of the guardian. It reads lines `+PID` and `-PID` of ranks; at the end of input it stops the remaining ranks. */
const program = `
const ranks = new Set();
let text = "";
const stop = (signal) => {
  for (const pid of ranks) {
    try { process.kill(-pid, signal); } catch { ranks.delete(pid); }
  }
};
process.stdin.on("data", (chunk) => {
  const lines = (text + chunk).split("\\n");
  text = lines.pop();
  for (const line of lines) ranks[line[0] === "+" ? "add" : "delete"](Number(line.slice(1)));
});
process.stdin.on("end", () => {
  stop("SIGTERM");
  if (ranks.size > 0) setTimeout(stop, Number(process.argv[1]), "SIGKILL");
});
`;

/** The guardian of one job. */
export class Guardian {
  readonly #process: ChildProcess;

  constructor(graceMs: number) {
    this.#process = spawn(process.execPath, ["-e", program, "--", String(graceMs)], {
      stdio: ["pipe", "ignore", "ignore"],
      // A separate session, so that signals to the launcher do not reach the guardian.
      detached: true,
    });
    // Without a guardian the job continues; only a killed launcher would then leave ranks behind.
    this.#process.on("error", () => undefined);
    this.#process.stdin?.on("error", () => undefined);
    this.#process.unref();
  }

  /** Registers a running rank. */
  started(pid: number): void {
    this.#process.stdin?.write(`+${pid}\n`);
  }

  /** Removes an ended rank. */
  ended(pid: number): void {
    this.#process.stdin?.write(`-${pid}\n`);
  }

  /** Ends the guardian after the last rank. */
  close(): void {
    this.#process.stdin?.end();
  }
}
