/**
 * First contacts: before NCCL gets a call that connects ranks for the first time, these wait at a barrier of the job's store.
 *
 * NCCL connects two ranks in the first message between them, and registers symmetric memory in the first call that uses it.
 * It blocks the calling thread until the other ranks do the same: on JavaScript's thread no deadline, signal or loss would be
 * noticed meanwhile. So other threads exchange a byte first, and register memory. The barrier before keeps a missing rank from
 * blocking the others in NCCL, where only an abort ends the wait.
 */
import type {
  CallSet,
  CommInfo,
  PeerBarrier,
  RankCall,
  RemoteTransfer,
} from "../../../api/backend-entry.ts";
import type { CommError } from "../../../api/index.ts";
import type { NcclCommunicator } from "../calls/communicator.ts";
import { connectsAll, peersOf } from "../calls/nccl-steps.ts";
import { isDisposed } from "../calls/windows.ts";
import { keepAlive, longestTimerMs, settlesWithin } from "../common/async.ts";
import type { Barrier, Membership } from "../rendezvous/index.ts";
import type { ConnectEnd } from "../result/nccl.ts";
import { peerLostError } from "./cross-check.ts";

/** The ranks with connections to and from the rank of this process: all, or some. */
interface ConnectedPeers {
  all: boolean;
  readonly peers: Set<number>;
}

/** New connections of a communicator, and the calls that may use memory without a window. */
interface FirstContact {
  readonly comm: NcclCommunicator;
  /** The rank of this process in the communicator. */
  readonly rank: number;
  readonly added: ConnectedPeers;
  readonly rows: readonly RankCall[];
  /** The number of the collective call; left out for messages. */
  readonly number?: number;
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

  /**
   * `JobSession.barrier` for a call; `undefined` for an ended communicator. A rank at the barrier counts as having submitted
   * the call.
   */
  forCall(
    comm: NcclCommunicator | undefined,
    { collective, calls, number }: CallSet,
  ): PeerBarrier | undefined {
    // The recording has connected all peers of its replays.
    if (comm === undefined || comm.size === 1 || collective === "replay") return undefined;
    const { info, size, windows } = comm;
    const rows = calls.flatMap((call) => call.recorded?.calls ?? call);
    const all = rows.some(connectsAll);
    const peers = all ? [] : rows.flatMap((call) => [...peersOf(call, size)]);
    const lacksWindows = rows.some((call) => windows.needsRegistration(call));
    if (!all && peers.length === 0 && !lacksWindows) return undefined;
    // The submission refuses the call; the others must not wait in NCCL for memory that is gone.
    if (lacksWindows && rows.some(isDisposed)) return undefined;
    const { rank } = calls[0] as RankCall;
    const added = this.#unconnected(info, all, peers);
    const barriers = this.#barriers(info, rank, added);
    if (lacksWindows) {
      barriers.push({ key: `windows ${this.#keyOf(info)} ${number}`, ranks: info.ranks });
    }
    if (barriers.length === 0) return undefined;
    if (comm.counters !== undefined) comm.counters.submitted = number + 1;
    const first: FirstContact = { comm, rank, added, rows, number };
    return (cancelled) => this.#connect(first, barriers, cancelled);
  }

  /** `JobSession.barrier` for messages. */
  forMessages(
    comm: NcclCommunicator | undefined,
    halves: readonly RemoteTransfer[],
  ): PeerBarrier | undefined {
    if (comm === undefined) return undefined;
    const { info } = comm;
    const connected = this.#connected.get(info);
    const isFirst = ({ call, peer }: RemoteTransfer): boolean =>
      // A message without elements is not sent.
      call.count > 0 && peer !== call.rank && !isConnected(connected, peer);
    const first = halves.filter(isFirst);
    const [some] = first;
    if (some === undefined) return undefined;
    comm.counters?.awaitPeers(halves);
    const { rank } = some.call;
    const added: ConnectedPeers = { all: false, peers: new Set(first.map(({ peer }) => peer)) };
    const use: FirstContact = { comm, rank, added, rows: [] };
    const barriers = this.#barriers(info, rank, added);
    return (cancelled) => this.#connect(use, barriers, cancelled);
  }

