/** The contract of an executor: it moves and folds the data of one bound call, and holds data outside of host memory. */
import type { Fold } from "../../algorithms/arithmetic/index.ts";
import type { FusedPlan, Layout } from "../../algorithms/index.ts";
import type { Memory, Probe } from "../../api/backend-entry.ts";
import type { DType } from "../../api/index.ts";

/** Memory of a simulated device: `HostMemory`, or what an executor allocates. */
export interface SimMemory extends Memory {
  /**
   * A version of a range's contents: it changes when the range may have been written since the last query. For strict lending.
   */
  fingerprint(byteOffset: number, byteLength: number): number;
}

/**
 * A range of a rank's memory. Every executor can receive host memory lent by a caller (`borrowed`), or allocated instead of
 * another executor's. An executor that allocates can receive both kinds in one call.
 */
export interface BoundBuffer {
  readonly memory: SimMemory;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/**
 * A call with everything an executor needs: which folds, of which chunks, in which memory. A repeated call with the same
 * arguments is the same object, so that an executor may cache data for it.
 */
export interface BoundCall {
  readonly dtype: DType;
  readonly plan: FusedPlan;
  readonly layout: Layout;
  /** By rank; ranks without a buffer of that role have none. */
  readonly inputs: readonly (BoundBuffer | undefined)[];
  readonly outputs: readonly (BoundBuffer | undefined)[];
  /** The fold of each rank's contribution: they differ only in the scalar of a pre-multiplied sum. Empty for copies. */
  readonly folds: readonly Fold[];
  /**
   * Present if the position in the chunk decides whether a scalar's product is fused. Every block is then also folded this way,
   * and `takeSeparate` combines both. By rank.
   */
  readonly separate: readonly Fold[] | undefined;
  /** True if the output of a rank overlaps its input, where the plan depends on that. */
  readonly inPlace: boolean;
  /** The executor's cached work for the call. */
  work?: object;
}

/**
 * Moves and folds data. The result depends on the call alone: every executor gives the same bits.
 *
 * One executor may serve several worlds at once: `open` and `close` are called once for each.
 */
export interface Executor {
  readonly name: string;
  /** The reason why it cannot be opened here, if any; left out by executors that can always be opened. */
  probe?(): Probe | Promise<Probe>;
  /** Called when a world of `size` ranks begins, before its first allocation. Throws `BackendUnavailableError`. */
  open?(size: number): void | Promise<void>;
  /** New memory of a rank's device at a simulated address; contents are zero. Left out: host memory. */
  allocate?(device: string, ptr: bigint, byteLength: number): SimMemory;
  /** Memory that the caller's own code owns, at an address that this executor gave. Left out where there is none. */
  adopt?(device: string, ptr: bigint, byteLength: number): SimMemory;
  /**
   * Runs a call; a promise resolves when it is done. From then on the outputs hold the result. Calls of one world may overlap;
   * they take effect in the order of submission.
   */
  execute(call: BoundCall): void | Promise<void>;
  /** Runs calls that were made as one, such as those of a replay. Left out: `execute` runs them one after another. */
  executeTogether?(calls: readonly BoundCall[]): void | Promise<void>;
  /** Called when an opened world is closed. */
  close?(): void | Promise<void>;
}
