/**
 * First contacts: before a call that connects ranks for the first time, these wait at a barrier of the job's store.
 *
 * A backend may block, or wait without an end, while it connects two ranks. The barrier before keeps a missing rank from
 * blocking the others there, where only an abort ends the wait.
 */
import type { CommInfo, PeerBarrier } from "../api/backend-entry.ts";
import type { CommError } from "../api/index.ts";
import { longestTimerMs } from "./async.ts";
import type { CallCounters } from "./comm-status.ts";
import { peerLostError } from "./cross-check.ts";
import type { Barrier, Membership } from "./rendezvous.ts";

/** Ranks of a communicator that connect to the rank of this process: all, or some. */
export interface NewPeers {
  readonly all: boolean;
  readonly peers: ReadonlySet<number>;
}

/** A call that needs connections. */
export interface Contact {
  readonly comm: CommInfo;
  /** The rank of this process in the communicator. */
  readonly rank: number;
  /** The ranks that the call connects, also those that are connected already. */
  readonly needs: NewPeers;
  /** The number of a collective call; left out for messages. */
  readonly number?: number | undefined;
  readonly counters: CallCounters | undefined;
  /** Names of barriers of all ranks of the communicator that the call needs too. */
  readonly barriers?: readonly string[];
  /** Connects the new peers once all have arrived; false when cancelled. */
  connect(added: NewPeers, cancelled: AbortSignal): Promise<boolean>;
}

/** The ranks with connections to and from the rank of this process. */
interface ConnectedPeers {
  all: boolean;
  readonly peers: Set<number>;
}

/** The first contacts of one process. */
export class FirstContacts {
  readonly #membership: Pick<Membership, "awaitBarriers">;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #connected = new WeakMap<CommInfo, ConnectedPeers>();

  /** `keyOf` gives a communicator the same name in every process. */
  constructor(membership: Pick<Membership, "awaitBarriers">, keyOf: (comm: CommInfo) => string) {
    this.#membership = membership;
    this.#keyOf = keyOf;
  }

  /** True where the rank of this process is connected to a peer. */
  isConnected(comm: CommInfo, peer: number): boolean {
    return hasPeer(this.#connected.get(comm), peer);
  }

  /** `JobSession.barrier` for a call; `undefined` where it needs no new connection and no other barrier. */
  barrier(contact: Contact): PeerBarrier | undefined {
    const { comm, needs } = contact;
    const connected = this.#connected.get(comm);
    const added: NewPeers = {
      all: needs.all && connected?.all !== true,
      peers: new Set([...needs.peers].filter((peer) => !hasPeer(connected, peer))),
    };
    const barriers = this.#barriers(contact, added);
    if (barriers.length === 0) return undefined;
    return (cancelled) => this.#connect(contact, added, barriers, cancelled);
  }

  #barriers({ comm, rank, barriers = [] }: Contact, { all, peers }: NewPeers): readonly Barrier[] {
    const { ranks } = comm;
    const key = this.#keyOf(comm);
    const pairs = Array.from(peers, (peer): Barrier => {
      const [low, high] = [Math.min(rank, peer), Math.max(rank, peer)];
      // The key has no direction: the sender may post its own receive only afterwards.
      return {
        key: `pair ${key} ${low}-${high}`,
        ranks: [ranks[low] as number, ranks[high] as number],
      };
    });
    const ofAll = barriers.map((name) => ({ key: `${name} ${key}`, ranks }));
    return [...pairs, ...(all ? [{ key: `all ${key}`, ranks }] : []), ...ofAll];
  }

  async #connect(
    { comm, counters, number, connect }: Contact,
    added: NewPeers,
    barriers: readonly Barrier[],
    cancelled: AbortSignal,
  ): Promise<boolean> {
    if (counters !== undefined) counters.atBarrier = number;
    if (!(await this.#awaitBarriers(comm, barriers, cancelled))) return false;
    if (counters !== undefined) counters.atBarrier = undefined;
    if (!(await connect(added, cancelled))) return false;
    const connected = this.#connected.get(comm) ?? { all: false, peers: new Set() };
    this.#connected.set(comm, connected);
    connected.all ||= added.all;
    for (const peer of added.peers) connected.peers.add(peer);
    return true;
  }

  async #awaitBarriers(
    comm: CommInfo,
    barriers: readonly Barrier[],
    signal: AbortSignal,
  ): Promise<boolean> {
    try {
      return await this.#membership.awaitBarriers(barriers, { timeoutMs: longestTimerMs, signal });
    } catch (error) {
      if (signal.aborted) return false;
      // Without the store there is no barrier: the backend gets the call as it is.
      if ((error as Partial<CommError>).code === "ERR_COMM_RENDEZVOUS") return true;
      throw peerLostError(comm, error);
    }
  }
}

function hasPeer(connected: ConnectedPeers | undefined, peer: number): boolean {
  return connected !== undefined && (connected.all || connected.peers.has(peer));
}
