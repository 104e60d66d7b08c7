/**
 * Holds back work for the device while NCCL frees communicators on other threads. CUDA waits there for all kernels of the device,
 * and meanwhile blocks this thread in every call but queries. A kernel that waits for a rank of another process would keep both
 * threads, and no deadline, signal or loss would be noticed.
 */
import { longestTimerMs, nextTurn } from "../../../api/ledger/turns.ts";
import { keepAlive, settlesWithin } from "../../../job/async.ts";

/** The hold of one session. */
export class SubmissionHold {
  /** True while no work may be submitted. */
  isOn = false;
  /** True while CUDA may block this thread. */
  isFreeing = false;
  #frees = 0;
  #over: Promise<void> = Promise.resolve();
  #end = (): void => undefined;

  /** Resolves when no memory is being freed. */
  get over(): Promise<void> {
    return this.#over;
  }

  /**
   * Holds work back from now until `free` has settled. It runs in the next turn of the event loop: by then, the end of work that
   * was submitted before is recorded in the streams.
   */
  async during<T>(free: () => Promise<T>): Promise<T> {
    this.isOn = true;
    if (this.#frees++ === 0) {
      this.#over = new Promise((resolve) => {
        this.#end = resolve;
      });
    }
    try {
      await new Promise<void>(nextTurn);
      this.isFreeing = true;
      return await free();
    } finally {
      this.isOn = --this.#frees > 0;
      this.isFreeing &&= this.isOn;
      if (!this.isOn) this.#end();
    }
  }

  /** False where the signal fires before work can be submitted. */
  async endsBefore(cancelled: AbortSignal | undefined): Promise<boolean> {
    while (this.isOn) {
      if (!(await keepAlive(settlesWithin(longestTimerMs, this.#over, cancelled)))) return false;
    }
    return true;
  }
}
