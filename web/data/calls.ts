/** The call that the page's state describes: its counts, its operator and its traits. */
import type { ReduceOp } from "twinccl";
import { specifications } from "twinccl";
import { type CallCounts, takesArgument } from "../../src/api/collectives/call-layout.ts";
import type { State } from "../state.ts";

/** The counts of the call, in elements. */
export function countsOf(state: State): CallCounts {
  const { ranks, root, count } = state;
  const rows = blockCounts(state);
  if (isExchange(state)) return { ranks, root, count, traffic: rows };
  return { ranks, root, count, counts: rows?.[0] };
}

/** The operator, as a call takes it. */
export function operatorOf({ op, scalar }: State): ReduceOp {
  return op === "preMul" ? { preMul: scalar } : op;
}

/** True for a collective that moves data. */
export function moves({ collective }: State): boolean {
  return collective !== "barrier";
}

/** Counts of a v-form by rank: from few to many, `count` on average. */
function rowCounts({ ranks, count }: State): number[] {
  return Array.from({ length: ranks }, (_, rank) => skewed(count, rank, ranks));
}

/** Row i: what rank i sends to each rank. */
function matrixCounts({ ranks, count }: State): number[][] {
  return Array.from({ length: ranks }, (_, from) =>
    Array.from({ length: ranks }, (_, to) => skewed(count, (2 * from + to) % ranks, ranks)),
  );
}

/** Blocks of a v-form's buffers; `undefined` where all blocks are as long as `count`. */
export function blockCounts(state: State): readonly (readonly number[])[] | undefined {
  if (isExchange(state)) return matrixCounts(state);
  return state.collective.endsWith("v") ? [rowCounts(state)] : undefined;
}

/** True for a call with counts of its own for every pair of ranks. */
export function isExchange({ collective }: State): boolean {
  return takesArgument(collective, "sendCounts") && takesArgument(collective, "recvCounts");
}

/** True when the call reduces, or has a root. */
export function traits({ collective }: State): {
  readonly reduces: boolean;
  readonly rooted: boolean;
} {
  return specifications[collective];
}

function skewed(count: number, place: number, places: number): number {
  return Math.round((2 * count * (place + 1)) / (places + 1));
}
