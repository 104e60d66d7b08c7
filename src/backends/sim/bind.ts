/** Calls of all ranks, and messages, as planners and executors see them: operation, shape and memory. */
import type { CallShape, FusedPlan, Layout, Plan } from "../../algorithms/index.ts";
import { inputBlocks, outputBlocks, overlaps } from "../../algorithms/layout.ts";
import { reduceOfBlock } from "../../algorithms/plans/index.ts";
import { type CallSet, memoryOf, type Transfer } from "../../api/backend-entry.ts";
import type { DeviceBuffer } from "../../api/index.ts";
import type { BoundBuffer, BoundCall, SimMemory } from "./executor.ts";

/** Counts of a call; blocks of their own where some rank gave them. */
export function shapeOf({ calls }: CallSet): CallShape {
  const count = calls[0]?.count ?? 0;
  const varies = calls.some(
    (call) => call.sendCounts !== undefined || call.recvCounts !== undefined,
  );
  if (!varies) return { count };
  return { count, blocks: { in: calls.map(inputBlocks), out: calls.map(outputBlocks) } };
}

/** Joins a call with its memory; nothing to move for a barrier. */
export function bind({ calls }: CallSet, plan: Plan, layout: Layout): BoundCall[] {
  const dtype = calls[0]?.dtype;
  if (dtype === undefined) return [];
  const folds = calls.flatMap(({ op }) => (op === undefined ? [] : [plan.folds(dtype, op)]));
  const joined = folds.some(({ separate }) => separate !== undefined);
  const { inPlaceSafe, independent } = plan.fused;
  const bound: BoundCall = {
    dtype,
    plan: plan.fused,
    layout,
    inputs: calls.map(({ send }) => send && boundBuffer(send)),
    outputs: calls.map(({ recv }) => recv && boundBuffer(recv)),
    folds: folds.map(({ fold }) => fold),
    separate: joined ? folds.map(({ fold, separate }) => separate ?? fold) : undefined,
    inPlace: !(inPlaceSafe && independent) && calls.some(overlaps),
  };
  return [bound];
}

/** A range of a buffer's memory. */
function boundBuffer(buffer: DeviceBuffer): BoundBuffer {
  const { byteOffset, byteLength } = buffer;
  return { memory: memoryOf(buffer) as SimMemory, byteOffset, byteLength };
}

/** Splits a complete reduce-scatter into one reduce per root. */
export function splitIntoReduces(set: CallSet): CallSet[] {
  const counts = set.calls[0]?.sendCounts ?? [];
  return counts.flatMap((count, root) => {
    if (count === 0) return [];
    return {
      ...set,
      collective: "reduce",
      calls: set.calls.map((call) => reduceOfBlock(call, root, count)),
    };
  });
}

/** All transfers as one bound call of bytes: copy i moves the only chunk of input i to output i. */
export function bindTransfers(transfers: readonly Transfer[]): BoundCall {
  const { inputs, outputs } = copiesOf(transfers);
  const plan: FusedPlan = {
    groups: inputs.map((_, rank) => {
      const place = { rank, chunk: 0 };
      const operands = [{ kind: "contribution" as const, place }];
      return [{ operands, final: false, reduces: false, targets: [place] }];
    }),
    inPlaceSafe: true,
    independent: true,
  };
  const offsets = Float64Array.of(0);
  // Copies of one length share a table: a group has thousands of them.
  const known = new Map<number, { lengths: Float64Array; offsets: Float64Array }>();
  const tables = inputs.map(({ byteLength }) => {
    const table = known.get(byteLength) ?? { lengths: Float64Array.of(byteLength), offsets };
    known.set(byteLength, table);
    return table;
  });
  return {
    dtype: "uint8",
    plan,
    layout: { in: tables, out: tables },
    ...{ inputs, outputs },
    folds: [],
    separate: undefined,
    inPlace: false,
  };
}

/** A range that grows. */
interface CopyEnd extends BoundBuffer {
  byteLength: number;
}

/**
 * The copies that transfers make. A transfer whose source and target begin where those of the one before end, as in a loop over
 * parts of buffers, lengthens that copy.
 */
function copiesOf(transfers: readonly Transfer[]): { inputs: CopyEnd[]; outputs: CopyEnd[] } {
  const inputs: CopyEnd[] = [];
  const outputs: CopyEnd[] = [];
  let from: CopyEnd | undefined;
  let to: CopyEnd | undefined;
  for (const { send, recv } of transfers) {
    const source = send.send as DeviceBuffer;
    const target = recv.recv as DeviceBuffer;
    if (from !== undefined && to !== undefined && isBehind(from, source) && isBehind(to, target)) {
      from.byteLength += source.byteLength;
      to.byteLength += source.byteLength;
      continue;
    }
    from = boundBuffer(source);
    to = boundBuffer(target);
    inputs.push(from);
    outputs.push(to);
  }
  return { inputs, outputs };
}

function isBehind({ memory, byteOffset, byteLength }: BoundBuffer, next: DeviceBuffer): boolean {
  return memory === memoryOf(next) && byteOffset + byteLength === next.byteOffset;
}
