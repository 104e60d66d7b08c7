/** A call of all ranks as planners and executors see it: operation, shape and memory. */
import {
  type Blocks,
  type CallShape,
  isOrdered,
  type Layout,
  type Plan,
  type PlanQuestion,
  packed,
} from "../../algorithms/index.ts";
import {
  type CallSet,
  type DeviceBuffer,
  overlapBytes,
  type RankCall,
  type SpecifiedCollective,
  symmetricPlace,
} from "../../api/index.ts";
import type { BoundBuffer, BoundCall, SimMemory } from "./executor.ts";

/** The question to a planner about a call. */
export function planQuestion(
  collective: SpecifiedCollective,
  { calls, comm }: CallSet,
): PlanQuestion {
  const { dtype, op, count = 0, root = -1 } = calls[0] ?? {};
  const place = calls[0] && symmetricPlace(calls[0]);
  return {
    collective,
    ranks: calls.length,
    root,
    dtype,
    op,
    count,
    ordered: isOrdered(comm),
    place,
  };
}

/** Counts of a call; blocks of their own where some rank gave them. */
export function shapeOf({ calls }: CallSet): CallShape {
  const count = calls[0]?.count ?? 0;
  const varies = calls.some(
    (call) => call.sendCounts !== undefined || call.recvCounts !== undefined,
  );
  if (!varies) return { count };
  return { count, blocks: { in: calls.map(sendBlocks), out: calls.map(recvBlocks) } };
}

function sendBlocks({ sendCounts, sendOffsets, send, count }: RankCall): Blocks {
  if (sendCounts === undefined) return packed(send === undefined ? [] : [count]);
  return { counts: sendCounts, offsets: sendOffsets ?? packed(sendCounts).offsets };
}

function recvBlocks({ recvCounts, recvOffsets, recv, count }: RankCall): Blocks {
  if (recvCounts === undefined) return packed(recv === undefined ? [] : [count]);
  return { counts: recvCounts, offsets: recvOffsets ?? packed(recvCounts).offsets };
}

/** Joins a call with its memory; nothing to move for a barrier. */
export function bind({ calls }: CallSet, plan: Plan, layout: Layout): BoundCall[] {
  const dtype = calls[0]?.dtype;
  if (dtype === undefined) return [];
  const folds = calls.flatMap(({ op }) => (op === undefined ? [] : [plan.folds(dtype, op)]));
  const joined = folds.some(({ separate }) => separate !== undefined);
  const bound: BoundCall = {
    dtype,
    plan: plan.fused,
    layout,
    inputs: calls.map((call) => boundBuffer(call.send)),
    outputs: calls.map((call) => boundBuffer(call.recv)),
    folds: folds.map(({ fold }) => fold),
    separate: joined ? folds.map(({ fold, separate }) => separate ?? fold) : undefined,
    inPlace: calls.some(overlaps),
  };
  return [bound];
}

function boundBuffer(buffer: DeviceBuffer | undefined): BoundBuffer | undefined {
  if (buffer === undefined) return undefined;
  const { allocation, byteOffset, byteLength } = buffer;
  return { memory: allocation.memory as SimMemory, byteOffset, byteLength };
}

function overlaps({ send, recv }: RankCall): boolean {
  return send !== undefined && recv !== undefined && overlapBytes(send, recv) > 0;
}
