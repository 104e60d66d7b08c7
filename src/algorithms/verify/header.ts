/**
 * Compares a program with the statements in its algorithm's header: steps and sent elements, the order of folding, and
 * the symmetry of the ranks.
 */

import { specifications } from "../../api/collectives/index.ts";
import { largest } from "../../api/largest.ts";
import type { Algorithm, Symmetry } from "../algorithm.ts";
import type { Folds } from "../association.ts";
import { type BriefBlock, briefLane } from "../engine/representative-rank.ts";
import { layoutOf } from "../layout.ts";
import { column, none, type Program, stepAt, stepText, stepWidth } from "../program.ts";
import type { Execution } from "../symbolic/execution.ts";
import type { Matching, Problem } from "../symbolic/matching.ts";
import type { ValueId, ValueTable } from "../symbolic/values.ts";
import { evaluate } from "../timing.ts";

/** The cost of a program. */
interface ProgramCost {
  /** Rounds on the longest path, one message per port and round. */
  readonly steps: number;
  /** Elements that the busiest rank sends when every chunk has `chunkElements`. */
  readonly sentElements: number;
}

/** The cost reported for an unsound program. */
export const noCost: ProgramCost = { steps: 0, sentElements: 0 };

/** Elements of every chunk: the count divides evenly, so closed forms are exact. */
const chunkElements = 4;

/** Steps and elements of the busiest rank of a sound program; each message takes one round of both ports. */
export function costOf(program: Program, matching: Matching): ProgramCost {
  if (program.channels > 1) return costOfLanes(program);
  const { code, ranks } = program;
  const { order, lane, sender } = matching;
  // By sending step: its round, and its elements.
  const roundOfStep = new Float64Array(lane.length);
  const elementsOfStep = new Float64Array(lane.length);
  // By rank: its current round, the rounds in which its ports are free, and the elements that it has sent.
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
      const taken = Math.max(roundOfStep[from] as number, recvPort[rank] as number) + 1;
      recvPort[rank] = taken;
      now[rank] = Math.max(now[rank] as number, taken);
      elements = elementsOfStep[from] as number;
    }
    if (code[step * stepWidth + column.to] === none) continue;
    const begins = Math.max(now[rank] as number, sendPort[rank] as number);
    sendPort[rank] = begins + 1;
    roundOfStep[step] = begins;
    elementsOfStep[step] = elements;
    sent[rank] = (sent[rank] as number) + elements;
  }
  const ends = now.map((time, rank) => Math.max(time, sendPort[rank] as number));
  return { steps: largest(ends), sentElements: largest(sent) };
}

/** The same where lanes share the ports of their rank: the event engine decides their order. */
function costOfLanes(program: Program): ProgramCost {
  const layout = layoutOf(program, { count: chunkElements * program.chunksPerBlock });
  const oneRound = { latency: 0, occupancy: () => 1 };
  const start = new Float64Array(program.ranks);
  const { finished, sentElements } = evaluate(program, layout, start, oneRound);
  return { steps: largest(finished), sentElements: largest(sentElements) };
}

/** Differences between a program's cost and the closed form in its algorithm's header. */
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

/** Outputs that were folded in another order than stated. The program is sound, so its ranks agree on every chunk. */
export function associationProblems(
  program: Program,
  { order }: Algorithm,
  { values, outputs }: Execution,
): Problem[] {
  const { collective, ranks, root, chunksPerBlock } = program;
  const { reduces } = specifications[collective];
  if (!reduces) return [];
  if (order === undefined) {
    return [{ pass: "association", text: "the header states no order of folding" }];
  }
  const problems: Problem[] = [];
  const report = (text: string): void => void problems.push({ pass: "association", text });
  const stated: ValueId[] = [];
  for (let rank = 0; rank < ranks; rank++) {
    const chunks = outputs[rank] as Int32Array;
    for (let out = 0; out < chunks.length; out++) {
      // The program is sound, so the value comes from the required input chunk.
      const value = chunks[out] as ValueId;
      const source = values.chunkOf(value);
      let wanted = stated[source];
      if (wanted === undefined) {
        const chunk = source % chunksPerBlock;
        const place = { ranks, root, block: (source - chunk) / chunksPerBlock, chunk };
        wanted = values.final(order(foldsOf(values, source, report), place));
        stated[source] = wanted;
      }
      if (wanted === value) continue;
      const [found, needed] = [value, wanted].map((each) => verbsOf(values, each));
      const orders = ranks > shownRanks ? "" : `: found ${found}, stated ${needed}`;
      report(
        `out[${out}] of rank ${rank} was folded in another order than the header states${orders}`,
      );
    }
  }
  return problems;
}

/** Most ranks whose orders a problem shows; an algorithm with a wrong order has it with few ranks too. */
const shownRanks = 8;

