/** The contract of an executor: it moves and folds the data of one bound call, and holds data outside of host memory. */
import type { Fold } from "../../algorithms/arithmetic/index.ts";
import type { FusedPlan, Layout } from "../../algorithms/index.ts";
import type { DType, Memory, Probe } from "../../api/index.ts";

/** Memory of a simulated device: `HostMemory`, or what an executor allocates. */
export interface SimMemory extends Memory {
  /** Distinguishes contents: another number when a range may have been written since the last query. For strict lending. */
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
  /** Some rank's output lies on its input. */
  readonly inPlace: boolean;
  /** The executor's work that can be used again. */
  work?: object;
}

/**
 * Moves and folds data. The result depends on the call alone: every executor gives the same bits.
 *
 * One executor may serve several worlds at once: `open` and `close` come once for each.
 */
export interface Executor {
  readonly name: string;
  /** The reason why it cannot be opened here, if there is one; left out where it always can. */
  probe?(): Probe | Promise<Probe>;
  /** A world of `size` ranks begins; comes before its first allocation. Throws `BackendUnavailableError`. */
  open?(size: number): void | Promise<void>;
  /** New memory of a rank's device at a simulated address; contents are zero. Left out: host memory. */
  allocate?(device: string, ptr: bigint, byteLength: number): SimMemory;
  /** Memory that the caller's own code owns, at an address that this executor gave. Left out where there is none. */
  adopt?(device: string, ptr: bigint, byteLength: number): SimMemory;
  /**
   * Runs a call; a promise means that it is still at it. When it is done, reading the outputs gives the result. Calls of
   * one world may overlap; they take effect in the order in which they were handed over.
   */
  execute(call: BoundCall): void | Promise<void>;
  /** Runs calls that were made as one, a replay's for example, as `execute` would one after another. Left out: that is done. */
  executeTogether?(calls: readonly BoundCall[]): void | Promise<void>;
  /** A world that was opened is over. */
  close?(): void | Promise<void>;
}
