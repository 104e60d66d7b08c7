/** How one process belongs to a job: its rank, the news about the others, and the way to the next life of the job. */
import type { CommInfo, Session } from "../../api/index.ts";
import type { Membership } from "./rendezvous/index.ts";
import { communicatorKey, RollCall } from "./roll-call.ts";

/** Opens this process's session in one life of a job. */
export type OpenLife = (membership: Membership) => Promise<Session>;

/** A membership as a session sees it. */
export class Job {
  readonly #membership: Membership;
  readonly #open: OpenLife;
  readonly #rollCall: RollCall;
  /** Collective calls that this process has made, by communicator. */
  readonly #made: Record<string, number> = {};
  #handedOver = false;

  constructor(membership: Membership, open: OpenLife) {
    this.#membership = membership;
    this.#open = open;
    this.#rollCall = new RollCall(membership, () => this.#made);
  }

  /** This process has made a collective call. */
  made(comm: CommInfo, number: number): void {
    this.#made[communicatorKey(comm)] = number + 1;
  }

  /** World ranks that have not made a call, as far as they say. */
  missing(comm: CommInfo, number: number): Promise<number[]> {
    return this.#rollCall.missing(comm, number);
  }

  get rank(): number {
    return this.#membership.rank;
  }

  /** Counted from 0. */
  get generation(): number {
    return this.#membership.generation;
  }

  get origins(): readonly number[] {
    return this.#membership.origins;
  }

  /** Tells of every rank whose process is gone. */
  onLost(listener: (rank: number, reason: string) => void): void {
    this.#membership.onLost(({ rank, reason }) => {
      // Without the place itself the ranks still work; only a rebuild would miss it.
      if (rank !== undefined) listener(rank, reason);
    });
  }

  /** The membership goes on in the next life, so that closing the session does not end it. */
  handOver(): void {
    this.#rollCall.end();
    this.#handedOver = true;
  }

  async rejoin(without: readonly number[] | undefined): Promise<Session> {
    return this.#open(await this.#membership.rejoin({ without }));
  }

  async leave(): Promise<void> {
    this.#rollCall.end();
    if (!this.#handedOver) await this.#membership.leave();
  }
}
