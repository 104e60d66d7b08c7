/** `twinccl trace`: prints the events of a call or a program in virtual time, from a real run on the simulation. */
import { existsSync } from "node:fs";
import { hasUnevenBlocks } from "../api/collectives/call-layout.ts";
import { countText } from "../api/error-text.ts";
import { type Communicator, createWorld, namedReduceOps, UnsupportedError } from "../api/index.ts";
import { Trace, type TracedMessage } from "../backends/sim/index.ts";
import { findCollective, type MeasuredCollective, measuredCollectives } from "../bench/index.ts";
import { buffersOf } from "../bench/trial.ts";
import { algorithmChoice, algorithmFile, algorithmFileHelp, algorithmHelp } from "./algorithms.ts";
import {
  collectiveHint,
  linkAsked,
  maxRanks,
  opHelp,
  parseDtype,
  refuseUnused,
  rootOf,
} from "./args.ts";
import { namedBackend, scheduleIn, scheduleOption } from "./backends.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { outputFile, refuseSameFile } from "./files.ts";
import { type OptionTable, oneOf, optionLines, type Parsed, parseOptions } from "./options.ts";
import { loadProgram, type RankProgram, type Watch, withExitReport } from "./program-file.ts";

const formats = ["text", "chrome", "svg"] as const;

const options = {
  ranks: { short: "n", value: "N", help: "number of ranks (4)" },
  count: { value: "N", help: "elements as NCCL counts them; per peer for an all-to-all (1024)" },
  dtype: { short: "d", value: "TYPE", help: "element type (float32)" },
  op: { short: "o", value: "OP", help: opHelp },
  root: { short: "r", value: "RANK", help: "root (0)" },
  algorithm: { value: "NAME|FILE", help: algorithmHelp },
  seed: { value: "N", help: "fixes the order in which ranks resume (0)" },
  ...scheduleOption,
  "latency-ns": { value: "NS", help: "from one rank to another (as NCCL, else 1000)" },
  "gigabytes-per-second": {
    value: "GBPS",
    help: "of a rank's port in each direction (as NCCL, else 400)",
  },
  format: { value: "NAME", help: "text, chrome (chrome://tracing, Perfetto) or svg (text)" },
  out: { value: "FILE", help: "write to FILE; without it standard output holds nothing else" },
} as const satisfies OptionTable;

type TraceOptions = Parsed<typeof options>;

/** The `trace` command. */
export const command: Command = {
  help: `Usage: twinccl trace COLLECTIVE|FILE [options]

Runs a collective once, or FILE's program (it default-exports \`async (comm) => result\`), on the
simulation and writes every call and message with its virtual time. The same command gives the
same bytes. --count, --dtype, --op, --root and --algorithm are of a COLLECTIVE. The blocks of a
v-form differ, with --count elements on average. More than 262,144 messages are refused.

${optionLines(options)}
${algorithmFileHelp}
Examples:
  twinccl trace all-reduce --ranks 4 --count 4096
  twinccl trace all-reduce --count 1M --format svg --out /tmp/ring.svg
  twinccl trace all-reduce --algorithm ./line.mjs
  twinccl trace program.mjs --format chrome --out /tmp/trace.json

Exit status: 0 when it ran, 1 when a rank failed or ended the process (what was traced is written
all the same), 2 for wrong usage.
`,
  run: runTrace,
};

