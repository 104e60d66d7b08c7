/** How one process belongs to a job: its rank, the news about the others, and the way to the next life of the job. */
import type { CommInfo, Session } from "../../api/index.ts";
import type { Membership } from "./rendezvous/index.ts";
import { communicatorKey, RollCall } from "./roll-call.ts";

/** When the ranks of several processes compare their calls. */
export type Checks = "off" | "once" | "always";

/** How long a comparison waits for the other ranks, where no deadline ends the call before. */
const compareMs = 600_000;

/** Opens this process's session in one life of a job. */
export type OpenLife = (membership: Membership) => Promise<Session>;

/** How many collective calls were made on a communicator. */
interface Made {
  calls: number;
}

/** A membership as a session sees it. */
export class Job {
  readonly #membership: Membership;
  readonly #open: OpenLife;
  readonly #rollCall: RollCall;
  /** Collective calls that this process has made: by communicator, and by its name, which the newest so named has. */
  readonly #made = new WeakMap<CommInfo, Made>();
  readonly #madeByName: Record<string, { readonly calls: number }> = {};
  /** Where the last call was made: calls in a row are mostly made there too. */
  #latest: { readonly comm: CommInfo | undefined; readonly made: Made } = {
    comm: undefined,
    made: { calls: 0 },
  };
  #handedOver = false;

  readonly #checks: Checks;
  /** Kinds of calls that were compared, by communicator. */
  readonly #compared = new Set<string>();

  constructor(membership: Membership, open: OpenLife, checks: Checks = "off") {
    this.#checks = checks;
    this.#membership = membership;
    this.#open = open;
    this.#rollCall = new RollCall(membership, () =>
      Object.fromEntries(
        Object.entries(this.#madeByName).map(([name, { calls }]) => [name, calls] as const),
      ),
    );
  }

  /** This process has made a collective call on a communicator, which the same object must stand for every time. */
  made(comm: CommInfo, number: number): void {
    if (comm !== this.#latest.comm) this.#latest = { comm, made: this.#madeOn(comm) };
    this.#latest.made.calls = number + 1;
  }

  #madeOn(comm: CommInfo): Made {
    let made = this.#made.get(comm);
    if (made === undefined) {
      made = { calls: 0 };
      this.#made.set(comm, made);
      this.#madeByName[communicatorKey(comm)] = made;
    }
    return made;
  }

  /** Whether calls are compared on some communicator. */
  get comparesAny(): boolean {
    return this.#checks !== "off";
  }

  /** Whether calls on a communicator are compared at all. */
  compares(comm: CommInfo): boolean {
    return this.comparesAny && comm.ranks.length === this.#membership.size;
  }

  /** Every rank's signature of a call; `undefined` when it need not be compared. */
  signatures(comm: CommInfo, number: number, own: string): Promise<string[]> | undefined {
    if (!this.compares(comm)) return undefined;
    const kind = `${communicatorKey(comm)} ${own}`;
    if (this.#checks === "once" && this.#compared.has(kind)) return undefined;
    this.#compared.add(kind);
    const key = `call ${comm.id}/${number}`;
    const bytes = new TextEncoder().encode(own);
    const options = { timeoutMs: compareMs };
    return this.#membership
      .exchange(key, bytes, options)
      .then((all) => all.map((each) => new TextDecoder().decode(each)));
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
