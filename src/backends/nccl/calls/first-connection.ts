/**
 * First connections over NCCL: it connects two ranks in the first message between them, and registers symmetric memory in the
 * first call that uses it.
 *
 * It blocks the calling thread until the other ranks do the same: on JavaScript's thread no deadline, signal or loss would be
 * noticed meanwhile. So other threads exchange a byte first, and register memory, behind the barrier of `FirstConnections`.
 */
import type { CallSet, PeerBarrier, RankCall, RemoteTransfer } from "../../../api/backend-entry.ts";
import { longestTimerMs } from "../../../api/ledger/turns.ts";
import { keepAlive, settlesWithin } from "../../../job/async.ts";
import type { FirstConnections, NewPeers } from "../../../job/before-calls.ts";
import type { ConnectEnd } from "../result/nccl.ts";
import type { NcclCommunicator } from "./communicator.ts";
import { connectsAll, peersOf } from "./nccl-steps.ts";
import { isDisposed } from "./windows.ts";

/** `JobSession.barrier` for a call; `undefined` for an ended communicator. */
export function callBarrier(
  connections: FirstConnections,
  comm: NcclCommunicator | undefined,
  { collective, calls, number }: CallSet,
): PeerBarrier | undefined {
  // The recording has connected all peers of its replays.
  if (comm === undefined || comm.size === 1 || collective === "replay") return undefined;
  const { info, size, windows, counters } = comm;
  const rows = calls.flatMap((call) => call.recorded?.calls ?? call);
  const all = rows.some(connectsAll);
  const recorded = calls.flatMap(
    (call) => call.recorded?.messages.flatMap(({ ends }) => ends) ?? [],
  );
  const peers = new Set(all ? [] : rows.flatMap((call) => [...peersOf(call, size)]));
  for (const { call, peer } of recorded) if (call.count > 0) peers.add(peer);
  const { rank } = calls[0] as RankCall;
  peers.delete(rank);
  const lacksWindows = rows.some((call) => windows.needsRegistration(call));
  // The submission refuses the call; the others must not wait in NCCL for memory that is gone.
  if (lacksWindows && rows.some(isDisposed)) return undefined;
  return connections.barrier({
    ...{ comm: info, rank, needs: { all, peers }, number, counters },
    barriers: lacksWindows ? [`windows ${number}`] : [],
    connect: (added, cancelled) => connectAndRegister(comm, { ...added, rank, rows }, cancelled),
  });
}

/** `JobSession.barrier` for messages. */
export function messagesBarrier(
  connections: FirstConnections,
  comm: NcclCommunicator | undefined,
  remote: readonly RemoteTransfer[],
): PeerBarrier | undefined {
  if (comm === undefined) return undefined;
  const { info, counters } = comm;
  const isFirst = ({ call, peer }: RemoteTransfer): boolean =>
    // A message without elements is not sent.
    call.count > 0 && peer !== call.rank && !connections.isConnected(info, peer);
  const first = remote.filter(isFirst);
  const [some] = first;
  if (some === undefined) return undefined;
  const { rank } = some.call;
  return connections.barrier({
    ...{ comm: info, rank, counters },
    needs: { all: false, peers: new Set(first.map(({ peer }) => peer)) },
    connect: (added, cancelled) =>
      connectAndRegister(comm, { ...added, rank, rows: [] }, cancelled),
  });
}

/** Longest time to complete connections after a cancellation: the other ranks are connecting too. */
const graceMs = 1000;

/** Connections of the rank of this process to make, and memory to register. */
interface ConnectRequest extends NewPeers {
  readonly rank: number;
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
    await settlesWithin(longestTimerMs, work, cancelled);
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
function endsOf(size: number, { rank, all, peers }: Omit<ConnectRequest, "rows">): ConnectEnd[] {
  const connected = all ? Array.from({ length: size }, (_, each) => each) : [...peers];
  return connected
    .filter((peer) => peer !== rank)
    .flatMap((peer): ConnectEnd[] => [
      { direction: "send", peer },
      { direction: "recv", peer },
    ]);
}
