/** `twinccl run`: runs a file that default-exports `async (comm) => result` on every rank. */
import { inspect } from "node:util";
import { type Backend, connect, createWorld, DeviceBuffer } from "../api/index.ts";
import { Trace } from "../backends/sim/index.ts";
import {
  backendFiles,
  executorOption,
  scheduleIn,
  scheduleOption,
  variantBackend,
  variantHelp,
} from "./backends.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { assertFile, outputFile, refuseSameFile, traceText } from "./files.ts";
import { reportToLauncher } from "./launch/job.ts";
import { type OptionTable, optionLines, parseOptions } from "./options.ts";
import { kindOf, placementOf, processesOption, processesStatus, startRanks } from "./placement.ts";
import {
  loadProgram,
  ofRank,
  type RankProgram,
  type Watch,
  withExitReport,
} from "./program-file.ts";

const options = {
  ranks: { short: "n", value: "N", help: "number of ranks (8)" },
  backend: { value: "NAME", help: "sim, nccl or tcp; never another than the one named (sim)" },
  ...executorOption,
  seed: { value: "N", help: "sim: fixes the order in which ranks resume (0)" },
  ...scheduleOption,
  strict: {
    help: "sim: writes to lent buffers, and orders that differ, are errors; slow",
  },
  ...processesOption,
  "call-sites": { help: "errors name the line of each call; the simulation's always do" },
  trace: {
    value: "FILE",
    help: "sim: write all events: a Chrome trace for a .json FILE, else text",
  },
} as const satisfies OptionTable;

/** The `run` command. */
export const command: Command = {
  sharesOutput: true,
  help: `Usage: twinccl run FILE [options]

Runs FILE, an ES module that default-exports \`async (comm) => result\`, once for each rank, and
prints what each rank returned. Ranks of sim and nccl share this process; tcp has one for each.
Under a launcher's variables this process is one rank of its job, on nccl and tcp.
A FILE in TypeScript needs Node.js 22.18, or a loader: docs/launch.md.

${optionLines(options)}
${variantHelp}
Examples:
  twinccl run program.mjs --ranks 4
  twinccl run program.mjs --ranks 4 --strict --schedule random --seed 7
  twinccl run program.mjs --backend sim:like=nccl-2.28 --trace events.json
  twinccl run program.mjs --backend nccl --ranks 4 --processes
  twinccl run program.mjs --backend tcp --ranks 4

Exit status: 0 when every rank returned, 1 when one failed or ended the process, 2 for wrong usage.
${processesStatus}
`,
  run: runFile,
};

async function runFile(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const name = parsed.text("backend") ?? "sim";
  const { ranks, isLauncher, connected } = placementOf(name, parsed);
  const traceFile = parsed.text("trace");
  const [file] = parsed.positionals;
  if (file === undefined) throw new UsageError("name a file that default-exports a function");
  assertFile(file);
  refuseSameFile("--trace", traceFile, [
    { what: "the program", path: file },
    ...backendFiles("--backend", name),
  ]);
  const write = outputFile("--trace", traceFile);
  const trace = traceFile === undefined ? undefined : new Trace();
  const executor = parsed.text("executor");
  const settings = {
    seed: parsed.has("seed") ? parsed.integer("seed", 0) : undefined,
    schedule: scheduleIn(parsed),
    trace,
    executor,
    strict: parsed.has("strict") || undefined,
  };
  const backend = await variantBackend(await context.backends(), "--backend", name, settings);
  if (isLauncher) return runProcesses(args, ranks, context);
  // The trace is written even after a failure, when it matters most.
  const writeTrace = (): void => {
    if (trace !== undefined) write?.(traceText(trace, traceFile));
  };
  const run = connected ? runOwnRank : runRanks;
  // Compared with a simulated call, recording its line costs little.
  const callSites = kindOf(name) === "sim" || parsed.has("call-sites");
  const work = async (watch: Watch): Promise<void> => {
    const program = await loadProgram(file);
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
      context.out(resultLine(await resultText(result), rank));
    }
  } finally {
    await world.close();
  }
}

/** Starts a process for each rank. Results are printed by rank, once all have returned. */
async function runProcesses(
  args: readonly string[],
  size: number,
  context: Context,
): Promise<number> {
  const results: string[] = [];
  const onMessage = (rank: number, text: unknown): void => {
    results[rank] = String(text);
  };
  const status = await startRanks({ name: "run", args, size, onMessage }, context);
  if (status === 0) context.out(results.map(resultLine).join(""));
  return status;
}

function resultLine(text: string, rank: number): string {
  return `rank ${rank}: ${text}\n`;
}

/** This process's rank of a job. A failed rank leaves the job by the end of its process, as after an uncaught error. */
async function runOwnRank(opening: Opening, program: RankProgram, context: Context): Promise<void> {
  const comm = await connect({ ...opening, name: "run" });
  const text = await resultText(await ofRank(comm, program));
  if (!(await reportToLauncher(text))) context.out(resultLine(text, comm.rank));
  await comm.close();
}

/** A result on one line; for a buffer, its contents. */
async function resultText(result: unknown): Promise<string> {
  const shown = result instanceof DeviceBuffer && !result.disposed ? await result.toHost() : result;
  return inspect(shown, { depth: 4, maxArrayLength: 32, breakLength: Infinity, compact: true });
}