  /** Ranks without a connection to this rank. */
  #unconnected(comm: CommInfo, all: boolean, peers: readonly number[]): ConnectedPeers {
    const connected = this.#connected.get(comm);
    const isNew = all && connected?.all !== true;
    return { all: isNew, peers: new Set(peers.filter((peer) => !isConnected(connected, peer))) };
  }

  #barriers(comm: CommInfo, rank: number, { all, peers }: ConnectedPeers): Barrier[] {
    const { ranks } = comm;
    const key = this.#keyOf(comm);
    const barriers = Array.from(peers, (peer): Barrier => {
      const [low, high] = [Math.min(rank, peer), Math.max(rank, peer)];
      // The key has no direction: the sender may post its own receive only afterwards.
      return {
        key: `pair ${key} ${low}-${high}`,
        ranks: [ranks[low] as number, ranks[high] as number],
      };
    });
    return all ? [...barriers, { key: `all ${key}`, ranks }] : barriers;
  }

  async #connect(
    { comm, rank, added, rows, number }: FirstContact,
    barriers: readonly Barrier[],
    cancelled: AbortSignal,
  ): Promise<boolean> {
    const { info, counters } = comm;
    if (counters !== undefined) counters.atBarrier = number;
    if (!(await this.#awaitBarriers(info, barriers, cancelled))) return false;
    if (counters !== undefined) counters.atBarrier = undefined;
    if (!(await connectAndRegister(comm, { ...added, rank, rows }, cancelled))) return false;
    const connected = this.#connected.get(info) ?? { all: false, peers: new Set() };
    this.#connected.set(info, connected);
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
      // Without the store there is no barrier: NCCL gets the call as it is.
      if ((error as Partial<CommError>).code === "ERR_COMM_RENDEZVOUS") return true;
      throw peerLostError(comm, error);
    }
  }
}

function isConnected(connected: ConnectedPeers | undefined, peer: number): boolean {
  return connected !== undefined && (connected.all || connected.peers.has(peer));
}

/** Longest time to complete connections after a cancellation: the other ranks are connecting too. */
const graceMs = 1000;

/** Connections to make and memory to register. */
interface ConnectRequest {
  /** The rank of this process. */
  readonly rank: number;
  /** True to connect all ranks; else this rank with `peers`. */
  readonly all: boolean;
  readonly peers: ReadonlySet<number>;
  /** Calls that may use symmetric memory without a window. */
  readonly rows: readonly RankCall[];
}

/** Connects ranks and registers memory. True when done; false when cancelled, with the work left to its threads. */
function connectAndRegister(
  comm: NcclCommunicator,
  request: ConnectRequest,
  cancelled: AbortSignal,
): Promise<boolean> {
  let isAbandoned = false;
  const isOver = (): boolean => isAbandoned || comm.isOver;
  const work = comm
    .connect(endsOf(comm.size, request))
    .then(() => comm.windows.registerInBackground(request.rows, isOver));
  const inTime = async (): Promise<boolean> => {
    await untilFired(work, cancelled);
    isAbandoned = cancelled.aborted && !(await settlesWithin(graceMs, work));
    return !isAbandoned && work;
  };
  const untilOver = async (error: unknown): Promise<boolean> => {
    const over = comm.rejectAtEnd(error);
    return (await settlesWithin(longestTimerMs, over, cancelled)) && over;
  };
  return keepAlive(inTime().catch(untilOver));
}

/** The ends of one byte in each direction between this rank and each new peer. */
function endsOf(size: number, { rank, all, peers }: ConnectRequest): ConnectEnd[] {
  const connected = all ? Array.from({ length: size }, (_, each) => each) : [...peers];
  return connected
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
