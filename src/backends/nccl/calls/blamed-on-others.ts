/**
 * Faults that NCCL blames on another process. NCCL knows no more than that a connection closed; what became of that process,
 * which was lost or has ended the communicator, is heard from others, a little later.
 */
import { NcclError } from "../result/errors.ts";

/**
 * How long the others have for it: a process that waits asks each second. Time in which nothing could be heard, because this
 * process stood still, does not count.
 */
const [graceMs, longestLookMs] = [4_000, 1_000];

/** Those of one communicator. */
export class BlamedOnOthers {
  #waitedMs = 0;
  #lookedMs: number | undefined;

  /** Whether a fault is left for others to tell: for a while, if it is such a one. */
  isForOthers(error: unknown): boolean {
    if (!(error instanceof NcclError) || error.statusName !== "ncclRemoteError") return false;
    const nowMs = performance.now();
    this.#waitedMs += Math.min(nowMs - (this.#lookedMs ?? nowMs), longestLookMs);
    this.#lookedMs = nowMs;
    return this.#waitedMs < graceMs;
  }
}