/** A value in the verbs of an order, as a header writes it. Operands of a fold have no order. */
function verbsOf(values: ValueTable, value: ValueId): string {
  const each = values.describe(value);
  switch (each.kind) {
    case "leaf":
      return `own(${each.rank})`;
    case "fold": {
      const leaf = [each.left, each.right].find((operand) => values.isLeaf(operand));
      if (leaf === undefined)
        return `join(${verbsOf(values, each.left)}, ${verbsOf(values, each.right)})`;
      const partial = leaf === each.left ? each.right : each.left;
      return `into(${verbsOf(values, partial)}, ${values.leftOf(leaf)})`;
    }
    default:
      return verbsOf(values, each.of);
  }
}

/** The verbs of an order, over values of one input chunk. */
function foldsOf(
  values: ValueTable,
  chunk: number,
  report: (text: string) => void,
): Folds<ValueId> {
  const folded = (left: ValueId, right: ValueId): ValueId => {
    const value = values.fold(left, right);
    if (typeof value === "number") return value;
    report(`the header's order ${value.fault}`);
    return left;
  };
  return {
    own: (rank) => values.partial(values.leaf(rank, chunk)),
    into: (partial, rank) => folded(partial, values.leaf(rank, chunk)),
    join: folded,
  };
}

/**
 * Problems of the symmetry that a program's algorithm states; none where it states none. Every rank must send the
 * messages of rank 0, renumbered, and the brief lane must describe the same messages.
 */
export function symmetryProblems(program: Program, algorithm: Algorithm): Problem[] {
  const { ranks, collective } = program;
  const symmetry = algorithm.symmetry?.(ranks);
  if (symmetry === undefined) return [];
  const problems: Problem[] = [];
  for (let rank = 1; rank < ranks && problems.length === 0; rank++) {
    const text = rankDifference(program, symmetry, rank);
    if (text !== undefined) problems.push({ pass: "symmetry", text });
  }
  const blocks = briefLane(collective, algorithm, ranks) ?? [];
  const text = problems.length === 0 ? briefDifference(program, symmetry, blocks) : undefined;
  return text === undefined ? problems : [...problems, { pass: "symmetry", text }];
}

/** The first message step of a rank that is not rank 0's, renumbered. */
function rankDifference(program: Program, symmetry: Symmetry, rank: number): string | undefined {
  const { ranks, starts, code } = program;
  const renumbered = (peer: number): number => {
    if (peer === none) return none;
    return symmetry === "rotation" ? (peer + rank) % ranks : peer ^ rank;
  };
  let first = nextMessage(program, 0, starts[0] as number);
  let own = nextMessage(program, rank, starts[rank] as number);
  while (first !== none && own !== none) {
    const [a, b] = [first * stepWidth, own * stepWidth];
    const alike =
      renumbered(code[a + column.from] as number) === code[b + column.from] &&
      renumbered(code[a + column.to] as number) === code[b + column.to] &&
      code[a + column.span] === code[b + column.span];
    if (!alike) break;
    first = nextMessage(program, 0, first + 1);
    own = nextMessage(program, rank, own + 1);
  }
  if (first === own) return undefined;
  const words = (step: number): string =>
    step === none ? "has no more messages" : stepText(stepAt(program, step));
  return `${symmetry}: rank 0 (${words(first)}), rank ${rank} (${words(own)})`;
}

/** The next step of a rank from `step` on that sends or receives. */
function nextMessage({ starts, code }: Program, rank: number, step: number): number {
  const end = starts[rank + 1] as number;
  let at = step;
  while (at < end) {
    if (code[at * stepWidth + column.from] !== none || code[at * stepWidth + column.to] !== none) {
      return at;
    }
    at++;
  }
  return none;
}

/** The first difference between the expanded brief lane and rank 0's: in its messages, or in the matching of them. */
function briefDifference(
  program: Program,
  symmetry: Symmetry,
  blocks: readonly BriefBlock[],
): string | undefined {
  const { ranks, code } = program;
  const [brief, full] = [new OffsetMatching(), new OffsetMatching()];
  let at = nextMessage(program, 0, 0);
  for (const { times, steps } of blocks) {
    for (let time = 0; time < times; time++) {
      for (const { receive, send, span } of steps) {
        if (at === none) return "the brief lane has more messages than rank 0";
        const from = code[at * stepWidth + column.from] as number;
        const back = symmetry === "rotation" ? (ranks - from) % ranks : from;
        const expected = brief.step(receive, send);
        const found = full.step(
          from === none ? none : back,
          code[at * stepWidth + column.to] as number,
        );
        if (expected !== found || span !== code[at * stepWidth + column.span]) {
          return `the brief lane differs from rank 0 (${stepText(stepAt(program, at))})`;
        }
        at = nextMessage(program, 0, at + 1);
      }
    }
  }
  return at === none ? undefined : "the brief lane has fewer messages than rank 0";
}

/** Matches receives with messages: a receive on an offset gets the oldest message sent on it. */
class OffsetMatching {
  readonly #flights = new Map<number, number[]>();
  #sent = 0;

  /** A text that names the message that a step receives, and shows if it sends. */
  step(receive: number, send: number): string {
    const received = receive === none ? none : (this.#flights.get(receive)?.shift() ?? "nothing");
    if (send === none) return `${received}`;
    const flight = this.#flights.get(send) ?? [];
    this.#flights.set(send, flight);
    flight.push(this.#sent++);
    return `${received}, sends`;
  }
}
