/** How a session ends its communicators: with the other processes where these come too, else without them. */
import { within } from "../device/give-back.ts";
import type { NcclCommunicator } from "./communicators.ts";

/** How long the others' place takes at most to hear of an end. */
const tellMs = 1_000;

/** Ends the communicators of one session. */
export class CommunicatorEnds {
  /** World ranks whose processes are gone. */
  readonly #gone = new Set<number>();
  readonly #endedAlone: (comm: NcclCommunicator) => Promise<void>;
  /** What calls off each end that meets the other processes now. */
  readonly #underWay = new Map<NcclCommunicator, AbortController>();
  #alone = false;

  /** `endedAlone` is told of each that ended without the other processes, none of which is gone. */
  constructor(endedAlone: (comm: NcclCommunicator) => Promise<void>) {
    this.#endedAlone = endedAlone;
  }

  /** A rank's process is gone: it comes to no end any more, not to one that waits for it either. */
  lost(worldRank: number): void {
    this.#gone.add(worldRank);
    for (const [comm, calledOff] of this.#underWay) {
      if (this.#misses(comm)) calledOff.abort();
    }
  }

  /** From here on the other processes are met for no end any more, and no end goes on waiting for them. */
  leaveOthers(): void {
    this.#alone = true;
    for (const calledOff of this.#underWay.values()) calledOff.abort();
  }

  /** Ends one; it is aborted where not all processes would come. */
  async one(comm: NcclCommunicator): Promise<void> {
    if (this.#misses(comm)) return comm.abort();
    if (await this.#withOthers(comm)) return;
    // One that is lost tells nothing of those that are there.
    if (this.#misses(comm)) return;
    this.#alone = true;
    // This process may be about to leave the job, with which it can say nothing more.
    await within(tellMs, this.#endedAlone(comm));
  }

  #misses(comm: NcclCommunicator): boolean {
    return comm.info.ranks.some((rank) => this.#gone.has(rank));
  }

  /** False when they did not come, or are not to. */
  async #withOthers(comm: NcclCommunicator): Promise<boolean> {
    if (this.#alone) {
      await comm.abort();
      return false;
    }
    const calledOff = new AbortController();
    this.#underWay.set(comm, calledOff);
    try {
      return await comm.end(calledOff.signal);
    } finally {
      this.#underWay.delete(comm);
    }
  }

  /** Ends several one after another, as all processes do. Where others do not come to one, they come to none. */
  async inOrder(comms: readonly NcclCommunicator[]): Promise<void> {
    let failure: { readonly error: unknown } | undefined;
    for (const comm of comms) {
      try {
        await this.one(comm);
      } catch (error) {
        failure ??= { error };
      }
    }
    if (failure !== undefined) throw failure.error;
  }
}