async function runTrace(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const [what] = parsed.positionals;
  if (what === undefined) throw new UsageError("name a collective or a file");
  const size = parsed.integer("ranks", 4, 1, maxRanks);
  const format = oneOf("--format", parsed.text("format") ?? "text", formats);
  const row = findCollective(what);
  if (row === undefined) refuseCallOptions(what, parsed);
  const called = row && programOf(row, parsed, size);
  const worlds = { ranks: size, roots: [parsed.integer("root", 0)] };
  const chosen = row && (await algorithmChoice(row.collective, parsed.text("algorithm"), worlds));
  const path = parsed.text("out");
  refuseSameFile("--out", path, [
    { what: "the program", path: row === undefined ? what : undefined },
    { what: "--algorithm", path: algorithmFile(parsed.text("algorithm")) },
  ]);
  const write = outputFile("--out", path);
  const trace = new BoundedTrace((messages) => context.progress(`trace: ${messages} messages`));
  const backend = await namedBackend(await context.backends(), "sim", {
    seed: parsed.integer("seed", 0),
    schedule: scheduleIn(parsed),
    algorithms: chosen?.algorithms,
    trace,
    link: linkAsked(parsed),
  });
  const writeTrace = (): void => {
    const title = [row?.collective ?? what, countText(size, "rank"), chosen?.note].filter(Boolean);
    const text = documentOf(trace, format, title.join(", "));
    if (write === undefined) context.out(text);
    else {
      write(text);
      context.out(`${path}: ${trace.length} events, ${format}\n`);
    }
  };
  const work = async (watch: Watch): Promise<void> => {
    const program = called ?? watch(await loadProgram(what));
    const world = await createWorld({ backend, size, name: "trace", callSites: row === undefined });
    await world
      .run(program)
      .finally(writeTrace)
      .finally(() => world.close());
  };
  await withExitReport("trace", context, work, writeTrace);
  return 0;
}

/** Messages of a trace, at most: each takes some kilobytes of memory. */
const maxMessages = 2 ** 18;

/** Messages between two reports of progress. */
const progressStep = 2 ** 12;

/** A trace that refuses further messages before the memory of the process ends. */
export class BoundedTrace extends Trace {
  #messages = 0;
  readonly #onProgress: (messages: number) => void;

  constructor(onProgress: (messages: number) => void) {
    super();
    this.#onProgress = onProgress;
  }

  override addMessage(message: TracedMessage): number {
    this.#messages++;
    if (this.#messages % progressStep === 0) this.#onProgress(this.#messages);
    if (this.#messages <= maxMessages) return super.addMessage(message);
    this.clear();
    throw new UnsupportedError({
      headline: `trace: found more than ${maxMessages.toLocaleString("en")} messages, the limit`,
      hint: "trace fewer ranks or fewer calls; twinccl predict has the times of many ranks",
    });
  }
}

function refuseCallOptions(what: string, parsed: TraceOptions): void {
  if (!existsSync(what)) {
    const names = measuredCollectives.map(({ collective }) => collective);
    const hint = collectiveHint(what, names);
    throw new UsageError(`"${what}" is neither a collective nor a file${hint}`);
  }
  for (const name of ["count", "dtype", "op", "root", "algorithm"] as const) {
    if (parsed.has(name)) throw new UsageError(`--${name} is of a collective, not of a file`);
  }
}

/** Makes the call once on every rank. */
function programOf(row: MeasuredCollective, parsed: TraceOptions, ranks: number): RankProgram {
  refuseUnused(row, parsed, ["root", "op", "dtype", "count"]);
  const dtype = row.moves ? parseDtype(parsed.text("dtype") ?? "float32") : "uint8";
  const op = oneOf("--op", parsed.text("op") ?? "sum", namedReduceOps);
  const root = rootOf(row, parsed.integer("root", 0), ranks);
  const count = parsed.count("count", 1024);
  const shape = { ...shapeOf(row, count, ranks), ranks, root };
  return async (comm: Communicator) => {
    const { send, recv } = buffersOf(comm, { row, shape, dtype, inPlace: false });
    await row.call(comm, { shape, send, recv, op });
  };
}

/** The benchmark cuts sizes into counts; a buffer with a block per rank, also of a v-form, needs one count for each rank. */
function shapeOf(
  row: MeasuredCollective,
  count: number,
  ranks: number,
): ReturnType<MeasuredCollective["shape"]> {
  const skew = { spread: 0.5, seed: 0 };
  const whole = row.shape(count, ranks, skew);
  return whole.count === count && !hasUnevenBlocks(row.collective)
    ? whole
    : row.shape(count * ranks, ranks, skew);
}

function documentOf(trace: Trace, format: (typeof formats)[number], title: string): string {
  if (format === "text") return trace.toText();
  return format === "svg" ? trace.toSvg(title) : `${JSON.stringify(trace.toChrome())}\n`;
}
