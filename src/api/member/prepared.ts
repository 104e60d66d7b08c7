/** A validated call, ready to be posted: what a collective's definition makes of its arguments. */
import type { RankCall } from "../backend.ts";
import { allocationOf, type DeviceBuffer } from "../buffer.ts";
import type { CollectiveName } from "../collectives/spec.ts";
import type { DType } from "../dtype.ts";
import type { MatchedCall } from "../ledger/matched-call.ts";
import type { SignatureField } from "../ledger/posting.ts";
import type { Operation } from "../op.ts";
import type { ReduceOp } from "../reduce-op.ts";

/** The fields that a `RankCall` gets from the arguments; others are `undefined` there, and -1 for the root. */
export interface PreparedCall {
  readonly dtype?: DType;
  readonly op?: ReduceOp;
  readonly count: number;
  readonly root?: number;
  readonly send?: DeviceBuffer | undefined;
  readonly recv?: DeviceBuffer | undefined;
  readonly blocks?: PreparedBlocks;
  readonly split?: RankCall["split"];
  readonly recorded?: RankCall["recorded"];
  readonly graph?: RankCall["graph"];
}

/** Blocks of a v-form. */
export interface PreparedBlocks {
  readonly sendCounts?: readonly number[];
  readonly sendOffsets?: readonly number[];
  readonly recvCounts?: readonly number[];
  readonly recvOffsets?: readonly number[];
}

/** A call, what must be equal on all ranks, and what the caller gets. */
export interface Prepared<T> {
  readonly call: PreparedCall;
  readonly signature: readonly SignatureField[];
  readonly toResult: (call: RankCall) => T;
  /** The ledger's finding when this was last the first rank's call. */
  matched?: MatchedCall;
  /** The call as it was made before: where time is real, it is the same again. */
  rankCall?: RankCall;
}

/** The call of a rank, at a virtual time. */
export function rankCall(
  collective: CollectiveName,
  rank: number,
  prepared: PreparedCall,
  nowPs: number,
): RankCall {
  const { dtype, op, count, root = -1, send, recv, blocks, split, recorded, graph } = prepared;
  return {
    rank,
    collective,
    dtype,
    op,
    count,
    root,
    send,
    recv,
    sendCounts: blocks?.sendCounts,
    sendOffsets: blocks?.sendOffsets,
    recvCounts: blocks?.recvCounts,
    recvOffsets: blocks?.recvOffsets,
    split,
    recorded,
    graph,
    postedAtPs: nowPs,
    finishedAtPs: nowPs,
  };
}

/** True unless the receiver of an all-to-allv has yet to learn what it gets, and where. */
export function hasReceiveCounts({ collective, recv, recvCounts }: RankCall): boolean {
  return collective !== "allToAllv" || (recv !== undefined && recvCounts !== undefined);
}

/** Bytes that a call sends; those of its calls for a replay, none for a capture. */
export function bytesSent({ collective, send, recorded }: RankCall): number {
  if (collective === "replay") return recorded?.sendBytes ?? 0;
  return send?.byteLength ?? 0;
}

/** The part of an operator that must be equal on all ranks: a pre-multiplied sum's scalar may differ. */
export function opSignature(op: ReduceOp): string {
  return typeof op === "string" ? op : "preMul";
}

/** A send or a receive of a call. */
export interface PreparedHalf {
  readonly direction: "send" | "recv";
  readonly peer: number;
  readonly call: PreparedCall;
}

/** The whole call of sends and receives: counted as its send, where it has one. */
export function wholeTransfer({ transfers }: PreparedTransfer<unknown>): PreparedCall {
  const calls = transfers.map(({ call }) => call);
  const [first] = calls;
  const send = calls.find((call) => call.send !== undefined)?.send;
  const recv = calls.find((call) => call.recv !== undefined)?.recv;
  return { count: 0, ...first, send, recv };
}

/** A point-to-point call: its sends and receives, and the result for the caller. */
export interface PreparedTransfer<T> {
  readonly transfers: readonly PreparedHalf[];
  readonly result: T;
}

/** From now until it settles, the operation has the call's memory; reads of it wait. */
export function markInUse(
  op: Operation,
  { send, recv }: Pick<PreparedCall, "send" | "recv">,
): void {
  if (send !== undefined) allocationOf(send).lastUse = op;
  if (recv !== undefined) allocationOf(recv).lastUse = op;
}

/** The buffers of a prepared call. */
export function buffersIn(prepared: Prepared<unknown> | PreparedTransfer<unknown>): DeviceBuffer[] {
  const parts =
    "transfers" in prepared ? prepared.transfers.map(({ call }) => call) : [prepared.call];
  return parts.flatMap(({ send, recv }) => [send, recv]).filter((buffer) => buffer !== undefined);
}
