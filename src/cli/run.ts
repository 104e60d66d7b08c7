/** `twinccl run`: runs a file that default-exports `async (comm) => result` on every rank. */
import { inspect } from "node:util";
import {
  type Backend,
  type Communicator,
  connect,
  createWorld,
  DeviceBuffer,
} from "../api/index.ts";
import { launcherEnvironment } from "../api/world/launchers.ts";
import { worldError } from "../api/world/world-errors.ts";
import { Trace } from "../backends/sim/index.ts";
import { maxRanks } from "./args.ts";
import {
  executorOption,
  scheduleIn,
  scheduleOption,
  variantBackend,
  variantHelp,
} from "./backends.ts";
import { startRanks } from "./bench.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { outputFile } from "./files.ts";
import { type OptionTable, optionLines, parseOptions } from "./options.ts";
import { loadProgram, type RankProgram, type Watch, withExitReport } from "./program-file.ts";

const options = {
  ranks: { short: "n", value: "N", help: "number of ranks, all in this process (8)" },
  backend: { value: "NAME", help: "sim or nccl; never another than the one named (sim)" },
  ...executorOption,
  seed: { value: "N", help: "fixes the order in which ranks resume (0)" },
  ...scheduleOption,
  strict: {
    help: "sim: writes to lent buffers, and orders that differ, are errors; slow",
  },
  processes: { help: "nccl: start one process for each rank" },
  "call-sites": { help: "errors name the line of each call; the simulation's always do" },
  trace: { value: "FILE", help: "write all events: a Chrome trace for a .json FILE, else text" },
} as const satisfies OptionTable;

/** The `run` command. */
export const runCommand: Command = {
  name: "run",
  sharesOutput: true,
  summary: "run a file's program on every rank",
  help: `Usage: twinccl run FILE [options]

Runs FILE, an ES module that default-exports \`async (comm) => result\`, once for each rank, and
prints what each rank returned. Under a launcher's variables a rank of nccl joins its job instead.
A FILE in TypeScript needs Node.js 22.18, or a loader: docs/launch.md.

${optionLines(options)}
${variantHelp}
Examples:
  twinccl run program.mjs --ranks 4
  twinccl run program.mjs --ranks 4 --strict --schedule random --seed 7
  twinccl run program.mjs --backend sim:like=nccl-2.28 --trace events.json
  twinccl run program.mjs --backend nccl --ranks 4 --processes

Exit status: 0 when every rank returned, 1 when one failed or ended the process, 2 for wrong usage.
`,
  run: runFile,
};

async function runFile(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const name = parsed.text("backend") ?? "sim";
  const isNccl = name.split(":")[0] === "nccl";
  const place = isNccl && !parsed.has("processes") ? launcherEnvironment(process.env) : undefined;
  const ranks = parsed.integer("ranks", place?.size ?? 8, 1, maxRanks);
  if (parsed.has("processes")) {
    if (isNccl) return startRanks("run", args, ranks, context);
    throw new UsageError("--processes: needs --backend nccl; simulated ranks share one process");
  }
  const traceFile = parsed.text("trace");
  const write = outputFile("--trace", traceFile);
  const trace = traceFile === undefined ? undefined : new Trace();
  const executor = parsed.text("executor");
  const settings = {
    seed: parsed.integer("seed", 0),
    schedule: scheduleIn(parsed),
    trace,
    executor,
    strict: parsed.has("strict") || undefined,
  };
  const backend = await variantBackend(context.backends, "--backend", name, settings);
  // The trace is written even after a failure, when it matters most.
  const writeTrace = (): void => {
    if (trace !== undefined) write?.(traceText(trace, traceFile?.endsWith(".json") === true));
  };
  const run = place === undefined ? runRanks : runOwnRank;
  // Compared with a simulated call, recording its line costs little.
  const callSites = !isNccl || parsed.has("call-sites");
  const work = async (watch: Watch): Promise<void> => {
    const program = await loadProgram(parsed.positionals[0]);
    await run({ backend, size: ranks, callSites }, watch(program), context).finally(writeTrace);
  };
  await withExitReport("run", context, work, writeTrace);
  return 0;
}

/** The backend and the ranks. */
interface Opening {
  readonly backend: Backend;
  readonly size: number;
  readonly callSites: boolean;
}

async function runRanks(opening: Opening, program: RankProgram, context: Context): Promise<void> {
  const world = await createWorld({ ...opening, name: "run" });
  try {
    const results = await world.run(program);
    for (const [rank, result] of results.entries()) {
      context.out(`rank ${rank}: ${await resultText(result)}\n`);
    }
  } finally {
    await world.close();
  }
}

/** This process's rank of a job. */
async function runOwnRank(opening: Opening, program: RankProgram, context: Context): Promise<void> {
  const comm = await connect({ ...opening, name: "run" });
  try {
    const result = await ofRank(comm, program);
    context.out(`rank ${comm.rank}: ${await resultText(result)}\n`);
  } finally {
    await comm.close();
  }
}

/** Runs the program. A failure counts as the program's, not as the command line's, as with all ranks in this process. */
async function ofRank(comm: Communicator, program: RankProgram): Promise<unknown> {
  try {
    return await program(comm);
  } catch (error) {
    throw worldError(comm, [{ rank: comm.rank, error }]);
  }
}

function traceText(trace: Trace, isChrome: boolean): string {
  return isChrome ? `${JSON.stringify(trace.toChrome())}\n` : trace.toText();
}

/** A result on one line; for a buffer, its contents. */
async function resultText(result: unknown): Promise<string> {
  const shown = result instanceof DeviceBuffer && !result.disposed ? await result.toHost() : result;
  return inspect(shown, { depth: 4, maxArrayLength: 32, breakLength: Infinity, compact: true });
}
