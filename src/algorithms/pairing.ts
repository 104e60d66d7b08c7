/**
 * Which send every receive meets.
 *
 * Messages between two lanes of the same channel arrive in the order sent, and every receive names its sender; so the
 * k-th receive of a lane from a peer gets the k-th message that the peer's lane sends there, whatever the timing. Time
 * and memory are proportional to the program: there is no table of all pairs of ranks.
 */
import { column, none, type Program, stepWidth } from "./program.ts";

/** Programs never change, so each is paired once, however often it is timed. */
const paired = new WeakMap<Program, Int32Array>();

/** For every step that receives: the step whose message it gets; `none` for the others and where nothing is sent. */
export function pairing(program: Program): Int32Array {
  const known = paired.get(program);
  if (known !== undefined) return known;
  const pairs = pair(program);
  paired.set(program, pairs);
  return pairs;
}

function pair(program: Program): Int32Array {
  const { ranks, channels, starts, code } = program;
  const { firsts, steps, takers } = receivesBySender(program);
  const pairs = new Int32Array(code.length / stepWidth).fill(none);
  /** Next receive of each rank in the bucket of the lane at hand. */
  const next = new Int32Array(ranks).fill(none);
  for (let lane = 0; lane < ranks * channels; lane++) {
    const begin = firsts[lane] as number;
    const end = firsts[lane + 1] as number;
    for (let i = end - 1; i >= begin; i--) next[takers[i] as number] = i;
    for (let step = starts[lane] as number; step < (starts[lane + 1] as number); step++) {
      const to = code[step * stepWidth + column.to] as number;
      const i = to === none ? none : (next[to] ?? none);
      if (i === none) continue;
      pairs[steps[i] as number] = step;
      next[to] = i + 1 < end && takers[i + 1] === to ? i + 1 : none;
    }
    for (let i = begin; i < end; i++) next[takers[i] as number] = none;
  }
  return pairs;
}

/** Receives in buckets. */
interface Receives {
  /** Bucket of lane l: from `firsts[l]` up to `firsts[l + 1]`. */
  readonly firsts: Int32Array;
  /** Steps that receive, each in the bucket of the lane that it receives from; by rank, then in order. */
  readonly steps: Int32Array;
  /** Ranks of these steps. */
  readonly takers: Int32Array;
}

function receivesBySender(program: Program): Receives {
  const lanes = program.ranks * program.channels;
  const firsts = new Int32Array(lanes + 1);
  eachReceive(program, (sender) => {
    firsts[sender + 1] = (firsts[sender + 1] as number) + 1;
  });
  for (let lane = 0; lane < lanes; lane++) {
    firsts[lane + 1] = (firsts[lane + 1] as number) + (firsts[lane] as number);
  }
  const filled = firsts.slice();
  const steps = new Int32Array(firsts[lanes] as number);
  const takers = new Int32Array(steps.length);
  eachReceive(program, (sender, step, rank) => {
    const at = filled[sender] as number;
    filled[sender] = at + 1;
    steps[at] = step;
    takers[at] = rank;
  });
  return { firsts, steps, takers };
}

function eachReceive(
  { ranks, channels, starts, code }: Program,
  see: (sender: number, step: number, rank: number) => void,
): void {
  for (let lane = 0; lane < ranks * channels; lane++) {
    const rank = Math.floor(lane / channels);
    for (let step = starts[lane] as number; step < (starts[lane + 1] as number); step++) {
      const from = code[step * stepWidth + column.from] as number;
      // A peer that does not exist sends nothing.
      if (from !== none && from < ranks) see(from * channels + (lane % channels), step, rank);
    }
  }
}
