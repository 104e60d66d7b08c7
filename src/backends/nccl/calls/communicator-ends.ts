/** The end of a session's communicators: with the other processes where these take part, else without them. */
import type { CommInfo } from "../../../api/index.ts";
import { settlesWithin } from "../common/async.ts";
import type { NcclCommunicator } from "./communicator.ts";

/** Longest time until the store has heard of an end, and the interval of queries for others' ends. */
const [tellMs, askMs] = [1_000, 500];

/** Exchanges ends of communicators with the other processes. */
export interface RemoteEnds {
  /** This process has ended one without the others, none of which is gone. */
  reportClosedAlone(comm: CommInfo): Promise<void>;
  /** True where another process has ended its end alone, so that work here never ends. */
  isEndedElsewhere(comm: CommInfo): Promise<boolean>;
}

/** Ends the communicators of one session. */
export class CommunicatorEnds {
  /** World ranks of lost processes. */
  readonly #lostRanks = new Set<number>();
  /** Absent where all ranks live here. */
  readonly #remote: RemoteEnds | undefined;
  /** Ended by others without this process. */
  readonly #endedElsewhere = new Set<NcclCommunicator>();
  /** Cancels each end that meets the other processes now. */
  readonly #ending = new Map<NcclCommunicator, AbortController>();
  #isDetached = false;

  constructor(others: RemoteEnds | undefined) {
    this.#remote = others;
  }

  /** A rank's process is gone: it comes to no end any more, not to one that waits for it either. */
  lost(worldRank: number): void {
    this.#lostRanks.add(worldRank);
    for (const [comm, calledOff] of this.#ending) {
      if (this.#lacksMember(comm)) calledOff.abort();
    }
  }

  /** From here on the other processes are met for no end any more, and no end goes on waiting for them. */
  detach(): void {
    this.#isDetached = true;
    for (const calledOff of this.#ending.values()) calledOff.abort();
  }

  /** Ends one; it is aborted where not all processes would come. */
  async end(comm: NcclCommunicator): Promise<void> {
    if (this.#lacksMember(comm)) return comm.abort();
    if (await this.#endTogether(comm)) return;
    // A process that is lost, or was there before, has no news of those that are there.
    if (this.#lacksMember(comm) || this.#endedElsewhere.has(comm)) return;
    this.#isDetached = true;
    // This process may be about to leave the job, with which it can say nothing more.
    const told = this.#remote?.reportClosedAlone(comm.info);
    if (told !== undefined) await settlesWithin(tellMs, told);
  }

  #lacksMember(comm: NcclCommunicator): boolean {
    return comm.info.ranks.some((rank) => this.#lostRanks.has(rank));
  }

  /** False when they did not come, or are not to. */
  async #endTogether(comm: NcclCommunicator): Promise<boolean> {
    if (this.#isDetached) {
      await comm.abort();
      return false;
    }
    const calledOff = new AbortController();
    this.#ending.set(comm, calledOff);
    const ask = (): void => void this.#checkRemoteEnd(comm, calledOff);
    // A process that has ended one alone may have ended many.
    if (this.#endedElsewhere.size > 0) ask();
    const asking = setInterval(ask, askMs);
    try {
      return await comm.end(calledOff.signal);
    } finally {
      clearInterval(asking);
      this.#ending.delete(comm);
    }
  }

  /** Calls an end off where another process has ended the communicator alone. */
  async #checkRemoteEnd(comm: NcclCommunicator, calledOff: AbortController): Promise<void> {
    if ((await this.#remote?.isEndedElsewhere(comm.info)) !== true) return;
    this.#endedElsewhere.add(comm);
    calledOff.abort();
  }

  /** Ends several one after another, as all processes do. Where others do not come to one, they come to none. */
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

/** The communicators of a session that have left, until they have ended. */
export class EndingCommunicators {
  readonly #ends = new Map<Promise<void>, readonly NcclCommunicator[]>();
  readonly #failed: (error: unknown) => void;

  /** `failed` gets the errors of an end. */
  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** They have left, and have ended when the promise settles. */
  add(comms: readonly NcclCommunicator[], ending: Promise<void>): void {
    const settled = ending.catch(this.#failed).finally(() => this.#ends.delete(settled));
    this.#ends.set(settled, comms);
  }

  get comms(): NcclCommunicator[] {
    return [...this.#ends.values()].flat();
  }

  /** Resolves when those that have left by now have ended. */
  async allEnded(): Promise<void> {
    await Promise.all(this.#ends.keys());
  }
}
