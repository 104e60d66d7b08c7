/**
 * The open deadlines of one communicator where time is real, under one timer.
 *
 * Calls come by the thousand and are nearly all done in time, so a deadline must cost little: it stands in line behind those
 * with the same timeout, which come due before it, and leaves when its call settles. The timer is set for the earliest that
 * was open then, and looks again when it rings. It rests as soon as none is open.
 */

import type { Posting } from "../calls/posting.ts";
import { Alarm } from "./alarm.ts";

/** Deals with a call that was not done in time; resolves when it has. */
type Expire = (posting: Posting) => Promise<void>;

/** When an open call must be done, linked with the deadlines before and after it. */
class Deadline {
  readonly posting: Posting;
  /** In the time of `performance.now()`. */
  readonly dueMs: number;
  readonly #deadlines: Deadlines;
  /** `undefined` once it has left. */
  line: Line | undefined;
  before: Deadline | undefined;
  after: Deadline | undefined;

  constructor(deadlines: Deadlines, posting: Posting, dueMs: number, line: Line) {
    this.#deadlines = deadlines;
    this.posting = posting;
    this.dueMs = dueMs;
    this.line = line;
    this.before = line.last;
  }

  /** The call has settled. */
  settled(): void {
    this.#deadlines.leave(this);
  }
}

/** Open deadlines with one timeout, the earliest first. */
interface Line {
  readonly timeoutMs: number;
  first: Deadline | undefined;
  last: Deadline | undefined;
}

/** Watches the deadlines of one communicator's calls. */
export class Deadlines {
  readonly #expire: Expire;
  readonly #alarm = new Alarm();
  /** Lines with an open deadline, by timeout. */
  readonly #lines = new Map<number, Line>();
  /** Where the last call stood: the next one mostly has the same timeout. */
  #recent: Line = { timeoutMs: 0, first: undefined, last: undefined };

  constructor(expire: Expire) {
    this.#expire = expire;
  }

  /** Counts from now on. A call without a deadline is not watched. */
  watch(posting: Posting): void {
    const { op, calledAtPs, deadlinePs } = posting;
    if (deadlinePs === undefined) return;
    const line = this.#line((deadlinePs - calledAtPs) / 1e9);
    const nowMs = performance.now();
    const deadline = new Deadline(this, posting, nowMs + line.timeoutMs, line);
    if (line.last === undefined) line.first = deadline;
    else line.last.after = deadline;
    line.last = deadline;
    op.deadline = deadline;
    this.#alarm.ringBy(deadline.dueMs, nowMs, this.#look);
  }

  /** A deadline is open no longer. */
  leave(deadline: Deadline): void {
    const { line, before, after } = deadline;
    if (line === undefined) return;
    if (before === undefined) line.first = after;
    else before.after = after;
    if (after === undefined) line.last = before;
    else after.before = before;
    deadline.line = undefined;
    deadline.before = undefined;
    deadline.after = undefined;
    if (line.first !== undefined) return;
    this.#lines.delete(line.timeoutMs);
    if (this.#lines.size === 0) this.#alarm.rest();
  }

  #line(timeoutMs: number): Line {
    if (this.#recent.timeoutMs !== timeoutMs) {
      const known = this.#lines.get(timeoutMs);
      this.#recent = known ?? { timeoutMs, first: undefined, last: undefined };
    }
    const line = this.#recent;
    if (line.first === undefined) this.#lines.set(timeoutMs, line);
    return line;
  }

  readonly #look = (): void => {
    const nowMs = performance.now();
    const due: Deadline[] = [];
    let nextMs = Infinity;
    for (const line of this.#lines.values()) {
      for (let first = line.first; first !== undefined; first = line.first) {
        if (first.dueMs > nowMs) {
          nextMs = Math.min(nextMs, first.dueMs);
          break;
        }
        this.leave(first);
        due.push(first);
      }
    }
    if (nextMs < Infinity) this.#alarm.ringBy(nextMs, nowMs, this.#look);
    const expire = (): void => {
      void this.#expireInTurn(due.sort((a, b) => a.dueMs - b.dueMs));
    };
    // A program that computed for as long has calls that are done, and that settle in this turn.
    if (typeof setImmediate === "function") setImmediate(expire);
    else expire();
  };

  /** One after the other: the first that is still open mostly ends the communicator, and the others with it. */
  async #expireInTurn(due: readonly Deadline[]): Promise<void> {
    for (const { posting } of due) {
      const { op } = posting;
      if (!op.pending) continue;
      const settled = new Promise<unknown>((resolve) => op.whenSettled(resolve));
      await Promise.race([this.#expire(posting), settled]);
    }
  }
}
