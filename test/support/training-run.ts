/** A whole training job on some backend: model, optimizer, sampler, random numbers, checkpoints. */
import { type Backend, type Communicator, createWorld } from "twinccl";
import {
  adamW,
  type CheckpointFiles,
  type CheckpointParts,
  Checkpoints,
  DataParallel,
  type DataParallelOptions,
  Optimizer,
  ParameterSet,
  Random,
  Sampler,
  warmUp,
} from "twinccl/parallel";
import type { Sample, SmallNetwork } from "./small-network.ts";

/** The configuration of a training. */
export interface Job {
  readonly network: SmallNetwork;
  readonly data: readonly Sample[];
  /** Samples of a step on all ranks together. */
  readonly batch: number;
  readonly options?: DataParallelOptions;
  /** Each rank's samples of a step are cut into so many micro-batches, by rank; 1 where left out. */
  readonly microBatches?: readonly number[];
  /** Samples get noise from every rank's own random numbers. */
  readonly noise?: boolean;
}

/** The parts of a run's checkpoint. */
export const parts = ["model", "optimizer", "sampler", "random", "trainer"] as const;

/** Where a run begins and ends. */
export interface Span {
  /** The last step; steps count from 1. */
  readonly until: number;
  /** Begins with what is there, and saves at its end. */
  readonly files?: CheckpointFiles;
  /** Saves after every step, not only at the end. */
  readonly everyStep?: boolean;
  /** Neither saves nor loads this part: to see that it matters. */
  readonly without?: (typeof parts)[number];
}

/** The state of every rank at the end. */
export interface RunEnd {
  readonly losses: readonly number[];
  readonly norms: readonly number[];
  /** The bits of all values, in the order of names. */
  readonly bits: string;
  readonly values: ReadonlyMap<string, readonly number[]>;
}

/** Runs a job on a world of its own. */
export async function runJob(
  backend: Backend,
  size: number,
  job: Job,
  span: Span,
): Promise<RunEnd[]> {
  const world = await createWorld({ backend, size });
  try {
    return await world.run((comm) => trainOn(comm, job, span));
  } finally {
    await world.close();
  }
}

/** One rank's program. */
export async function trainOn(comm: Communicator, job: Job, span: Span): Promise<RunEnd> {
  const { network, data, batch, options = {}, noise = false } = job;
  const { rank, size } = comm;
  const declared = network.declarations(11);
  const model = new ParameterSet(rank % 2 === 0 ? declared : declared.toReversed());
  const optimizer = new Optimizer(
    model,
    adamW({ learningRate: warmUp({ steps: 4, start: 0.2, after: 0.02 }), weightDecay: 0.1 }),
  );
  const sampler = new Sampler({ samples: data.length, batch, rank, size, seed: 3 });
  const random = new Random(17, rank);
  const trainer = await DataParallel.create(comm, model, options);
  const kept = keptParts({ model, optimizer, sampler }, { random, trainer }, span.without);
  const values = new Map([...model].map(({ name, value }) => [name, value]));
  const checkpoints = span.files === undefined ? undefined : new Checkpoints(comm, span.files);
  const begun = (await checkpoints?.load(kept))?.step ?? 0;
  const losses: number[] = [];
  const norms: number[] = [];
  for (let step = begun + 1; step <= span.until; step++) {
    const mine = Array.from(sampler.next().indexes, (at) => data[at]!).map(({ input, target }) => ({
      input: noise ? input.map((each) => each + 0.01 * random.uniform()) : input,
      target,
    }));
    const stats = await trainer.step(
      cut(mine, job.microBatches?.[rank] ?? 1),
      (samples, ready) => ({
        loss: network.backward(values, samples, ready),
        samples: samples.length,
      }),
    );
    optimizer.step();
    losses.push(stats.loss);
    norms.push(stats.gradientNorm);
    if (span.everyStep === true || step === span.until) await checkpoints?.save(step, kept);
  }
  trainer[Symbol.dispose]();
  const entries = [...model].map(({ name, value }): [string, number[]] => [name, [...value]]);
  const bytes = [...model].flatMap(({ value }) => [...new Uint8Array(value.slice().buffer)]);
  return { losses, norms, bits: bytes.join(), values: new Map(entries) };
}

function keptParts(
  shared: CheckpointParts["shared"],
  perRank: NonNullable<CheckpointParts["perRank"]>,
  without?: string,
): CheckpointParts {
  const others = <T>(of: Readonly<Record<string, T>>): Record<string, T> =>
    Object.fromEntries(Object.entries(of).filter(([name]) => name !== without));
  return { shared: others(shared), perRank: others(perRank) };
}

/** Cuts samples into parts that differ by one at most; no part is empty. */
export function cut<T>(all: readonly T[], parts: number): T[][] {
  const bounds = Array.from({ length: parts + 1 }, (_, at) =>
    Math.floor((all.length * at) / parts),
  );
  return bounds
    .slice(1)
    .map((end, at) => all.slice(bounds[at], end))
    .filter((part) => part.length > 0);
}
