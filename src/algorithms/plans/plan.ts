/** The plan of a call: program, fused folds, layout and arithmetic; planners cache plans by shape. */

import type { SymmetricPlace } from "../../api/backend-entry.ts";
import {
  type CollectiveName,
  type DType,
  type ReduceOp,
  type SpecifiedCollective,
  specifications,
} from "../../api/index.ts";
import type { Cost } from "../algorithm.ts";
import type { FusedPlan } from "../fuse.ts";
import type { CallShape, Layout } from "../layout.ts";
import type { CallChoice, MessageUse, PlanFolds } from "../nccl/index.ts";
import type { Program } from "../program.ts";
import type { Link } from "../timing.ts";

/** The facts of a call that decide its plan. */
export interface PlanQuestion {
  readonly collective: SpecifiedCollective;
  readonly ranks: number;
  /** -1 where the collective has none. */
  readonly root: number;
  readonly dtype: DType | undefined;
  readonly op: ReduceOp | undefined;
  readonly count: number;
  /** True if the ranks keep the order of their devices. */
  readonly ordered: boolean;
  /** Offsets of both buffers in symmetric memory; `undefined` elsewhere. */
  readonly place: SymmetricPlace | undefined;
}

/** The plan of a call. */
export interface Plan {
  readonly name: string;
  readonly protocol: string | undefined;
  /** One sentence for users. */
  readonly summary: string;
  /** The claim about equality with NCCL, as a sentence. */
  readonly claim: string;
  /** True if traces mark the call as unclaimed: NCCL's plan was requested but is unknown, or the algorithm is the caller's. */
  readonly unclaimed: boolean;
  /** The fastest measured way to make such a call, in words; left out where none was measured. */
  readonly fastest?: string | undefined;
  /** The reason to refuse a call with this plan; `undefined` when it is accepted. */
  readonly refusal: string | undefined;
  readonly ranks: number;
  /** Lanes of each rank. */
  readonly channels: number;
  /** Closed form of the cost, where there is one. */
  readonly cost: ((count: number) => Cost) | undefined;
  /** A summary in place of the tables of chunks and steps; `undefined` where the tables are shown. */
  readonly outline: readonly string[] | undefined;
  /** Built on first use, like `fused` and layouts. Throws UnsupportedError if it is too large. */
  readonly program: Program;
  /** The folds for executors; not needed to predict time. */
  readonly fused: FusedPlan;
  /** The elements of the blocks and chunks of a call of that shape. */
  layout(shape: CallShape): Layout;
  /** The arithmetic of a rank's contributions. */
  folds(dtype: DType, op: ReduceOp): PlanFolds;
}

/** The measured machine of a predicted time. */
export interface TimedMachine {
  /** Machine and library in words. */
  readonly machine: string;
  /** The reason why the time is extrapolated; `undefined` within the measured range. */
  readonly extrapolated: string | undefined;
}

/** The predicted time of a call on a measured machine. */
export interface MachineTime extends TimedMachine {
  readonly ns: number;
  /** NCCL's choice; `undefined` for a call that moves nothing between GPUs. */
  readonly choice: CallChoice | undefined;
}

/** The time of one message among those of its group, in picoseconds. */
export interface MessageTime {
  /** From the sender's port to the receiver's on a link; `undefined` where both ports move a message at the same time. */
  readonly latencyPs: number | undefined;
  /** A message holds the ports of both ranks for so long. */
  readonly occupancyPs: number;
  /** While its bytes move, which is at least as long; messages of one group move at the same time. */
  readonly movedPs: number;
  /** The receiver's copy of the last chunk, once both ports are free. */
  readonly lastPs: number;
  /** The time before its bytes move. */
  readonly startPs: number;
  /** The part of it that is the call's, which messages of one group share. */
  readonly callPs: number;
  /** By so much the receiver ends behind the sender, which can be ahead of it by as much. */
  readonly lagPs: number;
  /** The machine of the time; `undefined` on a link. */
  readonly on: TimedMachine | undefined;
}

/** The machine of a predicted time in words, and the reason for an extrapolated one. */
export function machineText({ machine, extrapolated }: TimedMachine): string {
  return extrapolated === undefined ? machine : `${machine}; extrapolated: ${extrapolated}`;
}

/** Counts of blocks of different lengths: row i for rank i of an all-to-allv, else one row with the blocks of all ranks. */
export type BlockCounts = readonly (readonly number[])[];

/** Plans the calls of a world. */
export interface Planner {
  /** A link on which the catalogue's messages take about as long as sends; `undefined` where the machine was not measured. */
  readonly messages: Link | undefined;
  /** The time of a message on a communicator of `ranks`; `undefined` where the machine was not measured. */
  message(bytes: number, ranks: number, use: MessageUse): MessageTime | undefined;
  /** The predicted time of a call on that machine, from the last rank's arrival on; `undefined` for no such machine. */
  time(question: PlanQuestion, counts: BlockCounts | undefined): MachineTime | undefined;
  /** The plan of a call. */
  of(question: PlanQuestion): Plan;
  /** True for a reduce-scatter of blocks of different lengths that runs as one reduce for each root. */
  reducesEachRoot(question: PlanQuestion): boolean;
}

/** True when programs exist for a collective. */
export function isBuilt(collective: CollectiveName): collective is SpecifiedCollective {
  return Object.hasOwn(specifications, collective);
}
