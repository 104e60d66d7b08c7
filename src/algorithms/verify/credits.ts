/**
 * Detects deadlocks: runs the sends and receives of a program, without data, over channels of bounded capacity. If the
 * program gets stuck, the cycle is reported.
 *
 * With k credits, send number j of a channel completes once receive number j−k has. With none (rendezvous, the worst
 * case) a send completes only while its receiver is at the matching receive. Programs have no wildcard receives, so
 * one run decides for every timing.
 */
import {
  assertIndex,
  assertProgram,
  column,
  none,
  type Program,
  stepAt,
  stepText,
  stepWidth,
} from "../program.ts";
import { type Matching, matchSteps } from "../symbolic/matching.ts";

/** Smallest number of credits (0, 1, 2 … `limit`) that cannot deadlock; `undefined` when even `limit` can. */
export function smallestSafeCredits(program: Program, limit: number): number | undefined {
  assertProgram("smallestSafeCredits", program);
  assertIndex("smallestSafeCredits", "limit", limit);
  const matching = matchSteps(program);
  for (let credits = 0; credits <= limit; credits++) {
    if (cycleOf(program, matching, credits) === undefined) return credits;
  }
  return undefined;
}

/** The cycle in which a program gets stuck with that many credits, one line per rank; `undefined` when it finishes. */
export function findDeadlock(program: Program, credits: number): readonly string[] | undefined {
  assertProgram("findDeadlock", program);
  assertIndex("findDeadlock", "credits", credits);
  return cycleOf(program, matchSteps(program), credits);
}

/** The same for a program with matched sends and receives. */
export function cycleOf(
  program: Program,
  matching: Matching,
  credits: number,
): readonly string[] | undefined {
  const run = new BoundedRun(program, matching, credits);
  return run.finishes() ? undefined : run.cycle();
}

/** Progress of a step. */
const stage = { received: 1, offered: 2, sent: 4 } as const;

class BoundedRun {
  readonly #program: Program;
  readonly #matching: Matching;
  readonly #credits: number;
  /** Current step of each lane. */
  readonly #positions: Int32Array;
  /** Bits of `stage`, by step. */
  readonly #stages: Uint8Array;
  /** Lane that waits for a step to send. */
  readonly #receivers: Int32Array;
  /** Lane that waits for a step to receive, so that it may send. */
  readonly #senders: Int32Array;
  readonly #ready: number[];

  constructor(program: Program, matching: Matching, credits: number) {
    this.#program = program;
    this.#matching = matching;
    this.#credits = credits;
    this.#positions = program.starts.slice(0, -1);
    this.#stages = new Uint8Array(matching.lane.length);
    this.#receivers = new Int32Array(matching.lane.length).fill(none);
    this.#senders = new Int32Array(matching.lane.length).fill(none);
    this.#ready = Array.from(this.#positions.keys()).reverse();
  }

  finishes(): boolean {
    const ready = this.#ready;
    for (let lane = ready.pop(); lane !== undefined; lane = ready.pop()) this.#advance(lane);
    return this.#positions.every((at, lane) => at === this.#program.starts[lane + 1]);
  }

  #advance(lane: number): void {
    const { starts, code } = this.#program;
    const end = starts[lane + 1] as number;
    for (let step = this.#positions[lane] as number; step < end; step++) {
      this.#positions[lane] = step;
      const at = step * stepWidth;
      if (code[at + column.from] !== none && !this.#hasReached(step, stage.received)) {
        if (!this.#receive(step, lane)) return;
      }
      if (code[at + column.to] !== none && !this.#send(step, lane)) return;
    }
    this.#positions[lane] = end;
  }

  #receive(step: number, lane: number): boolean {
    const sender = this.#matching.sender[step] as number;
    if (sender === none) return false;
    if (!this.#hasReached(sender, this.#credits === 0 ? stage.offered : stage.sent)) {
      this.#receivers[sender] = lane;
      return false;
    }
    this.#markReached(step, stage.received, this.#senders);
    return true;
  }

  #send(step: number, lane: number): boolean {
    this.#markReached(step, stage.offered, this.#receivers);
    const receiverStep = this.#receiverToWaitFor(step);
    if (receiverStep === step) return false;
    if (receiverStep !== none && !this.#hasReached(receiverStep, stage.received)) {
      this.#senders[receiverStep] = lane;
      return false;
    }
    this.#markReached(step, stage.sent, this.#receivers);
    return true;
  }

  /** The receive that must finish before a send completes; -1 for none, the send itself for one that never comes. */
  #receiverToWaitFor(step: number): number {
    const { receiver, sentBefore } = this.#matching;
    let earlier = step;
    for (let i = 0; i < this.#credits && earlier !== none; i++) {
      earlier = sentBefore[earlier] as number;
    }
    if (earlier === none) return none;
    const receiverStep = receiver[earlier] as number;
    return receiverStep === none ? step : receiverStep;
  }

  #hasReached(step: number, reached: number): boolean {
    return ((this.#stages[step] as number) & reached) !== 0;
  }

  /** Records the progress of a step and wakes the lane that waits for it. */
  #markReached(step: number, reached: number, waiting: Int32Array): void {
    this.#stages[step] = (this.#stages[step] as number) | reached;
    const waiter = waiting[step] as number;
    if (waiter === none) return;
    waiting[step] = none;
    this.#ready.push(waiter);
  }

  /** Follows the waits-for edges from the first stuck lane until a lane repeats. */
  cycle(): string[] {
    const { starts, channels } = this.#program;
    const stuck = this.#positions.findIndex((at, lane) => at < (starts[lane + 1] as number));
    const path: number[] = [];
    let lane = stuck;
    while (
      !path.includes(lane) &&
      (this.#positions[lane] as number) < (starts[lane + 1] as number)
    ) {
      path.push(lane);
      lane = this.#waitsFor(lane) * channels + (lane % channels);
    }
    const cycle = path.includes(lane) ? path.slice(path.indexOf(lane)) : path;
    return cycle.map((member) => {
      const step = stepAt(this.#program, this.#positions[member] as number);
      const waits = `waits for rank ${this.#waitsFor(member)}`;
      return `rank ${Math.floor(member / channels)} ${waits} (${stepText(step)})`;
    });
  }

  #waitsFor(lane: number): number {
    const at = this.#positions[lane] as number;
    const { from, to } = stepAt(this.#program, at);
    return from !== none && !this.#hasReached(at, stage.received) ? from : to;
  }
}
