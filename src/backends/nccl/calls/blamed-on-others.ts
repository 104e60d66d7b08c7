/**
 * Faults that NCCL blames on another process. NCCL knows no more than that a connection closed; what became of that process,
 * which was lost or has ended the communicator, is heard from others, a little later. Calls that such a fault would fail stay
 * open until then.
 */
import type { Completion } from "../../../api/index.ts";
import { NcclError } from "../result/errors.ts";

/**
 * The grace period: a waiting process queries the others each second. Time in which no news could arrive, because this
 * process stood still, does not count.
 */
const [graceMs, longestLookMs] = [4_000, 1_000];

/** News keeps no process alive, and open calls must get their error. */
const longestTimerMs = 2 ** 31 - 1;

/** Those of one communicator. */
export class BlamedOnOthers {
  #waitedMs = 0;
  #lookedMs: number | undefined;
  #first: unknown;
  #open: Completion[] = [];
  #keepsProcess: NodeJS.Timeout | undefined;

  /** The error of the first call that was left open; `undefined` while none was. */
  get first(): unknown {
    return this.#first;
  }

  /** True where a fault is left open for news of other processes: for a while, and for such faults only. */
  isForOthers(error: unknown): boolean {
    if (!isBlame(error)) return false;
    const nowMs = performance.now();
    this.#waitedMs += Math.min(nowMs - (this.#lookedMs ?? nowMs), longestLookMs);
    this.#lookedMs = nowMs;
    return this.#waitedMs < graceMs;
  }

  /** Leaves a call open that failed with such a fault; false for others. */
  leaveOpen(error: unknown, waiting: Completion): boolean {
    if (!isBlame(error)) return false;
    this.#first ??= error;
    this.#lookedMs ??= performance.now();
    waiting.acceptsMore = false;
    this.#open.push(waiting);
    this.#keepsProcess ??= setInterval(() => undefined, longestTimerMs);
    return true;
  }

  /** The communicator is over, for a reason where it was aborted. */
  end(reason: unknown): void {
    const open = this.#open;
    this.#open = [];
    clearInterval(this.#keepsProcess);
    for (const waiting of open) waiting.settled(reason ?? this.#first);
  }
}

function isBlame(error: unknown): boolean {
  return error instanceof NcclError && error.statusName === "ncclRemoteError";
}
