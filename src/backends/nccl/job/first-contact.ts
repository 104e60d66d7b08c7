/**
 * The ranks that a call connects for the first time come together in the job's store, and are connected, before NCCL is given
 * the call.
 *
 * NCCL connects two ranks in the first message between them, and registers symmetric memory in the first call that uses it.
 * It waits there for the other ranks on the thread that makes the call: on JavaScript's no deadline, no signal and no loss
 * would be heard meanwhile. So a byte goes between them first, and memory is registered, on other threads. That they have
 * been there before keeps a missing rank from holding the others in NCCL, where only an abort ends the wait.
 */
import type {
  CallSet,
  CommError,
  CommInfo,
  PeerBarrier,
  RankCall,
  RemoteTransfer,
} from "../../../api/index.ts";
import type { NcclCommunicator } from "../calls/communicator.ts";
import { connectsAll, peersOf } from "../calls/nccl-steps.ts";
import { isDisposed } from "../calls/windows.ts";
import { keepAlive, longestTimerMs, settlesWithin } from "../common/async.ts";
import type { Barrier, Membership } from "../rendezvous/index.ts";
import type { ConnectEnd } from "../result/nccl.ts";
import { peerLostError } from "./cross-check.ts";

/** The ranks that this process's rank of a communicator has met: all, or some, by rank. They are connected both ways. */
interface ConnectedPeers {
  all: boolean;
  readonly peers: Set<number>;
}

/** A connection: its threads, its ranks, and the calls that may use memory that is not registered. */
interface FirstContact {
  readonly comm: NcclCommunicator;
  /** The rank of this process in the communicator. */
  readonly rank: number;
  readonly fresh: ConnectedPeers;
  readonly rows: readonly RankCall[];
  /** Of the collective call that it is part of. */
  readonly number?: number;
}

/** The first uses of one process's connections. */
export class FirstContacts {
  readonly #membership: Pick<Membership, "awaitBarriers">;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #connected = new WeakMap<CommInfo, ConnectedPeers>();

  /** `keyOf` names a communicator alike in every process. */
  constructor(membership: Pick<Membership, "awaitBarriers">, keyOf: (comm: CommInfo) => string) {
    this.#membership = membership;
    this.#keyOf = keyOf;
  }

  /** `Session.peerBarrier`: nothing on a communicator that is over. A rank that waits counts as having made the call. */
  forCall(
    comm: NcclCommunicator | undefined,
    { collective, calls, number }: CallSet,
  ): PeerBarrier | undefined {
    // A recording has met all peers of its replays.
    if (comm === undefined || comm.size === 1 || collective === "replay") return undefined;
    const { info, size, windows } = comm;
    const rows = calls.flatMap((call) => call.recorded?.calls ?? call);
    const all = rows.some(connectsAll);
    const peers = all ? [] : rows.flatMap((call) => [...peersOf(call, size)]);
    const lacksWindows = rows.some((call) => windows.needsRegistration(call));
    if (!all && peers.length === 0 && !lacksWindows) return undefined;
    // It is refused when it is handed over; the others are not to wait in NCCL for memory that is gone.
    if (lacksWindows && rows.some(isDisposed)) return undefined;
    const { rank } = calls[0] as RankCall;
    const fresh = this.#unconnected(info, all, peers);
    const barriers = this.#barriers(info, rank, fresh);
    if (lacksWindows) {
      barriers.push({ key: `windows ${this.#keyOf(info)} ${number}`, ranks: info.ranks });
    }
    if (barriers.length === 0) return undefined;
    comm.countSubmitted(number);
    const first: FirstContact = { comm, rank, fresh, rows, number };
    return (givenUp) => this.#connect(first, barriers, givenUp);
  }

  /** `Session.exchangeBarrier`. */
  forMessages(
    comm: NcclCommunicator | undefined,
    halves: readonly RemoteTransfer[],
  ): PeerBarrier | undefined {
    if (comm === undefined) return undefined;
    const { info } = comm;
    const met = this.#connected.get(info);
    const isFirst = ({ call, peer }: RemoteTransfer): boolean =>
      // One without elements is not sent.
      call.count > 0 && peer !== call.rank && !isConnected(met, peer);
    const first = halves.filter(isFirst);
    const [some] = first;
    if (some === undefined) return undefined;
    comm.counters?.awaitPeers(halves);
    const { rank } = some.call;
    const fresh: ConnectedPeers = { all: false, peers: new Set(first.map(({ peer }) => peer)) };
    const use: FirstContact = { comm, rank, fresh, rows: [] };
    const barriers = this.#barriers(info, rank, fresh);
    return (givenUp) => this.#connect(use, barriers, givenUp);
  }

