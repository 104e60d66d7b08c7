/** `twinccl launch`: starts the processes of a job, one per rank, and hosts their store. */
import { existsSync } from "node:fs";
import { parseVisibleDevices } from "../backends/nccl/process/visible-devices.ts";
import { limits } from "../job/protocol.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { assertFile } from "./files.ts";
import { runJob } from "./launch/job.ts";
import { JsonEvents, PrefixedOutput } from "./launch/report.ts";
import {
  type OptionTable,
  oneOf,
  optionLines,
  type Parsed,
  parseOptions,
  splitAtScript,
} from "./options.ts";
import { assertLoadable } from "./program-file.ts";

const options = {
  ranks: { short: "n", value: "N", help: "number of processes, one a rank; -np N is understood" },
  "on-failure": {
    value: "kill|keep",
    help: "what a rank's failure does to the others (kill)",
  },
  grace: { value: "SECONDS", help: "from SIGTERM to SIGKILL for ranks that are stopped (5)" },
  timeout: { value: "SECONDS", help: "stop the job after that time, with exit status 124 (none)" },
  json: { help: "print events and output as JSON objects, one a line: docs/launch.md" },
  hosts: { value: "H", help: "imitate H hosts, between which NCCL uses sockets (1)" },
  "one-gpu-each": {
    help: "refuse more ranks on a host than CUDA_VISIBLE_DEVICES lists, if set",
  },
} as const satisfies OptionTable;

/** The `launch` command. */
export const command: Command = {
  sharesOutput: true,
  help: `Usage: twinccl launch -n N [options] [--] SCRIPT [ARGUMENTS]

Starts N Node.js processes of SCRIPT on this machine and hosts the store at which they meet, so that
connect() in each of them joins one job. Every line of their output begins with the rank: [3] …
On a terminal this prefix has a colour for each rank, unless NO_COLOR is set.

${optionLines(options)}
Each process has TWINCCL_RANK, TWINCCL_SIZE, TWINCCL_LOCAL_RANK and what connect() needs, and the
launcher's own variables. Local rank i uses device i of those in CUDA_VISIBLE_DEVICES. Imitated
hosts share the ranks, and the GPUs: with --hosts N one GPU serves N ranks, slowly. SIGINT, SIGTERM
and SIGHUP are handed on; what does not end in the grace time is killed. SIGUSR1 and SIGUSR2 are
handed on as well, and the job goes on.

Examples:
  twinccl launch -n 8 train.mjs --steps 100
  twinccl launch -n 4 --on-failure keep -- survive.mjs
  twinccl launch -n 4 --timeout 600 --json train.mjs | jq -c 'select(.event != "output")'
  twinccl launch -n 4 --hosts 4 train.mjs       try a program of four ranks on a single GPU
  CUDA_VISIBLE_DEVICES=2,3 twinccl launch -n 2 --one-gpu-each train.mjs

Exit status: 0 when every rank ended with 0; else that of the rank that failed first, 128 plus the
signal for one that was killed; 124 when --timeout stopped the job, 141 when its output has no
reader any more; 2 for wrong usage.
`,
  own: (args) => split(args).own,
  run: runLaunch,
};

/** Separates the launcher's arguments from the script's. `-np N`, as in mpirun, means `-n N`. */
function split(args: readonly string[]): ReturnType<typeof splitAtScript> {
  const { own, script } = splitAtScript(args, options);
  // Node parses it as `-n p`, with N as the script.
  if (own.at(-1) !== "-np") return { own, script };
  return splitAtScript([...own.slice(0, -1), "-n", ...script], options);
}

async function runLaunch(args: readonly string[], context: Context): Promise<number> {
  const { own, script } = split(args);
  const parsed = parseOptions(own, options, 0);
  if (!parsed.has("ranks")) throw new UsageError("--ranks: say how many processes to start: -n N");
  const size = parsed.integer("ranks", 1, 1, limits.ranks);
  const onFailure = oneOf("--on-failure", parsed.text("on-failure") ?? "kill", ["kill", "keep"]);
  const graceMs = msOf(parsed, "grace", { least: 0, most: 86_400 }) ?? 5_000;
  // Longer timers of Node.js end at once.
  const timeoutMs = msOf(parsed, "timeout", { least: 0.001, most: 2_147_483 });
  const hosts = parsed.integer("hosts", 1, 1, size);
  if (parsed.has("one-gpu-each")) {
    requireDevices(Math.ceil(size / hosts), process.env["CUDA_VISIBLE_DEVICES"]);
  }
  requireScript(script[0]);

  const report = parsed.has("json") ? new JsonEvents() : new PrefixedOutput();
  const name = "launch";
  return runJob(
    { name, size, hosts, command: script, onFailure, graceMs, timeoutMs, report },
    context,
  );
}

/** A duration in milliseconds; `undefined` when it was not given. */
function msOf(
  parsed: Parsed<typeof options>,
  name: "grace" | "timeout",
  { least, most }: { readonly least: number; readonly most: number },
): number | undefined {
  const text = parsed.text(name);
  if (text === undefined) return undefined;
  const seconds = Number(text);
  if (/^[\d.]+$/.test(text) && seconds >= least && seconds <= most) return seconds * 1_000;
  throw new UsageError(`--${name}: found "${text}", needs seconds from ${least} to ${most}`);
}

function requireDevices(size: number, list: string | undefined): void {
  if (list === undefined) return;
  const devices = parseVisibleDevices(list).length;
  if (size <= devices) return;
  throw new UsageError(
    `--one-gpu-each: ${size} ranks, but CUDA_VISIBLE_DEVICES="${list}" lists ${devices} devices`,
  );
}

function requireScript(path: string | undefined): void {
  if (path === undefined) throw new UsageError("name a script to start");
  // As in a command line of mpirun.
  if (path === "node" && !existsSync(path)) {
    throw new UsageError(
      "there is no file node; name the script alone, it is started with Node.js",
    );
  }
  assertFile(path);
  assertLoadable(path);
}
