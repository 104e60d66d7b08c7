/**
 * The samples of each rank in each step: every sample once an epoch, in an order that a seed fixes.
 *
 * The order depends only on the seed and the epoch. A batch is a range of it for all ranks together, and each rank takes its
 * part of the batch. So runs of different numbers of ranks have the same samples in the same steps, and one can resume at
 * another's place.
 */
import type { InvalidArgumentError } from "../api/index.ts";
import {
  assertOptions,
  type Complete,
  invalid,
  type OptionKinds,
  textOf,
} from "../api/option-kinds.ts";
import { isCount } from "./argument-checks.ts";
import { Random } from "./random.ts";
import { assertState, type State, type Stateful } from "./state.ts";

/** Options of a sampler; all but `rank` are the same on every rank. */
export interface SamplerOptions {
  /** Number of samples of the data set. */
  readonly samples: number;
  /** Samples of a step on all ranks together. */
  readonly batch: number;
  readonly rank: number;
  readonly size: number;
  /** Fixes the order; 0 when left out. */
  readonly seed?: number | undefined;
  /** True, the default, for another order in every epoch. Else samples are in the order of their numbers. */
  readonly shuffle?: boolean | undefined;
  /** The treatment of a last batch that is not full: `keep`, when left out, or `drop`. */
  readonly partial?: "keep" | "drop" | undefined;
}

const kinds: OptionKinds<SamplerOptions> = {
  ...{ samples: true, batch: true, rank: true, size: true },
  ...{ seed: true, shuffle: "boolean", partial: true },
};

/** One step's samples. */
export interface SampledBatch {
  /** From 0. */
  readonly epoch: number;
  /**
   * This rank's samples, from 0; as many as other ranks', or one more or less. Empty for some ranks if there are more ranks
   * than samples, also in a last batch alone: these pass no micro-batch to `step`.
   */
  readonly indexes: Uint32Array;
  /** Samples of all ranks together. */
  readonly samples: number;
}

/**
 * Assigns the samples of a data set to ranks, step by step.
 *
 * @throws InvalidArgumentError for an invalid option.
 * @example
 * const sampler = new Sampler({ samples: 60_000, batch: 256, rank: comm.rank, size: comm.size, seed: 7 });
 * const { indexes } = sampler.next();
 */
export class Sampler implements Stateful {
  readonly #options: Complete<SamplerOptions>;
  #epoch = 0;
  /** Samples of this epoch that were assigned. */
  #position = 0;
  #order: { readonly epoch: number; readonly indexes: Uint32Array } | undefined;

  constructor(options: SamplerOptions) {
    assertOptions("Sampler", options, kinds);
    const { seed = 0, shuffle = true, partial = "keep", ...sharing } = options;
    this.#options = { ...sharing, seed, shuffle, partial };
    assertSharing(this.#options);
  }

  /** Batches of one epoch. */
  get batchesPerEpoch(): number {
    const { samples, batch, partial } = this.#options;
    return partial === "keep" ? Math.ceil(samples / batch) : Math.floor(samples / batch);
  }

  /** The epoch of the next batch, from 0. */
  get epoch(): number {
    return this.#isOver ? this.#epoch + 1 : this.#epoch;
  }

  /** The samples of the next step; after the last of an epoch the next one begins. */
  next(): SampledBatch {
    if (this.#isOver) {
      this.#epoch++;
      this.#position = 0;
    }
    const { samples, batch, rank, size } = this.#options;
    const count = Math.min(batch, samples - this.#position);
    const begin = this.#position + Math.floor((count * rank) / size);
    const end = this.#position + Math.floor((count * (rank + 1)) / size);
    const indexes = this.#orderOf(this.#epoch).slice(begin, end);
    this.#position += count;
    return { epoch: this.#epoch, indexes, samples: count };
  }

  /** The remaining batches of the present epoch; of a new one after the end of the last. */
  *[Symbol.iterator](): IterableIterator<SampledBatch> {
    do yield this.next();
    while (!this.#isOver);
  }

  /** The place in the data: the same on every rank, for any number of ranks. */
  state(): State {
    const { samples, seed, shuffle } = this.#options;
    const [epoch, position] = [this.#epoch, this.#position];
    return { values: { samples, seed, shuffle, epoch, position }, tensors: {} };
  }

  /** Continues at the place of another sampler of the same data and seed; the batch size may differ. */
  restore(state: State): void {
    assertState("restore", state);
    const { epoch, position, ...found } = state.values;
    for (const field of ["samples", "seed", "shuffle"] as const) {
      const needed = this.#options[field];
      if (found[field] === needed) continue;
      throw invalid("restore", field, textOf(found[field]), `${needed}, as this sampler has`);
    }
    const { samples } = this.#options;
    if (!isCount(epoch))
      throw invalid("restore", "epoch", textOf(epoch), "an integer of at least 0");
    if (!isCount(position) || position > samples) {
      throw invalid("restore", "position", textOf(position), `an integer from 0 to ${samples}`);
    }
    this.#epoch = epoch;
    this.#position = position;
  }

  get #isOver(): boolean {
    const { samples, batch, partial } = this.#options;
    const left = samples - this.#position;
    return partial === "keep" ? left === 0 : left < batch;
  }

  /** The order of an epoch (Fisher and Yates). */
  #orderOf(epoch: number): Uint32Array {
    if (this.#order?.epoch === epoch) return this.#order.indexes;
    const { samples, seed, shuffle } = this.#options;
    const indexes = Uint32Array.from({ length: samples }, (_, at) => at);
    const random = new Random(seed, epoch);
    for (let at = samples - 1; shuffle && at > 0; at--) {
      const other = random.below(at + 1);
      const moved = indexes[at] as number;
      indexes[at] = indexes[other] as number;
      indexes[other] = moved;
    }
    this.#order = { epoch, indexes };
    return indexes;
  }
}

function assertSharing(options: Complete<SamplerOptions>): void {
  const { samples, batch, rank, size, seed, shuffle, partial } = options;
  const refuse = (field: keyof SamplerOptions, needed: string): InvalidArgumentError =>
    invalid("Sampler", field, textOf(options[field]), needed);
  const most = 2 ** 32;
  if (!isCount(samples, 1) || samples > most) {
    throw refuse("samples", "an integer from 1 to 2^32");
  }
  if (!isCount(batch, 1)) throw refuse("batch", "an integer of at least 1");
  if (!isCount(size, 1)) throw refuse("size", "an integer of at least 1");
  if (!isCount(rank) || rank >= size) throw refuse("rank", `an integer from 0 to ${size - 1}`);
  if (!Number.isSafeInteger(seed)) throw refuse("seed", "an integer");
  if (typeof shuffle !== "boolean") throw refuse("shuffle", "true or false");
  if (partial !== "keep" && partial !== "drop") throw refuse("partial", '"keep" or "drop"');
  if (partial === "drop" && samples < batch) {
    throw refuse("batch", `at most ${samples}, the samples, where partial batches are dropped`);
  }
}
