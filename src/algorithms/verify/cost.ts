/** Does a program take the steps, and send the elements, that its algorithm's header states? */
import type { Algorithm } from "../algorithm.ts";
import { layoutOf } from "../layout.ts";
import { column, none, type Program, stepWidth } from "../program.ts";
import { evaluate } from "../timing.ts";
import type { Matching } from "./matching.ts";
import type { Problem } from "./problem.ts";

/** What a program costs. */
export interface ProgramCost {
  /** Rounds on the longest path, one message per port and round. */
  readonly steps: number;
  /** Elements that the busiest rank sends when every chunk has `chunkElements`. */
  readonly sentElements: number;
}

/** Of a program that is not sound. */
export const noCost: ProgramCost = { steps: 0, sentElements: 0 };

/** Elements of every chunk: the count divides evenly, so that closed forms are exact. */
const chunkElements = 4;

/** Steps and elements of the busiest rank of a sound program, whose messages take one round of both ports each. */
export function costOf(program: Program, matching: Matching): ProgramCost {
  if (program.channels > 1) return costOfLanes(program);
  const { code, ranks } = program;
  const { order, lane, sender } = matching;
  // By step that sends: the round in which it does, and what.
  const sentIn = new Float64Array(lane.length);
  const sentWhat = new Float64Array(lane.length);
  // By rank: when it has come so far, its ports are free again, and what it has sent.
  const now = new Float64Array(ranks);
  const sendPort = new Float64Array(ranks);
  const recvPort = new Float64Array(ranks);
  const sent = new Float64Array(ranks);
  for (let i = 0; i < order.length; i++) {
    const step = order[i] as number;
    const rank = lane[step] as number;
    const from = sender[step] as number;
    let elements = 0;
    if (from === none) {
      const reads = code[step * stepWidth + column.read] !== none;
      elements = reads ? chunkElements * (code[step * stepWidth + column.span] as number) : 0;
    } else {
      const taken = Math.max(sentIn[from] as number, recvPort[rank] as number) + 1;
      recvPort[rank] = taken;
      now[rank] = Math.max(now[rank] as number, taken);
      elements = sentWhat[from] as number;
    }
    if (code[step * stepWidth + column.to] === none) continue;
    const begins = Math.max(now[rank] as number, sendPort[rank] as number);
    sendPort[rank] = begins + 1;
    sentIn[step] = begins;
    sentWhat[step] = elements;
    sent[rank] = (sent[rank] as number) + elements;
  }
  const ends = now.map((time, rank) => Math.max(time, sendPort[rank] as number));
  return { steps: Math.max(...ends), sentElements: Math.max(...sent) };
}

/** The same where lanes share the ports of their rank: which goes first, the engine says. */
function costOfLanes(program: Program): ProgramCost {
  const layout = layoutOf(program, { count: chunkElements * program.chunksPerBlock });
  const oneRound = { latency: 0, occupancy: () => 1 };
  const start = new Float64Array(program.ranks);
  const { finished, sentElements } = evaluate(program, layout, start, oneRound);
  return { steps: Math.max(...finished), sentElements: Math.max(...sentElements) };
}

/** Where a program's cost is not the closed form in its algorithm's header. */
export function costProblems(
  program: Program,
  algorithm: Algorithm,
  found: ProgramCost,
): Problem[] {
  const count = chunkElements * program.chunksPerBlock;
  const stated = algorithm.cost({ ranks: program.ranks, count });
  return (["steps", "sentElements"] as const).flatMap((figure): Problem[] => {
    const within = found[figure] <= stated[figure] && stated[figure] <= 2 * found[figure];
    const isBound = stated.bound === true && figure === "steps";
    if (isBound ? within : found[figure] === stated[figure]) return [];
    const text = `${figure}: the header says ${stated[figure]}, the program takes ${found[figure]}`;
    return [{ pass: "cost", text }];
  });
}
