/** Puts calls, messages and recordings on the streams of a session's ranks, with copies of the arrays that they were given. */
import type {
  CallSet,
  Completion,
  Exchange,
  RankCall,
  RemoteTransfer,
  Transfer,
} from "../../../api/backend-entry.ts";
import type { FinishCopyBack, HostArrays } from "../device/host-arrays.ts";
import type { LocalMember, LocalRank } from "../device/local-rank.ts";
import { dataTypes } from "../device/nccl-types.ts";
import type { Progress } from "../device/progress.ts";
import { copySingleRank, isSingleRankCopy } from "../device/single-rank.ts";
import type { NcclCalls } from "../result/nccl.ts";
import type { NcclCommunicator } from "./communicator.ts";
import { CapturedGraph } from "./graphs.ts";
import { type NcclCallArgs, stepsOf } from "./nccl-steps.ts";
import { PreparedGraphLaunch, PreparedNcclCall, type RepeatHost } from "./prepared-call.ts";

/** Gives a call device memory in place of its arrays. */
type WithDeviceMemory = (call: RankCall) => RankCall;

/** The parts that it submits with. */
interface SubmitterParts extends RepeatHost {
  readonly libraries: { readonly nccl: NcclCalls };
  readonly progress: Progress;
}

/** Submits for one session, and settles waits when the work is done, and copies with it. */
export class Submitter {
  readonly #parts: SubmitterParts;
  readonly #nccl: NcclCalls;
  readonly #progress: Progress;
  /** Left out where calls take no arrays. */
  readonly #arrays: HostArrays | undefined;

  constructor(parts: SubmitterParts, arrays: HostArrays | undefined) {
    this.#parts = parts;
    this.#nccl = parts.libraries.nccl;
    this.#progress = parts.progress;
    this.#arrays = arrays;
  }

