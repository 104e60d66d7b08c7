/** Do all ranks send what rank 0 sends, renumbered as the algorithm says, and does its brief lane tell the same? */
import type { Algorithm, Symmetry } from "../algorithm.ts";
import { type BriefBlock, briefLane } from "../engine/brief-lane.ts";
import { column, none, type Program, stepAt, stepText, stepWidth } from "../program.ts";
import type { Problem } from "./problem.ts";

/** What is wrong with the symmetry that a program's algorithm states; nothing where it states none. */
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

/** Where the brief lane, written out, parts from rank 0's: in its messages, or in which of them meet. */
function briefDifference(
  program: Program,
  symmetry: Symmetry,
  blocks: readonly BriefBlock[],
): string | undefined {
  const { ranks, code } = program;
  const [brief, full] = [new Meetings(), new Meetings()];
  let at = nextMessage(program, 0, 0);
  for (const { times, steps } of blocks) {
    for (let time = 0; time < times; time++) {
      for (const { receive, send, span } of steps) {
        if (at === none) return "the brief lane has more messages than rank 0";
        const from = code[at * stepWidth + column.from] as number;
        const back = symmetry === "rotation" ? (ranks - from) % ranks : from;
        const met = brief.step(receive, send);
        const meets = full.step(
          from === none ? none : back,
          code[at * stepWidth + column.to] as number,
        );
        if (met !== meets || span !== code[at * stepWidth + column.span]) {
          return `the brief lane differs from rank 0 (${stepText(stepAt(program, at))})`;
        }
        at = nextMessage(program, 0, at + 1);
      }
    }
  }
  return at === none ? undefined : "the brief lane has fewer messages than rank 0";
}

/** Which message each receive meets, where what is received on an offset was sent on it before. */
class Meetings {
  readonly #flights = new Map<number, number[]>();
  #sent = 0;

  /** Says, as one text, what a step receives and whether it sends. */
  step(receive: number, send: number): string {
    const met = receive === none ? none : (this.#flights.get(receive)?.shift() ?? "nothing");
    if (send === none) return `${met}`;
    const flight = this.#flights.get(send) ?? [];
    this.#flights.set(send, flight);
    flight.push(this.#sent++);
    return `${met}, sends`;
  }
}
