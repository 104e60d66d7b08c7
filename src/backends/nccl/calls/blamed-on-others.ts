/**
 * Faults that NCCL blames on another process. NCCL knows no more than that a connection closed; what became of that process,
 * which was lost or has ended the communicator, is heard from others, a little later.
 */
import { NcclError } from "../result/errors.ts";

/** How long the others have for it. A process that waits asks each second. */
const graceMs = 3_000;

/** Those of one communicator. */
export class BlamedOnOthers {
  #sinceMs: number | undefined;

  /** Whether a fault is left for others to tell: for a while, if it is such a one. */
  isForOthers(error: unknown): boolean {
    if (!(error instanceof NcclError) || error.statusName !== "ncclRemoteError") return false;
    const nowMs = performance.now();
    this.#sinceMs ??= nowMs;
    return nowMs - this.#sinceMs < graceMs;
  }
}