  /** One call of all ranks. */
  call(comm: NcclCommunicator, set: CallSet, waiting: Completion): void {
    const graph = set.calls[0]?.graph;
    const launched = graph instanceof CapturedGraph;
    let finish: FinishCopyBack | undefined;
    try {
      finish = launched ? graph.launch() : this.#submit(comm, set);
    } catch (error) {
      // It was not made, also where it counts since others waited for it.
      comm.countSubmitted(set.number - 1);
      comm.deferRemoteError(error, waiting);
      comm.countSubmitted(set.number);
      return;
    }
    if (launched && finish === undefined && set.cache !== undefined) {
      set.cache.repeat = new PreparedGraphLaunch(comm, this.#parts, graph);
    }
    comm.countSubmitted(set.number);
    if (!launched) this.#parts.readPlans?.(comm.info.name);
    this.#progress.whenDone(comm.devices, comm, afterCopyBack(waiting, finish));
  }

  #submit(comm: NcclCommunicator, { calls, cache }: CallSet): FinishCopyBack | undefined {
    comm.windows.register(calls);
    return this.#withStagedArrays(comm, calls, (move) => {
      const prepared = this.#makeCalls(comm, move === undefined ? calls : calls.map(move));
      if (move === undefined && cache !== undefined) cache.repeat = prepared;
    });
  }

  /** Messages of ranks of this process. */
  messages(comm: NcclCommunicator, { transfers, remote }: Exchange, waiting: Completion): void {
    const ends = messageEnds(transfers, remote);
    let finish: FinishCopyBack | undefined;
    try {
      finish = this.#exchange(comm, ends);
    } catch (error) {
      comm.counters?.messagesFailed(remote);
      comm.deferRemoteError(error, waiting);
      comm.counters?.messagesSubmitted(remote);
      return;
    }
    comm.counters?.messagesSubmitted(remote);
    const devices = ends.map(
      ({ call }) => (comm.members.get(call.rank) as LocalMember).local.device,
    );
    this.#progress.whenDone(devices, comm, afterCopyBack(waiting, finish));
  }

  #exchange(comm: NcclCommunicator, ends: readonly MessageEnd[]): FinishCopyBack | undefined {
    const calls = ends.map(({ call }) => call);
    return this.#withStagedArrays(comm, calls, (move = (call) => call) => {
      const moved = ends.map((end) => ({ ...end, call: move(end.call) }));
      submitMessages(this.#nccl, comm, moved);
    });
  }

  /** Records calls of all ranks, one after another. */
  record(comm: NcclCommunicator, rows: readonly (readonly RankCall[])[]): CapturedGraph {
    for (const row of rows) comm.windows.register(row);
    const localOf = localsOf(comm);
    const copied = this.#arrays?.stage(rows.flat(), localOf);
    const move: WithDeviceMemory = (call) =>
      copied?.withDeviceMemory(call, localOf(call.rank)) ?? call;
    const issue = (): void => {
      for (const row of rows) this.#makeCalls(comm, row.map(move));
    };
    const graph = CapturedGraph.capture(comm.devices, issue, copied);
    this.#parts.readPlans?.(comm.info.name);
    return graph;
  }

  /**
   * Makes the NCCL calls of one call of all ranks. Operators that were made for it end also when it throws. The result makes
   * them again with the same arguments; `undefined` where there are such operators, or no NCCL calls.
   */
  #makeCalls(comm: NcclCommunicator, calls: readonly RankCall[]): PreparedNcclCall | undefined {
    const first = calls[0] as RankCall;
    if (isSingleRankCopy(first, comm.size)) {
      copySingleRank(first, (comm.members.get(0) as LocalMember).local);
      return undefined;
    }
    const args: NcclCallArgs[] = [];
    const endOps = (): void => {
      for (const { call, op } of args) comm.destroyOp(call, op);
    };
    let prepared: PreparedNcclCall;
    try {
      for (const call of calls) args.push(comm.callArgs(call));
      const steps = stepsOf(first, comm.size);
      prepared = new PreparedNcclCall(this.#nccl, comm, this.#parts, steps, args);
      prepared.make();
    } catch (error) {
      // Operators that cannot be ended either must not hide why the call failed.
      try {
        endOps();
      } catch {}
      throw error;
    }
    endOps();
    return calls.some(({ op }) => typeof op === "object") ? undefined : prepared;
  }

  #withStagedArrays(
    comm: NcclCommunicator,
    calls: readonly RankCall[],
    submit: (move?: WithDeviceMemory) => void,
  ): FinishCopyBack | undefined {
    const localOf = localsOf(comm);
    const copied = this.#arrays?.stage(calls, localOf);
    if (copied === undefined) {
      submit();
      return undefined;
    }
    try {
      copied.copyIn();
      submit((call) => copied.withDeviceMemory(call, localOf(call.rank)));
      const finish = copied.copyBack();
      return (failed) => {
        copied.release();
        finish(failed);
      };
    } catch (error) {
      copied.release();
      throw error;
    }
  }
}

/** Settles `waiting` when copies that follow the work have ended as well. */
function afterCopyBack(waiting: Completion, finish: FinishCopyBack | undefined): Completion {
  if (finish === undefined) return waiting;
  return {
    acceptsMore: false,
    settled(error) {
      try {
        finish(error !== undefined);
      } catch (fault) {
        waiting.settled(error ?? fault);
        return;
      }
      waiting.settled(error);
    },
  };
}

function localsOf({ members }: NcclCommunicator): (rank: number) => LocalRank {
  return (rank) => (members.get(rank) as LocalMember).local;
}

/** One end of a message that is to be handed over. */
type MessageEnd = Omit<RemoteTransfer, "number">;

/** Both ends of messages, and ends with their other one elsewhere. */
function messageEnds(
  transfers: readonly Transfer[],
  remote: readonly RemoteTransfer[],
): readonly MessageEnd[] {
  return [
    ...transfers.flatMap(({ send, recv }): MessageEnd[] => [
      { direction: "send", peer: recv.rank, call: send },
      { direction: "recv", peer: send.rank, call: recv },
    ]),
    ...remote,
  ];
}

/** Makes the NCCL calls of messages, as one group. */
function submitMessages(
  nccl: NcclCalls,
  comm: NcclCommunicator,
  ends: readonly MessageEnd[],
): void {
  nccl.group(() => {
    for (const { direction, peer, call } of ends) {
      const { handle, local } = comm.members.get(call.rank) as LocalMember;
      const { count, dtype } = call;
      const buffer = call[direction];
      if (count === 0 || dtype === undefined || buffer === undefined) continue;
      nccl[direction](buffer.ptr, count, dataTypes[dtype], peer, handle, local.device.stream);
    }
  });
}
