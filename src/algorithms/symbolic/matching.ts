/**
 * Matches sends with receives, and finds an order in which all steps can run.
 *
 * Every receive names its sender and messages between two lanes keep their order. So send number j of a channel matches
 * its receive number j, for every timing. A program is thus a graph of steps, and the passes need no queues.
 */
import { assertMatchable } from "../limits.ts";
import { column, none, type Program, stepAt, stepText, stepWidth } from "../program.ts";

/** The messages of a program. Steps are numbered over all lanes, -1 is none. */
export interface Matching {
  /** For each step: the step that sends the message it receives. */
  readonly sender: Int32Array;
  /** For each step: the step that receives its message. */
  readonly receiver: Int32Array;
  /** For each step that sends: the step that sends before it to the same lane. */
  readonly sentBefore: Int32Array;
  /** Lane of each step. */
  readonly lane: Int32Array;
  /** The steps that can run, each after the step that sends the message it receives. */
  readonly order: Int32Array;
  readonly problems: readonly Problem[];
}

/** Matches the sends and receives of a program. */
export function matchSteps(program: Program): Matching {
  assertMatchable(program);
  const peers = peerProblems(program);
  const lane = lanesOf(program);
  const pairs = pairSteps(program, lane);
  const order = takeSteps(program, lane, pairs);
  const problems = [
    ...peers,
    ...spanProblems(program, lane, pairs.sender),
    ...leftoverProblems(program, lane, pairs.receiver, order),
  ];
  return { ...pairs, lane, order, problems };
}

type Pairs = Pick<Matching, "sender" | "receiver" | "sentBefore">;

function lanesOf({ starts, code }: Program): Int32Array {
  const lanes = new Int32Array(code.length / stepWidth);
  for (let lane = 0; lane < starts.length - 1; lane++) {
    lanes.fill(lane, starts[lane], starts[lane + 1]);
  }
  return lanes;
}

/** Follows all sends, then all receives, in the order of their lanes. */
function pairSteps({ code, ranks, channels }: Program, lane: Int32Array): Pairs {
  const steps = lane.length;
  const sender = new Int32Array(steps).fill(none);
  const receiver = new Int32Array(steps).fill(none);
  const sentBefore = new Int32Array(steps).fill(none);
  const sentAfter = new Int32Array(steps).fill(none);
  // By sending lane and receiving rank: the last send, and the first send not received yet.
  const last = new Int32Array(channels * ranks * ranks).fill(none);
  const next = new Int32Array(channels * ranks * ranks).fill(none);
  for (let step = 0; step < steps; step++) {
    const to = code[step * stepWidth + column.to] as number;
    if (to < 0 || to >= ranks) continue;
    const on = (lane[step] as number) * ranks + to;
    const before = last[on] as number;
    sentBefore[step] = before;
    if (before === none) next[on] = step;
    else sentAfter[before] = step;
    last[on] = step;
  }
  for (let step = 0; step < steps; step++) {
    const from = code[step * stepWidth + column.from] as number;
    if (from < 0 || from >= ranks) continue;
    const own = lane[step] as number;
    const channel = own % channels;
    const on = (from * channels + channel) * ranks + (own - channel) / channels;
    const sent = next[on] as number;
    if (sent === none) continue;
    sender[step] = sent;
    receiver[sent] = step;
    next[on] = sentAfter[sent] as number;
  }
  return { sender, receiver, sentBefore };
}

/** Runs every step that can run, each lane until it has to wait. */
function takeSteps({ code, starts }: Program, lane: Int32Array, { sender }: Pairs): Int32Array {
  const order = new Int32Array(lane.length);
  let taken = 0;
  const at = starts.slice(0, -1);
  /** Lane that waits for a step. */
  const waiting = new Int32Array(lane.length).fill(none);
  const ready = Array.from(at.keys()).reverse();
  for (let current = ready.pop(); current !== undefined; current = ready.pop()) {
    const end = starts[current + 1] as number;
    let step = at[current] as number;
    for (; step < end; step++) {
      if (code[step * stepWidth + column.from] !== none) {
        const from = sender[step] as number;
        if (from === none) break;
        if (from >= (at[lane[from] as number] as number)) {
          waiting[from] = current;
          break;
        }
      }
      order[taken++] = step;
      at[current] = step + 1;
      const waiter = waiting[step] as number;
      if (waiter !== none) ready.push(waiter);
    }
  }
  return order.subarray(0, taken);
}

function peerProblems({ code, ranks, channels, starts }: Program): Problem[] {
  const problems: Problem[] = [];
  const check = (peer: number, rank: number): void => {
    if (peer >= none && peer < ranks) return;
    problems.push({ pass: "match", text: `rank ${rank} names rank ${peer}, which does not exist` });
  };
  for (let lane = 0; lane < starts.length - 1; lane++) {
    const rank = Math.floor(lane / channels);
    for (let step = starts[lane] as number; step < (starts[lane + 1] as number); step++) {
      check(code[step * stepWidth + column.from] as number, rank);
      check(code[step * stepWidth + column.to] as number, rank);
    }
  }
  return problems;
}

function spanProblems(program: Program, lane: Int32Array, sender: Int32Array): Problem[] {
  const problems: Problem[] = [];
  const { code } = program;
  for (let step = 0; step < sender.length; step++) {
    const from = sender[step] as number;
    if (from === none) continue;
    const sent = code[from * stepWidth + column.span] as number;
    const expected = code[step * stepWidth + column.span] as number;
    if (sent === expected) continue;
    problems.push(stepProblem(program, lane, step, `receives ${sent} chunks, expects ${expected}`));
  }
  return problems;
}

/** Receives that wait for ever, and messages that are never received. */
function leftoverProblems(
  program: Program,
  lane: Int32Array,
  receiver: Int32Array,
  order: Int32Array,
): Problem[] {
  const { starts, code } = program;
  const problems: Problem[] = [];
  const at = starts.slice(0, -1);
  for (let i = 0; i < order.length; i++) {
    const step = order[i] as number;
    at[lane[step] as number] = step + 1;
  }
  at.forEach((step, current) => {
    if (step >= (starts[current + 1] as number)) return;
    const text = "waits for a message that is never sent";
    problems.push(stepProblem(program, lane, step, text));
  });
  for (let i = 0; i < order.length; i++) {
    const step = order[i] as number;
    if (code[step * stepWidth + column.to] === none) continue;
    const taker = receiver[step] as number;
    if (taker !== none && taker < (at[lane[taker] as number] as number)) continue;
    problems.push(stepProblem(program, lane, step, "sends a message that is never received"));
  }
  return problems;
}

function stepProblem(program: Program, lane: Int32Array, step: number, text: string): Problem {
  const rank = Math.floor((lane[step] as number) / program.channels);
  const what = stepText(stepAt(program, step));
  return { pass: "match", text: `rank ${rank} (${what}): ${text}` };
}

/** A problem of a program, and the pass that found it. */
export interface Problem {
  readonly pass:
    | "match"
    | "contribution"
    | "hazard"
    | "fusion"
    | "deadlock"
    | "cost"
    | "association"
    | "symmetry";
  readonly text: string;
}
