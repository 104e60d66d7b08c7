/** Ends the communicators of a session: once the other processes end them too, or without those that are lost or late. */

import { settlesWithin } from "../../../job/async.ts";
import type { Job } from "../../../job/job.ts";
import type { NcclCommunicator } from "./communicator.ts";

/** Longest time for the other processes to end a communicator too. */
const endMs = 10_000;

/** Reports and queries ends of communicators in other processes. */
type RemoteEnds = Pick<Job, "allEnd" | "announceClosed" | "isEndedElsewhere" | "onRemoteEnd">;

/** Ends the communicators of one session. */
export class CommunicatorEnds {
  /** World ranks of lost processes. */
  readonly #lostRanks = new Set<number>();
  /** Left out where all ranks are here. */
  readonly #remote: RemoteEnds | undefined;
  /** Cancels each end that is in progress with the other processes. */
  readonly #ending = new Map<NcclCommunicator, AbortController>();
  #isDetached = false;
  /** One warning stands for all communicators whose ends are in progress together. */
  #hasWarned = false;

  constructor(others: RemoteEnds | undefined) {
    this.#remote = others;
  }

  /** A process is lost: ends in progress do not wait for it, and later ones abort. */
  lost(worldRank: number): void {
    this.#lostRanks.add(worldRank);
    for (const [comm, cancelled] of this.#ending) {
      if (this.#lacksMember(comm)) cancelled.abort();
    }
  }

  /** Cancels the ends in progress; later ones abort without the other processes. */
  detach(): void {
    this.#isDetached = true;
    for (const cancelled of this.#ending.values()) cancelled.abort();
  }

  /** Ends a communicator; aborts it where a process is lost. */
  async end(comm: NcclCommunicator): Promise<void> {
    if (!this.#isDetached && !this.#lacksMember(comm)) {
      await comm.end(this.#othersEnd(comm));
      return;
    }
    this.#noteAlone(comm);
    await comm.abortWhileIdle();
  }

  #lacksMember(comm: NcclCommunicator): boolean {
    return comm.info.ranks.some((rank) => this.#lostRanks.has(rank));
  }

  /** This process ends a communicator without the others. The end needs no report where a process is lost. */
  #noteAlone(comm: NcclCommunicator): void {
    if (this.#lacksMember(comm)) return;
    // Announced now: this process may be about to leave the job.
    this.#remote?.announceClosed(comm.info);
  }

  /** Resolves when the other processes end a communicator too, or are not waited for. */
  async #othersEnd(comm: NcclCommunicator): Promise<void> {
    if (this.#remote === undefined) return;
    const cancelled = new AbortController();
    this.#ending.set(comm, cancelled);
    let isEndedElsewhere = false;
    const check = (): void => {
      if (this.#remote?.isEndedElsewhere(comm.info) !== true) return;
      isEndedElsewhere = true;
      cancelled.abort();
    };
    const ignore = this.#remote.onRemoteEnd(check);
    check();
    try {
      const end = this.#remote.allEnd(comm.info, cancelled.signal);
      if ((await settlesWithin(endMs, end, cancelled.signal)) || isEndedElsewhere) return;
      if (!cancelled.signal.aborted && !this.#hasWarned) {
        this.#hasWarned = true;
        process.emitWarning(
          `close: the other ranks of "${comm.info.name}" did not end it within ${endMs} ms, and are not waited for`,
          { type: "TwincclClose", code: "ERR_COMM_TIMEOUT" },
        );
      }
      this.#noteAlone(comm);
    } finally {
      ignore();
      this.#ending.delete(comm);
      if (this.#ending.size === 0) this.#hasWarned = false;
      // A wait past the bound would release the other ranks as if this one were there.
      cancelled.abort();
    }
  }
}

/** Communicators that take no more calls, until they have ended. They may still have windows of symmetric memory. */
export class EndingCommunicators {
  readonly #ends = new Map<Promise<unknown>, NcclCommunicator>();
  readonly #failed: (error: unknown) => void;

  /** `failed` is called with the error of an end. */
  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** Adds a communicator that has ended when the promise settles. Streams of its own are closed then. */
  add(comm: NcclCommunicator, ending: Promise<void>): void {
    const settled = ending
      .catch(this.#failed)
      .then(() => comm.closeStreams())
      .catch(this.#failed)
      .finally(() => this.#ends.delete(settled));
    this.#ends.set(settled, comm);
  }

  get comms(): NcclCommunicator[] {
    return [...this.#ends.values()];
  }

  /** Resolves when all of them have ended. */
  async allEnded(): Promise<void> {
    await Promise.all(this.#ends.keys());
  }
}
