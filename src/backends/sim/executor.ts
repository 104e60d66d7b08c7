/** The contract of an executor: whoever moves and folds the data of one bound call. */
import type { Fold } from "../../algorithms/arithmetic/index.ts";
import type { FusedPlan, Layout } from "../../algorithms/index.ts";
import type { DType } from "../../api/index.ts";
import type { HostMemory } from "./memory.ts";

/** A range of a rank's memory. */
export interface BoundBuffer {
  readonly memory: HostMemory;
  readonly byteOffset: number;
  readonly byteLength: number;
}

/** A call with everything an executor needs: which folds, of which chunks, in which memory. */
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
   * Given where a scalar's product is fused or not by the position in the chunk: every block is folded this way too,
   * and `takeSeparate` joins the two. By rank.
   */
  readonly separate: readonly Fold[] | undefined;
  /** Some rank's output lies on its input. */
  readonly inPlace: boolean;
}

/** Moves and folds data. The result depends on the call alone: every executor gives the same bits. */
export interface Executor {
  readonly name: string;
  /** Runs a call; a promise means that it is still at it. */
  execute(call: BoundCall): void | Promise<void>;
}
