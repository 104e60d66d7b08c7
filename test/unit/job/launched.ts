/** Runs `twinccl launch` as it is installed, with scripts of the test. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";

const dist = new URL("../../../dist/", import.meta.url);
const main = fileURLToPath(new URL("cli/main.js", dist));
const folder = mkdtempSync(join(tmpdir(), "twinccl-launch-"));

process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

/** A path in a folder of the file of tests, removed at the end of the process. */
export function scratch(name: string): string {
  const own = join(folder, basename(expect.getState().testPath ?? ""));
  mkdirSync(own, { recursive: true });
  return join(own, name);
}

/** Writes a script; `join()` in it joins the job, `say()` prints one whole line. */
export function script(name: string, body: string): string {
  const path = scratch(name);
  const launchers = new URL("api/world/launchers.js", dist).href;
  const rendezvous = new URL("job/launcher-rendezvous.js", dist).href;
  const head = `
    import { launcherEnvironment } from ${JSON.stringify(launchers)};
    import { rendezvousFor } from ${JSON.stringify(rendezvous)};
    const environment = launcherEnvironment(process.env);
    const { rank, size, jobId } = environment;
    const join = () => rendezvousFor(environment).join({ jobId, rank, size, deadlineMs: 15000 });
    const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const bytes = (text) => new TextEncoder().encode(text);
    const text = (value) => new TextDecoder().decode(value);
  `;
  writeFileSync(path, head + body);
  return path;
}

/** The end of a launch. */
export interface Launched {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Its lines, sorted: ranks run at the same time. */
  readonly lines: readonly string[];
  readonly err: string;
}

/** A launch that runs. */
export interface Launch {
  readonly process: ChildProcess;
  /** Resolves with all that was printed, once this text was. */
  printed(text: string): Promise<string>;
  readonly ended: Promise<Launched>;
}

/** Starts `twinccl launch`; by another program where one is given, which gets the whole command. */
export function launch(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  by: readonly string[] = [],
): Launch {
  const [program = "", ...rest] = [...by, process.execPath, main, "launch", ...args];
  const child = spawn(program, rest, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let out = "";
  let err = "";
  const wakers = new Set<() => void>();
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => {
    out += chunk;
    for (const wake of wakers) wake();
  });
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    err += chunk;
    for (const wake of wakers) wake();
  });
  const ended = new Promise<Launched>((resolve) => {
    child.once("close", (status, signal) => {
      const lines = out.split("\n").slice(0, -1).sort();
      resolve({ status, signal, lines, err });
    });
  });
  const printed = (wanted: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const wake = (): void => {
        if (out.includes(wanted) || err.includes(wanted)) resolve(out + err);
      };
      wakers.add(wake);
      wake();
      void ended.then(() => reject(new Error(`ended without "${wanted}":\n${out}${err}`)));
    });
  return { process: child, printed, ended };
}

/** True while a process of that number runs. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
