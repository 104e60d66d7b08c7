/**
 * One step of data parallelism on the virtual clock: backward takes time layer by layer, and hides a measured share of
 * the communication.
 *
 * The reference transformer has 212 thousand parameters and ports of 1.25 GB/s: one of 68 million parameters on ports of
 * 400 GB/s, 320 times smaller in bytes and in bytes a second, so every bucket takes as long and latency counts as much.
 */
import { createWorld } from "twinccl";
import { DataParallel, type Ready } from "twinccl/parallel";
import { type Transformer, transformer } from "twinccl/parallel/models";
import { type LinkOptions, sim, Trace } from "twinccl/sim";

const SCALE = 320;
const shape = { vocabulary: 64, context: 64, width: 64, heads: 4, blocks: 4, seed: 1 };
const referenceLink: LinkOptions = { latencyNs: 1000, gigabytesPerSecond: 400 / SCALE };

/** The library's own bucket size, on the reference's scale: 80 KiB. */
export const referenceBucketBytes: number = (25 * 2 ** 20) / SCALE;

/** The reference on each rank, for all runs: values change no time, and drawing them takes most of a run. */
const models: Transformer[] = [];

/** Elements of each of the reference's parameters, by name. */
export const referenceLengths: ReadonlyMap<string, number> = new Map(
  [...transformer(shape).parameters].map(({ name, length }) => [name, length]),
);

/** The configuration of a run. */
export interface OverlapCase {
  readonly size: number;
  readonly bucketBytes: number;
  /** The reference's when left out. */
  readonly link?: LinkOptions;
}

/** Something that took virtual time, in nanoseconds since the step began on its rank. */
export interface Span {
  readonly name: string;
  readonly beginNs: number;
  readonly endNs: number;
}

/** One rank's step. */
export interface RankStep {
  /** Backward of each parameter, by its name. */
  readonly work: readonly Span[];
  /** The calls that sum buckets, and the last one, which carries losses and samples. */
  readonly calls: readonly Span[];
  readonly stepNs: number;
}

/** A step with as much backward as communication, both ways. */
export interface Overlap {
  /** All communication of the step; and all backward. */
  readonly communicationNs: number;
  readonly buckets: number;
  /** Gradients are reported when backward has ended. */
  readonly after: readonly RankStep[];
  /** Gradients are reported as backward produces them. */
  readonly during: readonly RankStep[];
}

/** Runs the step three times: without backward, to see how long communication takes, and then both ways. */
export async function overlapOf(which: OverlapCase): Promise<Overlap> {
  const idle = await stepOf(which, 0, "after");
  const communicationNs = longest(idle.ranks);
  const after = await stepOf(which, communicationNs, "after");
  const during = await stepOf(which, communicationNs, "during");
  return { communicationNs, buckets: idle.buckets, after: after.ranks, during: during.ranks };
}

/** Time of a step: that of the rank that is done last. */
export function longest(ranks: readonly RankStep[]): number {
  return Math.max(...ranks.map(({ stepNs }) => stepNs));
}

/** The share of the communication that adds nothing to the step's time. */
export function hiddenShare({ communicationNs }: Overlap, ranks: readonly RankStep[]): number {
  const backwardNs = communicationNs;
  return 1 - (longest(ranks) - backwardNs) / communicationNs;
}

async function stepOf(
  { size, bucketBytes, link = referenceLink }: OverlapCase,
  backwardNs: number,
  reporting: "after" | "during",
): Promise<{ ranks: RankStep[]; buckets: number }> {
  const trace = new Trace();
  const world = await createWorld({ backend: sim({ trace, link }), size });
  try {
    const [buckets] = await world.run(async (comm) => {
      models[comm.rank] ??= transformer(shape);
      const model = models[comm.rank]!;
      const durations = durationsOf(model, backwardNs);
      const trainer = await DataParallel.create(comm, model.parameters, { bucketBytes });
      // The only call that all ranks leave at one time.
      await comm.split({ color: 0 });
      comm.work(0, "step");
      // What backward computes changes no time, so a few tokens do.
      const batch = { tokens: [comm.rank, 1, 2], sequences: 1 };
      await trainer.step([batch], (each, ready) => {
        const held: Parameters<Ready>[] = [];
        const sums = model.backward(each, (name, gradient) => {
          comm.work(durations.get(name)!, name);
          if (reporting === "during") ready(name, gradient);
          else held.push([name, gradient]);
        });
        for (const one of held) ready(...one);
        return sums;
      });
      return trainer.buckets;
    });
    return { ranks: stepsIn(trace, size), buckets: buckets! };
  } finally {
    await world.close();
  }
}

/** Divides the time of backward by what each parameter's gradient and that of its layer's input take, a row of a full context. */
function durationsOf({ parameters }: Transformer, backwardNs: number): Map<string, number> {
  const { context, width } = shape;
  const operations = new Map(
    [...parameters].map(({ name, shape: extents, length }): [string, number] => {
      const isTable = name === "token.weight" || name === "position.weight";
      // A row is added to a table, and to a bias or what a norm has of one; a matrix is multiplied twice.
      if (isTable || extents.length < 2) return [name, 2 * (extents.at(-1) as number)];
      // The gradients of query, key, value and shares, with half of the context on average, are there before this one.
      const mixing = name.endsWith("attention.value.weight") ? 4 * width * context : 0;
      return [name, 4 * length + mixing];
    }),
  );
  const all = [...operations.values()].reduce((sum, each) => sum + each, 0);
  return new Map([...operations].map(([name, each]) => [name, (backwardNs * each) / all]));
}

/** The work of each rank since its step began. */
function stepsIn(trace: Trace, size: number): RankStep[] {
  const spans = trace.toChrome().traceEvents.filter(({ ph }) => ph === "X");
  return Array.from({ length: size }, (_, rank) => {
    const mine = spans.filter(({ pid }) => pid === rank);
    const begunUs = mine.find(({ name }) => name === "step")!.ts!;
    const row = (tid: number): Span[] =>
      mine
        .filter((span) => span.tid === tid && span.ts! >= begunUs && span.name !== "step")
        .map(({ name, ts, dur }) => {
          const beginNs = 1000 * (ts! - begunUs);
          return { name, beginNs, endNs: beginNs + 1000 * dur! };
        });
    const [calls, work] = [row(0), row(3)];
    const stepNs = Math.max(...[...calls, ...work].map(({ endNs }) => endNs));
    return { work, calls, stepNs };
  });
}
