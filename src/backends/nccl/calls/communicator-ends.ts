/** Ends the communicators of a session: with the other processes where possible, else by an abort. */

import type { Job } from "../../../job/job.ts";
import type { NcclCommunicator } from "./communicator.ts";

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
    if (this.#lacksMember(comm)) return comm.abort();
    if (await this.#endTogether(comm)) return;
    // The end needs no report where a process is lost.
    if (this.#lacksMember(comm)) return;
    this.#isDetached = true;
    // Announced now: this process may be about to leave the job.
    this.#remote?.announceClosed(comm.info);
  }

  #lacksMember(comm: NcclCommunicator): boolean {
    return comm.info.ranks.some((rank) => this.#lostRanks.has(rank));
  }

  /** False when the end was aborted or cancelled, and no other process had ended the communicator before. */
  async #endTogether(comm: NcclCommunicator): Promise<boolean> {
    if (this.#isDetached) {
      await comm.abort();
      return false;
    }
    const cancelled = new AbortController();
    this.#ending.set(comm, cancelled);
    let isEndedElsewhere = false;
    const check = (): void => {
      if (this.#remote?.isEndedElsewhere(comm.info) !== true) return;
      isEndedElsewhere = true;
      cancelled.abort();
    };
    const ignore = this.#remote?.onRemoteEnd(check);
    check();
    try {
      const othersEnd = this.#remote?.allEnd(comm.info, cancelled.signal);
      return (await comm.end(cancelled.signal, othersEnd)) || isEndedElsewhere;
    } finally {
      ignore?.();
      this.#ending.delete(comm);
      // A wait past the bound would release the other ranks as if this one were there.
      cancelled.abort();
    }
  }

  /** Ends communicators one after another, in the order of all processes. */
  async endInOrder(comms: readonly NcclCommunicator[]): Promise<void> {
    let failure: { readonly error: unknown } | undefined;
    for (const comm of comms) {
      try {
        await this.end(comm);
      } catch (error) {
        failure ??= { error };
      }
    }
    if (failure !== undefined) throw failure.error;
  }
}

/** Communicators that take no more calls, until they have ended. They may still have windows of symmetric memory. */
export class EndingCommunicators {
  readonly #ends = new Map<Promise<unknown>, readonly NcclCommunicator[]>();
  readonly #failed: (error: unknown) => void;

  /** `failed` is called with the error of an end. */
  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** Adds communicators that have ended when the promise settles. Streams of their own are closed then. */
  add(comms: readonly NcclCommunicator[], ending: Promise<void>): void {
    const settled = ending
      .catch(this.#failed)
      .then(() => Promise.all(comms.map((comm) => comm.closeStreams())))
      .catch(this.#failed)
      .finally(() => this.#ends.delete(settled));
    this.#ends.set(settled, comms);
  }

  get comms(): NcclCommunicator[] {
    return [...this.#ends.values()].flat();
  }

  /** Resolves when all of them have ended. */
  async allEnded(): Promise<void> {
    await Promise.all(this.#ends.keys());
  }
}
