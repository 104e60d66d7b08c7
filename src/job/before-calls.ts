/**
 * Waits for other processes before a call reaches the backend, in the job's store.
 *
 * `CrossCheck` compares the call with those of the other ranks, by an exchange. `FirstConnections` has ranks wait at a barrier
 * before a call that connects them for the first time. A backend may block, or wait without an end, while it connects two ranks.
 * The barrier keeps a missing rank from blocking the others there, where only an abort ends the wait.
 */

import type {
  CallDigest,
  CommInfo,
  PeerBarrier,
  PeerProcesses,
  RemoteEnd,
} from "../api/backend-entry.ts";
import { numbersText, rankRows, ranksText } from "../api/error-text.ts";
import {
  CollectiveMismatchError,
  type CommError,
  RankLostError,
  RemoteRankError,
} from "../api/errors.ts";
import { getOrCreate } from "../api/get-or-create.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import { oneOf, type Rule } from "../api/option-kinds.ts";
import { pause } from "./async.ts";
import type { CallCounters } from "./comm-status.ts";
import type { MissingRankFinder } from "./missing-ranks.ts";
import type { Barrier, LostPeer, Membership } from "./rendezvous.ts";

const compareModes = ["off", "once", "always"] as const;

/** When the ranks of several processes compare their calls. */
export type CompareCalls = (typeof compareModes)[number];

/** The ways of comparing calls, as an option of a backend. */
export const compareCallsRule: Rule = oneOf(
  compareModes,
  '"once" compares every new kind of call between processes, "always" every call, "off" none',
);

/** A comparison that takes longer queries which other ranks have submitted the call. */
const queryAfterMs = 500;

/** The job's side of comparisons. */
interface CrossCheckHost {
  /** The key of a communicator, the same in every process. */
  readonly keyOf: (comm: CommInfo) => string;
  /** Called before this rank compares a call, for queries of other ranks. */
  readonly onCompare: (comm: CommInfo, number: number) => void;
  readonly missingRanks: Pick<MissingRankFinder, "notSubmitted" | "onSubmitted">;
  readonly waits: StoreWaits;
  readonly remoteEnd: PeerProcesses["remoteEnd"];
}

/** The comparisons of one process. */
export class CrossCheck {
  readonly #membership: Pick<Membership, "rank" | "size" | "exchange" | "lost">;
  readonly #mode: CompareCalls;
  readonly #job: CrossCheckHost;
  /** Kinds of calls that matched on a communicator: the same ones in every process. */
  readonly #matched = new WeakMap<CommInfo, Set<string>>();

  constructor(
    membership: Pick<Membership, "rank" | "size" | "exchange" | "lost">,
    mode: CompareCalls,
    job: CrossCheckHost,
  ) {
    this.#membership = membership;
    this.#mode = mode;
    this.#job = job;
  }

  /** True where calls of some communicator are compared. */
  get isEnabled(): boolean {
    return this.#mode !== "off";
  }

