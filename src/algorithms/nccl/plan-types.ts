/** Types of a plan of NCCL, and of the request for it. */

import type { SymmetricPlace } from "../../api/backend-entry.ts";
import type { DType } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import type { Forced } from "./choice.ts";
import type { FoldOrder } from "./fold-order.ts";
import type {
  Evidence,
  NcclAlgorithm,
  NcclCollective,
  NcclProtocol,
  NcclSettings,
} from "./rules.ts";
import type { ChannelPaths, Topology } from "./topology.ts";

/** `none` where nothing is multiplied, or never fused; `byPosition`: see `isFusedAt`. */
export type HopRounding = "none" | "fused" | "separate" | "byPosition";

/** The two symmetric kernels that do without multicast. */
export type SymmetricKernel = "LL" | "LD";

/** A range of one output block that is folded in one order. */
export interface Piece {
  /** Block of the output that holds it: the receiving rank for a reduce-scatter, the sending one for an all-gather. */
  readonly block: number;
  readonly channel: number;
  readonly loop: number;
  /** Chunk within its loop. */
  readonly chunk: number;
  /** First element within the block; rounding by position counts from here. */
  readonly offset: number;
  readonly length: number;
  /** Contributions from left to right; the sender for a copy. */
  readonly order: FoldOrder;
}

/** A call, the machine it runs on, and the settings of NCCL. */
export interface PlanRequest {
  /** NCCL's version, such as `2.28`. */
  readonly version: string;
  /** Its ranks are those of the communicator. */
  readonly topology: Topology;
  readonly collective: NcclCollective;
  readonly dtype: DType;
  /** For collectives that reduce. */
  readonly op?: ReduceOp | undefined;
  /** Elements as passed to the call; for a reduce-scatter those of one block. */
  readonly count: number;
  /** For rooted collectives. */
  readonly root?: number | undefined;
  readonly settings?: NcclSettings | undefined;
  readonly forced?: Forced | undefined;
  /** Offsets in bytes of both buffers in their symmetric windows, if they are in such windows. */
  readonly symmetric?: SymmetricPlace | undefined;
}

/** The elements of one channel. */
export interface Part {
  readonly channel: number;
  readonly offset: number;
  readonly length: number;
}

/** The elements of one channel, and the number of elements of a full chunk. */
export interface PlannedPart extends Part {
  readonly chunk: number;
}

/** Fields of all plans. */
export interface PlanFacts {
  readonly version: string;
  readonly topology: string;
  readonly nodes: number;
  /** Ranks on each node; equal when left out. */
  readonly nodeSizes: readonly number[] | undefined;
  readonly evidence: Evidence;
  readonly ranks: number;
  readonly collective: NcclCollective;
  readonly dtype: DType;
  readonly op: ReduceOp | undefined;
  readonly count: number;
  /** -1 where the collective has none. */
  readonly root: number;
  /** Channels used, as NCCL logs them; blocks for a symmetric kernel. */
  readonly channels: number;
  readonly rounding: HopRounding;
  /** Type of a running value: the element type, or float32 with one rounding at the end. */
  readonly accumulator: "element" | "float32";
  /** Output blocks with bits that NCCL does not define: for an all-reduce block 0, else those of these ranks. */
  readonly undefinedBlocks: readonly number[];
  /** By block and offset; computed on first use. Empty chunks of a Ring all-reduce are included. */
  readonly pieces: readonly Piece[];
}

/** A call on channels. */
export interface ChannelPlan extends PlanFacts {
  readonly algorithm: NcclAlgorithm;
  readonly protocol: NcclProtocol;
  readonly parts: readonly PlannedPart[];
  /** Ring and tree of every used channel. */
  readonly paths: readonly ChannelPaths[];
}

/** A call through a symmetric kernel. */
export interface SymmetricPlan extends PlanFacts {
  readonly algorithm: "Symmetric";
  readonly protocol: SymmetricKernel;
}

/** A call of a single rank: a copy, which a pre-multiplied sum multiplies once. */
export interface CopyPlan extends PlanFacts {
  readonly algorithm: "Copy";
  readonly protocol: undefined;
}

/** NCCL's plan of a call. */
export type NcclPlan = ChannelPlan | SymmetricPlan | CopyPlan;
