/** The plan of a call: program, fused folds, layout and arithmetic, made once for each shape and kept. */

import {
  type CollectiveName,
  type DType,
  type ReduceOp,
  type SpecifiedCollective,
  type SymmetricPlace,
  specifications,
} from "../../api/index.ts";
import type { Cost } from "../algorithm.ts";
import type { FusedPlan } from "../fuse.ts";
import type { CallShape, Layout } from "../layout.ts";
import type { PlanFolds } from "../nccl/index.ts";
import type { Program } from "../program.ts";

/** A call as far as its plan depends on it. */
export interface PlanQuestion {
  readonly collective: SpecifiedCollective;
  readonly ranks: number;
  /** -1 where the collective has none. */
  readonly root: number;
  readonly dtype: DType | undefined;
  readonly op: ReduceOp | undefined;
  readonly count: number;
  /** The ranks keep the order of the devices they run on. */
  readonly ordered: boolean;
  /** Where both buffers lie in symmetric memory. */
  readonly place: SymmetricPlace | undefined;
}

/** How a call is done. */
export interface Plan {
  readonly name: string;
  readonly protocol: string | undefined;
  /** One sentence for people. */
  readonly summary: string;
  /** What is said about equality with NCCL. */
  readonly claim: string;
  /** Traces say that nothing is claimed: NCCL was to be followed and could not be, or the caller wrote the algorithm. */
  readonly unclaimed: boolean;
  /** The fastest way to make such a call, in words; left out where none was measured. */
  readonly fastest?: string | undefined;
  /** Why a call that would take this plan is refused; `undefined` when it is not. */
  readonly refusal: string | undefined;
  readonly ranks: number;
  /** Lanes of each rank. */
  readonly channels: number;
  /** Closed form of the cost, where there is one. */
  readonly cost: ((count: number) => Cost) | undefined;
  /** What a table of chunks and steps would tell, in fewer lines; `undefined` where the tables are what is shown. */
  readonly outline: readonly string[] | undefined;
  /** Made when it is first asked for, as are `fused` and layouts. UnsupportedError where it would be too large. */
  readonly program: Program;
  /** Predicting time needs none. */
  readonly fused: FusedPlan;
  /** Where the blocks and chunks of a call of that shape lie. */
  layout(shape: CallShape): Layout;
  /** How a rank's contributions are folded. */
  folds(dtype: DType, op: ReduceOp): PlanFolds;
}

/** Makes the plans of a world. */
export interface Planner {
  /** The plan of a call. */
  of(question: PlanQuestion): Plan;
  /** A reduce-scatter of blocks of different lengths is done as one reduce for each root. */
  reducesEachRoot(question: PlanQuestion): boolean;
}

/** True when programs exist for a collective. */
export function isBuilt(collective: CollectiveName): collective is SpecifiedCollective {
  return Object.hasOwn(specifications, collective);
}