  /** `JobSession.compare`. Calls on a communicator of some ranks of the job are not compared. */
  compare<Fault>(
    comm: CommInfo,
    number: number,
    own: () => CallDigest,
    judge: (details: readonly string[]) => Fault | undefined,
  ): Promise<Fault | undefined> | undefined {
    if (!this.isEnabled || !this.#hasAllRanks(comm)) return undefined;
    const { kind, details } = own();
    const matched = getOrCreate(this.#matched, comm, () => new Set());
    if (this.#mode === "once" && matched.has(kind)) return undefined;
    return this.#exchangeDetails(comm, number, details()).then((all) => {
      const fault = judge(all);
      // A kind is skipped from now on only where every rank has seen it match.
      if (fault === undefined) matched.add(kind);
      return fault;
    });
  }

  /** `JobSession.compareCaptures`. */
  compareCaptures<Fault>(
    comm: CommInfo,
    number: number,
    own: () => CallDigest,
    judge: (details: readonly string[]) => Fault | undefined,
  ): Promise<Fault | undefined> {
    return this.#exchangeDetails(comm, number, own().details()).then(judge, (error) => {
      // Without the store there is no comparison: the backend gets the capture as it is.
      if ((error as Partial<CommError>).code === "ERR_COMM_RENDEZVOUS") return undefined;
      throw error;
    });
  }

  /** The details of all ranks, by rank of the communicator. */
  async #exchangeDetails(comm: CommInfo, number: number, details: string): Promise<string[]> {
    const key = `call ${this.#job.keyOf(comm)} ${number}`;
    this.#job.onCompare(comm, number);
    const all = await this.#job.waits.run(comm, async (bounds) => {
      const own = new TextEncoder().encode(details);
      const exchange = this.#membership.exchange(key, own, { ...bounds, ranks: comm.ranks });
      exchange.catch(() => undefined);
      try {
        // Every other call there is compared with this one.
        if (this.#mode === "always" && this.#hasAllRanks(comm)) return await exchange;
        return await Promise.race([exchange, this.#watchOthers(comm, number, bounds.signal)]);
      } catch (error) {
        const { lost } = this.#membership;
        if (isExplained(error, this.#job.remoteEnd(comm), lost))
          await pause(longestTimerMs, bounds.signal);
        throw peerGoneError(comm, error, lost);
      }
    });
    return all.map((each) => new TextDecoder().decode(each));
  }

  #hasAllRanks({ ranks }: CommInfo): boolean {
    return ranks.length === this.#membership.size;
  }

  /** Rejects once another rank has submitted a call that is not compared, other than the call of this rank. */
  async #watchOthers(comm: CommInfo, number: number, over: AbortSignal): Promise<never> {
    const { missingRanks } = this.#job;
    await pause(queryAfterMs, over, { unref: true });
    if (!over.aborted) await missingRanks.onSubmitted(comm, number, over);
    const behind = over.aborted ? [] : await missingRanks.notSubmitted(comm, number);
    // The call has ended.
    if (over.aborted) return new Promise<never>(() => undefined);
    const own = comm.ranks.indexOf(this.#membership.rank);
    const ahead = comm.ranks.flatMap((worldRank, rank) =>
      rank === own || behind.includes(worldRank) ? [] : [rank],
    );
    throw aheadError(comm, number, own, ahead, this.#hasAllRanks(comm));
  }
}

function aheadError(
  comm: CommInfo,
  number: number,
  own: number,
  ahead: readonly number[],
  canBeCompared: boolean,
): CollectiveMismatchError {
  const values = comm.ranks.map((_, rank) => {
    if (rank === own) return "is compared";
    return ahead.includes(rank) ? "is not compared" : "unknown";
  });
  const rows = values.map((value, rank) => ({ rank, cells: [value] }));
  return new CollectiveMismatchError(
    {
      headline: `call ${number} on "${comm.name}": rank ${own} makes another call than ${ranksText(ahead)}`,
      table: [["rank", "call"], ...rankRows(rows, numbersText)],
      hint: `the communicator was aborted here, and waits elsewhere${canBeCompared ? ': compareCalls: "always" reports it on all ranks in time' : ""}`,
    },
    {
      ...{ rank: own, size: comm.ranks.length, comm: comm.name, call: number },
      ...{ ranks: [own, ...ahead].sort((a, b) => a - b), field: "call", values },
    },
  );
}

/** Bounds of a wait in the store. It has no deadline of its own: deadlines of calls, closing and losses end it. */
interface StoreWait {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Waits of calls in the store, which end with their communicator. */
export class StoreWaits {
  /** By communicator number: the world has one `CommInfo` in the session and another in its callers. */
  readonly #open = new Map<number, Set<AbortController>>();

  /** Runs a wait of a communicator; the signal fires when the wait ends or the communicator is over. */
  async run<T>({ id }: CommInfo, wait: (bounds: StoreWait) => Promise<T>): Promise<T> {
    const over = new AbortController();
    const open = this.#open.get(id) ?? new Set();
    this.#open.set(id, open.add(over));
    try {
      return await wait({ timeoutMs: longestTimerMs, signal: over.signal });
    } finally {
      open.delete(over);
      if (open.size === 0) this.#open.delete(id);
      over.abort();
    }
  }

  /** Ends the waits of a communicator. */
  cancel({ id }: CommInfo): void {
    for (const wait of this.#open.get(id) ?? []) wait.abort();
  }
}

/** True for the error of a wait for a rank whose process has left the job or is lost. */
function isRemote(error: unknown): boolean {
  return (error as Partial<CommError>).code === "ERR_COMM_REMOTE";
}

/** True for the error of a wait for ranks that do not come: they are gone, or their generation is over. */
function isWithoutOthers(error: unknown): boolean {
  return isRemote(error) || (error as Partial<CommError>).code === "ERR_COMM_CLOSED";
}

/**
 * True where another process has aborted the communicator, or the job has gone on without this process, and the others left for
 * that: open calls end with that reason. The loss of a rank that has not aborted is no such reason, but often that of the abort.
 */
function isExplained(
  error: unknown,
  end: RemoteEnd | undefined,
  lost: readonly LostPeer[],
): boolean {
  if (!isWithoutOthers(error) || end === undefined) return false;
  if ("nextGeneration" in end) return true;
  const { ranks: gone = [] } = error as Partial<CommError>;
  const isOtherLoss = gone.some((each) => each !== end.rank && isLost(each, lost));
  return end.aborted !== undefined && !isOtherLoss;
}

function isLost(rank: number, lost: readonly LostPeer[]): boolean {
  return lost.some((each) => each.rank === rank);
}

/** The error of a call that waited for a rank that is gone, with ranks of the communicator; any other error as it is. */
function peerGoneError(comm: CommInfo, error: unknown, lost: readonly LostPeer[]): unknown {
  if (!isRemote(error)) return error;
  const { ranks: gone = [] } = error as Partial<CommError>;
  const lostOnes = gone.filter((each) => isLost(each, lost));
  const areLost = lostOnes.length > 0;
  const ranks = (areLost ? lostOnes : gone).map((each) => comm.ranks.indexOf(each));
  const [processes, isGone, hasLeft] =
    ranks.length === 1
      ? ["its process", "is gone", "has left the job"]
      : ["their processes", "are gone", "have left the job"];
  const why = `${processes} ${areLost ? isGone : hasLeft}`;
  const text = {
    headline: `${ranksText(ranks)} of "${comm.name}" will not make this call: ${why}`,
    hint: "comm.rebuild() continues with the others",
  };
  const facts = { ranks, cause: error };
  return areLost ? new RankLostError(text, facts) : new RemoteRankError(text, facts);
}

/** Ranks of a communicator that connect to the rank of this process: all, or some. */
export interface NewPeers {
  readonly all: boolean;
  readonly peers: ReadonlySet<number>;
}

/** A call that needs connections. */
export interface ConnectingCall {
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

/** The first connections of one process. */
export class FirstConnections {
  readonly #membership: Pick<Membership, "awaitBarriers" | "lost">;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #remoteEnd: PeerProcesses["remoteEnd"];
  readonly #connected = new WeakMap<CommInfo, ConnectedPeers>();

  /** `keyOf` gives a communicator the same key in every process. */
  constructor(
    membership: Pick<Membership, "awaitBarriers" | "lost">,
    keyOf: (comm: CommInfo) => string,
    remoteEnd: PeerProcesses["remoteEnd"],
  ) {
    this.#membership = membership;
    this.#keyOf = keyOf;
    this.#remoteEnd = remoteEnd;
  }

  /** True where the rank of this process is connected to a peer. */
  isConnected(comm: CommInfo, peer: number): boolean {
    return hasPeer(this.#connected.get(comm), peer);
  }

  /** `JobSession.barrier` for a call; `undefined` where it needs no new connection and no other barrier. */
  barrier(call: ConnectingCall): PeerBarrier | undefined {
    const { comm, needs } = call;
    const connected = this.#connected.get(comm);
    const added: NewPeers = {
      all: needs.all && connected?.all !== true,
      peers: new Set([...needs.peers].filter((peer) => !hasPeer(connected, peer))),
    };
    const barriers = this.#barriers(call, added);
    if (barriers.length === 0) return undefined;
    return (cancelled) => this.#connect(call, added, barriers, cancelled);
  }

  #barriers(
    { comm, rank, barriers = [] }: ConnectingCall,
    { all, peers }: NewPeers,
  ): readonly Barrier[] {
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
    { comm, counters, number, connect }: ConnectingCall,
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
      const { lost } = this.#membership;
      if (isExplained(error, this.#remoteEnd(comm), lost)) {
        await pause(longestTimerMs, signal);
        return false;
      }
      throw peerGoneError(comm, error, lost);
    }
  }
}

function hasPeer(connected: ConnectedPeers | undefined, peer: number): boolean {
  return connected !== undefined && (connected.all || connected.peers.has(peer));
}
