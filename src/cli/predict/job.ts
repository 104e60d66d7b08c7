/** `twinccl predict --job FILE`: a program in virtual time, with buffers that have sizes and no contents. */
import { type LinkOptions, linkOf } from "../../algorithms/index.ts";
import { linkText } from "../../algorithms/plans/index.ts";
import { countText } from "../../api/error-text.ts";
import { createWorld } from "../../api/index.ts";
import { Trace } from "../../backends/sim/index.ts";
import { linkAsked, maxRanks } from "../args.ts";
import { namedBackend } from "../backends.ts";
import { type Context, UsageError } from "../context.ts";
import { outputFile, traceText } from "../files.ts";
import { loadProgram, type Watch, withExitReport } from "../program-file.ts";
import { type JobReport, jobDocument, jobTable, jobTitle } from "./job-table.ts";
import { jobTimes } from "./job-times.ts";
import { type Library, libraryIn } from "./library.ts";
import { type PredictOptions, refuseSameOutputs } from "./options.ts";

/** Largest world that follows NCCL without an option. */
const maxDefaultRanks = 8;

/** Runs the program, prints its times, and draws its ranks. */
export async function predictJob(
  file: string,
  parsed: PredictOptions,
  context: Context,
): Promise<void> {
  const ranks = parsed.integer("ranks", 8, 1, maxRanks);
  const clock = clockIn(parsed, ranks);
  refuseSameOutputs(parsed);
  const write = outputFile("--out", parsed.text("out"));
  const draw = outputFile("--svg", parsed.text("svg"));
  const writeTrace = outputFile("--trace", parsed.text("trace"));
  const what = `running ${file} on ${countText(ranks, "rank")}`;
  context.progress(what);
  const trace = new JobTrace((events) => context.progress(`${what}: ${events} events`));
  const backend = await namedBackend(await context.backends(), "sim", {
    ...clock.library?.options,
    ...(clock.link === undefined ? {} : { machine: undefined, link: clock.link }),
    trace,
    ...(!parsed.has("contents") && { phantom: true }),
  });
  const endsPs = new Array<number>(ranks).fill(0);
  const work = async (watch: Watch): Promise<void> => {
    const program = await loadProgram(file, "--job");
    const timed = watch(async (comm) => {
      await program(comm);
      endsPs[comm.rank] = 1000 * (comm.stats().virtualNs ?? 0);
    });
    const world = await createWorld({ backend, size: ranks, name: "predict", callSites: true });
    await world.run(timed).finally(() => world.close());
  };
  await withExitReport("predict", context, work);
  const report: JobReport = {
    ...{ file, ranks, library: clock.library, clock: clock.text },
    contents: parsed.has("contents"),
    times: jobTimes(trace.spans(), endsPs),
  };
  const document = `${JSON.stringify(jobDocument(report), null, 2)}\n`;
  context.out(parsed.has("json") ? document : jobTable(report));
  write?.(document);
  draw?.(trace.toSvg(jobTitle(report)));
  writeTrace?.(traceText(trace, parsed.text("trace")));
}

/** Events between two reports of progress: those of some calls of a few ranks. */
const progressStep = 2 ** 5;

/** A trace without messages that reports how many events it has. */
class JobTrace extends Trace {
  readonly #onProgress: (events: number) => void;

  constructor(onProgress: (events: number) => void) {
    super({ messages: false });
    this.#onProgress = onProgress;
  }

  override add(event: Parameters<Trace["add"]>[0]): void {
    super.add(event);
    if (this.length % progressStep === 0) this.#onProgress(this.length);
  }
}

/** The clock of the program. */
interface Clock {
  /** `undefined` where the plans follow no library. */
  readonly library: Library | undefined;
  /** The links; `undefined` for the clock of the library's machine. */
  readonly link: LinkOptions | undefined;
  /** The machine or the links in words. */
  readonly text: string;
}

function clockIn(parsed: PredictOptions, ranks: number): Clock {
  const link = linkAsked(parsed);
  const library = libraryIn(parsed, link === undefined && ranks <= maxDefaultRanks);
  if (library === undefined && parsed.has("topology")) {
    throw new UsageError(`--topology: found "${parsed.text("topology")}", --job needs a machine`);
  }
  if (library?.symmetric) {
    throw new UsageError(
      "--nccl: symmetric is of the program's buffers: comm.alloc(dtype, length, { symmetric: true })",
    );
  }
  const ofMachine = (["machine", "mode", "latency", "processes"] as const).find((name) =>
    parsed.has(name),
  );
  if (link !== undefined && ofMachine !== undefined) {
    throw new UsageError(
      `--${ofMachine} is of a machine's times; leave --latency-ns and --gigabytes-per-second out`,
    );
  }
  if (link === undefined && library?.profile !== undefined) {
    return { library, link, text: library.machineText };
  }
  return { library, link, text: linkText(linkOf(link)) };
}
