/** A call of all ranks as planners and executors see it: operation, shape and memory. */
import type { CallShape, Layout, Plan } from "../../algorithms/index.ts";
import { inputBlocks, outputBlocks, overlaps } from "../../algorithms/layout.ts";
import { reduceOfBlock } from "../../algorithms/plans/index.ts";
import { type CallSet, memoryOf, type RankCall } from "../../api/backend-entry.ts";
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
export function boundBuffer(buffer: DeviceBuffer): BoundBuffer {
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

/** Recorded calls of all ranks; derived data is cached with each of them. */
export class Recording {
  readonly sets: readonly CallSet[];
  /** The executor's work for all calls, cached from the first replay on if every replay needs the same. */
  bound: readonly BoundCall[] | undefined;
  /**
   * By rank, from the first rank's replay on: the times of the replay, of the first possible start of its calls, and of their
   * end.
   */
  readonly #postedAtPs: Float64Array;
  readonly #startedAtPs: Float64Array;
  readonly #finishedAtPs: Float64Array;

  constructor(sets: readonly CallSet[]) {
    const ranks = sets[0]?.calls.length ?? 0;
    this.sets = sets;
    this.#postedAtPs = new Float64Array(ranks).fill(Number.NaN);
    this.#startedAtPs = new Float64Array(ranks);
    this.#finishedAtPs = new Float64Array(ranks);
  }

  /**
   * Advances `finishedAtPs` of every rank's replay from the start to the end of its calls. Requires the ranks' starts to have
   * the same distances as last time. Times are only added and compared, so that the ends have the same distances too.
   */
  predictEnds(replays: readonly RankCall[]): boolean {
    const firstPs = first(replays);
    for (let i = 0; i < replays.length; i++) {
      const { postedAtPs, finishedAtPs } = replays[i] as RankCall;
      if (this.#postedAtPs[i] !== postedAtPs - firstPs) return false;
      if (this.#startedAtPs[i] !== finishedAtPs - firstPs) return false;
    }
    for (let i = 0; i < replays.length; i++) {
      (replays[i] as RankCall).finishedAtPs = firstPs + (this.#finishedAtPs[i] as number);
    }
    return true;
  }

  /** Stores the end times of a replay's ranks, for calls that could begin at these times, by rank. */
  recordEnds(replays: readonly RankCall[], beganPs: readonly number[]): void {
    const firstPs = first(replays);
    for (let i = 0; i < replays.length; i++) {
      const { postedAtPs, finishedAtPs } = replays[i] as RankCall;
      this.#postedAtPs[i] = postedAtPs - firstPs;
      this.#startedAtPs[i] = (beganPs[i] as number) - firstPs;
      this.#finishedAtPs[i] = finishedAtPs - firstPs;
    }
  }
}

function first(replays: readonly RankCall[]): number {
  let firstPs = Infinity;
  for (const { postedAtPs } of replays) firstPs = Math.min(firstPs, postedAtPs);
  return firstPs;
}
