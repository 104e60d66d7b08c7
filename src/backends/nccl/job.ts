/** How one process belongs to a job: its rank, the news about the others, and the way to the next life of the job. */
import type { Session } from "../../api/index.ts";
import type { Membership } from "./rendezvous/index.ts";

/** Opens this process's session in one life of a job. */
export type OpenLife = (membership: Membership) => Promise<Session>;

/** A membership as a session sees it. */
export class Job {
  readonly #membership: Membership;
  readonly #open: OpenLife;
  #handedOver = false;

  constructor(membership: Membership, open: OpenLife) {
    this.#membership = membership;
    this.#open = open;
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
    this.#handedOver = true;
  }

  async rejoin(without: readonly number[] | undefined): Promise<Session> {
    return this.#open(await this.#membership.rejoin({ without }));
  }

  async leave(): Promise<void> {
    if (!this.#handedOver) await this.#membership.leave();
  }
}