  /** Ranks that this rank has not met before. */
  #unconnected(comm: CommInfo, all: boolean, peers: readonly number[]): ConnectedPeers {
    const met = this.#connected.get(comm);
    const isNew = all && met?.all !== true;
    return { all: isNew, peers: new Set(peers.filter((peer) => !isConnected(met, peer))) };
  }

  #barriers(comm: CommInfo, rank: number, { all, peers }: ConnectedPeers): Barrier[] {
    const { ranks } = comm;
    const key = this.#keyOf(comm);
    const barriers = Array.from(peers, (peer): Barrier => {
      const [low, high] = [Math.min(rank, peer), Math.max(rank, peer)];
      // Without direction: the first sender may be the one that makes the other's receive only afterwards.
      return {
        key: `pair ${key} ${low}-${high}`,
        ranks: [ranks[low] as number, ranks[high] as number],
      };
    });
    return all ? [...barriers, { key: `all ${key}`, ranks }] : barriers;
  }

  async #connect(
    { comm, rank, fresh, rows, number }: FirstContact,
    barriers: readonly Barrier[],
    givenUp: AbortSignal,
  ): Promise<boolean> {
    const { info, counters } = comm;
    if (counters !== undefined) counters.atBarrier = number;
    if (!(await this.#awaitBarriers(info, barriers, givenUp))) return false;
    if (counters !== undefined) counters.atBarrier = undefined;
    if (!(await connectAndRegister(comm, { ...fresh, rank, rows }, givenUp))) return false;
    const met = this.#connected.get(info) ?? { all: false, peers: new Set() };
    this.#connected.set(info, met);
    met.all ||= fresh.all;
    for (const peer of fresh.peers) met.peers.add(peer);
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
      // Without the store no rank can be queried: NCCL gets the call as it is.
      if ((error as Partial<CommError>).code === "ERR_COMM_RENDEZVOUS") return true;
      throw peerLostError(comm, error);
    }
  }
}

function isConnected(met: ConnectedPeers | undefined, peer: number): boolean {
  return met !== undefined && (met.all || met.peers.has(peer));
}

/** Longest time in which ranks that have met are connected when one of them has given up: the others are at it too. */
const graceMs = 1000;

/** A first use. */
interface ConnectRequest {
  /** The rank of this process. */
  readonly rank: number;
  /** True where it connects all ranks; else this rank with these. */
  readonly all: boolean;
  readonly peers: ReadonlySet<number>;
  /** Calls that may use symmetric memory that is not registered. */
  readonly rows: readonly RankCall[];
}

/** Connects ranks and registers memory. True when that is done; false when it was given up, and is left alone. */
function connectAndRegister(
  comm: NcclCommunicator,
  first: ConnectRequest,
  givenUp: AbortSignal,
): Promise<boolean> {
  let isLeft = false;
  const isOver = (): boolean => isLeft || comm.isOver;
  const work = comm
    .connect(endsOf(comm.size, first))
    .then(() => comm.windows.registerInBackground(first.rows, isOver));
  const inTime = async (): Promise<boolean> => {
    await untilFired(work, givenUp);
    isLeft = givenUp.aborted && !(await settlesWithin(graceMs, work));
    return !isLeft && work;
  };
  const leftOpen = async (error: unknown): Promise<boolean> => {
    const over = comm.rejectAtEnd(error);
    return (await settlesWithin(longestTimerMs, over, givenUp)) && over;
  };
  return keepAlive(inTime().catch(leftOpen));
}

/** This rank's ends of a byte each way between it and each of its new peers. */
function endsOf(size: number, { rank, all, peers }: ConnectRequest): ConnectEnd[] {
  const met = all ? Array.from({ length: size }, (_, each) => each) : [...peers];
  return met
    .filter((peer) => peer !== rank)
    .flatMap((peer): ConnectEnd[] => [
      { direction: "send", peer },
      { direction: "recv", peer },
    ]);
}

/** Resolves when the work is done, or the signal has fired. */
async function untilFired(work: Promise<boolean>, signal: AbortSignal): Promise<void> {
  const over = new AbortController();
  const fired = new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { signal: over.signal });
  });
  try {
    await Promise.race([work, fired]);
  } finally {
    over.abort();
  }
}
