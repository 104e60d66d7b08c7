/** How a session ends its communicators: with the other processes where these come too, else without them. */
import type { NcclCommunicator } from "./communicators.ts";

/** Ends the communicators of one session. */
export class CommunicatorEnds {
  /** World ranks whose processes are gone. */
  readonly #gone = new Set<number>();
  readonly #endedAlone: (comm: NcclCommunicator) => void;
  #alone = false;

  /** `endedAlone` is told of each that ended without the other processes, none of which is gone. */
  constructor(endedAlone: (comm: NcclCommunicator) => void) {
    this.#endedAlone = endedAlone;
  }

  /** A rank's process is gone. */
  lost(worldRank: number): void {
    this.#gone.add(worldRank);
  }

  /** From here on the other processes are met for no end any more. */
  leaveOthers(): void {
    this.#alone = true;
  }

  /** Ends one; it is aborted where not all processes would come. */
  async one(comm: NcclCommunicator): Promise<void> {
    const misses = comm.info.ranks.some((rank) => this.#gone.has(rank));
    if (misses) return comm.abort();
    if (await this.#withOthers(comm)) return;
    this.#alone = true;
    this.#endedAlone(comm);
  }

  /** False when they did not come, or are not to. */
  async #withOthers(comm: NcclCommunicator): Promise<boolean> {
    if (!this.#alone) return comm.end();
    await comm.abort();
    return false;
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
