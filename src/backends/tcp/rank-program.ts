/**
 * The program of one rank for its connections: channels that move data alike are one lane.
 *
 * NCCL cuts a call into channels for the parallel units of a GPU. Over a connection each message costs time of its own, so the
 * same step of all such channels is one message. Every rank joins the same channels, which follow from the whole program. The
 * order of the folds of an element is that of its channel.
 */
import {
  bufferOf,
  none,
  type Program,
  type Ref,
  type Step,
  stepAt,
} from "../../algorithms/program.ts";

/** The chunks of a move, in the order of its message. */
export type Chunks = readonly Ref[];

/** One step of all channels of a lane. */
export interface Move {
  /** Ranks of the communicator; `none` without one. */
  readonly from: number;
  readonly to: number;
  /** As in `Step`, chunk by chunk. All are of one buffer. */
  readonly read: Chunks | undefined;
  readonly other: Chunks | undefined;
  readonly write: Chunks | undefined;
  readonly final: boolean;
}

/** The moves of a rank. */
export interface RankProgram {
  readonly lanes: readonly (readonly Move[])[];
  /** Messages that each lane receives, by sender. */
  readonly receives: readonly ReadonlyMap<number, number>[];
  readonly sendsTo: ReadonlySet<number>;
  readonly receivesFrom: ReadonlySet<number>;
}

/** A program with its channels joined, and its ranks as far as they were needed. */
interface JoinedProgram {
  /** The channels of each lane. */
  readonly lanes: readonly (readonly number[])[];
  /** The most chunks of a move. */
  readonly widest: number;
  readonly ranks: Map<number, RankProgram>;
}

/** Programs are immutable. */
const joined = new WeakMap<Program, JoinedProgram>();

function joinedProgram(program: Program): JoinedProgram {
  let found = joined.get(program);
  if (found === undefined) {
    found = join(program);
    joined.set(program, found);
  }
  return found;
}

/** The moves of a rank of a program. */
export function rankProgram(program: Program, rank: number): RankProgram {
  const { lanes, ranks } = joinedProgram(program);
  let found = ranks.get(rank);
  if (found === undefined) {
    found = readRank(program, rank, lanes);
    ranks.set(rank, found);
  }
  return found;
}

/** The most chunks of a move of any rank. */
export function widestMove(program: Program): number {
  return joinedProgram(program).widest;
}

function join(program: Program): JoinedProgram {
  const { channels, ranks } = program;
  const alike = new Map<string, number[]>();
  let widest = 1;
  for (let channel = 0; channel < channels; channel++) {
    const steps = Array.from({ length: ranks }, (_, rank) => stepsOf(program, rank, channel));
    const shape = channels === 1 ? "" : shapeOf(steps);
    const lane = alike.get(shape) ?? [];
    lane.push(channel);
    alike.set(shape, lane);
    for (const { span } of steps.flat()) widest = Math.max(widest, span * lane.length);
  }
  return { lanes: [...alike.values()], widest, ranks: new Map() };
}

function stepsOf(program: Program, rank: number, channel: number): Step[] {
  const lane = rank * program.channels + channel;
  const first = program.starts[lane] as number;
  const length = (program.starts[lane + 1] as number) - first;
  return Array.from({ length }, (_, i) => stepAt(program, first + i));
}

/** The steps of a channel by rank, with the number of a chunk's first use in its place. */
function shapeOf(ranks: readonly (readonly Step[])[]): string {
  const uses = new Map<Ref, number>();
  const numberOf = (ref: Ref): string => {
    const number = uses.get(ref) ?? uses.size;
    uses.set(ref, number);
    return `${bufferOf(ref)}.${number}`;
  };
  const chunksText = (ref: Ref, span: number): string =>
    chunksOf(ref, span)?.map(numberOf).join() ?? "";
  const stepText = ({ from, to, read, other, write, span, final }: Step): string => {
    const chunks = [read, other, write].map((ref) => chunksText(ref, span));
    return [from, to, final, ...chunks].join(" ");
  };
  return ranks.map((steps) => steps.map(stepText).join("\n")).join("\n\n");
}

/** Consecutive chunks from a reference on. */
function chunksOf(ref: Ref, span: number): Chunks | undefined {
  if (ref === none || span === 0) return undefined;
  return Array.from({ length: span }, (_, i) => ref + 4 * i);
}

function readRank(program: Program, rank: number, channels: JoinedProgram["lanes"]): RankProgram {
  const lanes = channels.map((ofLane) => {
    const [first = [], ...others] = ofLane.map((channel) => stepsOf(program, rank, channel));
    return first.map((step, at) => moveOf([step, ...others.map((steps) => steps[at] as Step)]));
  });
  const receives = lanes.map((moves) => {
    const counts = new Map<number, number>();
    for (const { from } of moves) if (from !== none) counts.set(from, (counts.get(from) ?? 0) + 1);
    return counts;
  });
  const sendsTo = new Set(lanes.flatMap((moves) => moves.map(({ to }) => to)));
  sendsTo.delete(none);
  return {
    lanes,
    receives,
    sendsTo,
    receivesFrom: new Set(receives.flatMap((each) => [...each.keys()])),
  };
}

/** The same step of several channels. */
function moveOf(steps: readonly [Step, ...Step[]]): Move {
  const all = (field: "read" | "other" | "write"): Chunks | undefined => {
    const chunks = steps.flatMap((step) => chunksOf(step[field], step.span) ?? []);
    return chunks.length === 0 ? undefined : chunks;
  };
  const [{ from, to, final }] = steps;
  return { from, to, read: all("read"), other: all("other"), write: all("write"), final };
}
