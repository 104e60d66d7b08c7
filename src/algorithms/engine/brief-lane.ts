/**
 * One lane that stands for all: the messages of rank 0 in a program that is the same for every rank but for their
 * numbers.
 *
 * A message is told by its *offset*, which is the same for the sender and the receiver: so many ranks on, or the bits in
 * which the two differ. What the lane repeats is kept once. An offset that changes from one time to the next gets a
 * number of its own, since what is sent on it is received within that time.
 */

import type { SpecifiedCollective } from "../../api/collectives/index.ts";
import { type Algorithm, builderOf, type Symmetry } from "../algorithm.ts";
import type { Lane } from "../builder.ts";
import { column, none, stepWidth } from "../program.ts";

/** A step that receives on an offset, sends on one, or both; -1 for none. */
export interface BriefStep {
  readonly receive: number;
  readonly send: number;
  /** Chunks of a message that the step makes of its own. */
  readonly span: number;
}

/** Steps that are taken so many times. */
export interface BriefBlock {
  readonly times: number;
  readonly steps: readonly BriefStep[];
}

/** The lane of rank 0; `undefined` where the algorithm has no symmetry for that many ranks. */
export function briefLane(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
): readonly BriefBlock[] | undefined {
  const symmetry = algorithm.symmetry?.(ranks);
  if (symmetry === undefined) return undefined;
  const builder = builderOf(collective, algorithm, ranks, none);
  return blocksOf(builder.briefly(algorithm.write, 0), ranks, symmetry);
}

function blocksOf(lane: Lane, ranks: number, symmetry: Symmetry): BriefBlock[] {
  const { code, repeats = [] } = lane;
  const offsets = new Offsets(ranks, symmetry);
  const blocks: BriefBlock[] = [];
  const single = (begin: number, end: number): void => {
    const steps: BriefStep[] = [];
    for (let step = begin; step < end; step++) offsets.add(steps, code, step, step);
    if (steps.length > 0) blocks.push({ times: 1, steps });
  };
  let done = 0;
  for (const { at, length, times } of repeats) {
    single(done, at);
    const steps: BriefStep[] = [];
    for (let step = at; step < at + length; step++) offsets.add(steps, code, step, step + length);
    if (steps.length > 0) blocks.push({ times, steps });
    done = at + 2 * length;
  }
  single(done, code.length / stepWidth);
  return blocks;
}

/** Numbers the offsets of a lane. */
class Offsets {
  readonly #ranks: number;
  readonly #symmetry: Symmetry;
  readonly #numbers = new Map<string, number>();

  constructor(ranks: number, symmetry: Symmetry) {
    this.#ranks = ranks;
    this.#symmetry = symmetry;
  }

  /** Adds a step that is `first` the first time and `last` the last time. */
  add(steps: BriefStep[], code: Int32Array, first: number, last: number): void {
    const [at, end] = [first * stepWidth, last * stepWidth];
    const number = (field: number): number =>
      this.#number(field, code[at + field] as number, code[end + field] as number);
    const receive = number(column.from);
    const send = number(column.to);
    if (receive === none && send === none) return;
    steps.push({ receive, send, span: code[at + column.span] as number });
  }

  #number(field: number, first: number, last: number): number {
    if (first === none) return none;
    const begin = this.#offset(field, first);
    const end = this.#offset(field, last);
    const key = begin === end ? `${begin}` : `${begin}..${end}`;
    const number = this.#numbers.get(key) ?? this.#numbers.size;
    this.#numbers.set(key, number);
    return number;
  }

  /** From the sender to the receiver, seen from rank 0. */
  #offset(field: number, peer: number): number {
    const back = this.#symmetry === "rotation" && field === column.from;
    return back ? (this.#ranks - peer) % this.#ranks : peer;
  }
}
