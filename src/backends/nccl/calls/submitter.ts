/**
 * Puts calls, messages and recordings on the streams of a session's ranks, with copies of the arrays that they were given. A call
 * that is made again skips checks of counts, offsets and types: `RepeatedNcclCall` has its native calls with all arguments.
 */
import {
  type CallSet,
  type Completion,
  type Exchange,
  type RankCall,
  type RecordedWork,
  type RemoteTransfer,
  type RepeatedCall,
  symmetricPlace,
  type Transfer,
} from "../../../api/backend-entry.ts";
import { bytesOf } from "../../../api/index.ts";
import type { FinishCopyBack, HostArrays } from "../device/host-arrays.ts";
import type { LocalStream } from "../device/local-stream.ts";
import { dataTypes } from "../device/nccl-types.ts";
import type { DataCall, NcclCalls } from "../result/nccl.ts";
import type { CallSequence } from "../sys/call-list.ts";
import { abortedError, type NcclCommunicator } from "./communicator.ts";
import { CapturedGraph } from "./graphs.ts";
import { groupsOf, isSingleRankCopy, type NcclCallArgs } from "./nccl-steps.ts";

/** Gives a call device memory in place of its arrays. */
type WithDeviceMemory = (call: RankCall) => RankCall;

/** Records NCCL's plans of a communicator since the previous call. */
type ReadPlans = (comm: string) => void;

/** Submits for one session, and settles completions when the work and its copies are done. */
export class Submitter {
  readonly #nccl: NcclCalls;
  readonly #arrays: HostArrays;
  readonly #readPlans: ReadPlans | undefined;

  constructor(nccl: NcclCalls, arrays: HostArrays, readPlans: ReadPlans | undefined) {
    this.#nccl = nccl;
    this.#arrays = arrays;
    this.#readPlans = readPlans;
  }

  /** One call of all ranks. */
  call(comm: NcclCommunicator, set: CallSet, completion: Completion): void {
    const graph = set.calls[0]?.graph;
    const launched = graph instanceof CapturedGraph;
    let finish: FinishCopyBack | undefined;
    try {
      comm.followMemory(set.calls);
      finish = launched ? graph.launch(comm.outOfStep) : this.#submit(comm, set);
    } catch (error) {
      // The call may count as submitted since it waited at a barrier: a failed one does not count. One that is deferred does.
      comm.countSubmitted(set.number - 1);
      comm.deferRemoteError(error, completion);
      comm.countSubmitted(set.number);
      return;
    }
    if (launched && finish === undefined && set.cache !== undefined) {
      const launch = { run: () => void graph.launch(comm.outOfStep) };
      set.cache.repeat = new RepeatedNcclCall(comm, this.#readPlans, set.calls, launch);
    }
    comm.countSubmitted(set.number);
    if (!launched) this.#readPlans?.(comm.info.name);
    comm.progress.whenDone(comm.devices, comm, afterCopyBack(completion, finish));
  }

  #submit(comm: NcclCommunicator, { calls, cache }: CallSet): FinishCopyBack | undefined {
    registerWindows(comm, calls);
    return this.#withStagedArrays(comm, calls, (onDevice) => {
      const prepared = this.#makeCalls(comm, onDevice === undefined ? calls : calls.map(onDevice));
      if (onDevice === undefined && cache !== undefined) cache.repeat = prepared;
    });
  }

  /** Messages of ranks of this process. */
  messages(comm: NcclCommunicator, exchange: Exchange, completion: Completion): void {
    const { transfers, remote } = exchange;
    const ends = messageEnds(transfers, remote);
    const calls = ends.map(({ call }) => call);
    let finish: FinishCopyBack | undefined;
    try {
      comm.followMemory(calls);
      finish = this.#exchange(comm, ends, calls, exchange);
    } catch (error) {
      comm.counters?.messagesFailed(remote);
      comm.deferRemoteError(error, completion);
      comm.counters?.messagesSubmitted(remote);
      return;
    }
    comm.counters?.messagesSubmitted(remote);
    const devices = ends.map(({ call }) => comm.member(call.rank).stream.device);
    comm.progress.whenDone(devices, comm, afterCopyBack(completion, finish));
  }

  #exchange(
    comm: NcclCommunicator,
    ends: readonly MessageEnd[],
    calls: readonly RankCall[],
    { cache, remote }: Exchange,
  ): FinishCopyBack | undefined {
    return this.#withStagedArrays(comm, calls, (onDevice) => {
      const sequence = this.#messageCalls(comm, ends, onDevice);
      sequence.run();
      if (onDevice !== undefined || cache === undefined) return;
      const pairs = comm.counters?.pairsOf(remote);
      cache.repeat = new RepeatedNcclCall(comm, undefined, calls, sequence, pairs);
    });
  }

  /** The NCCL calls of messages, as one group. */
  #messageCalls(
    comm: NcclCommunicator,
    ends: readonly MessageEnd[],
    onDevice: WithDeviceMemory = (call) => call,
  ): CallSequence {
    const calls = ends.flatMap(({ direction, peer, call }): DataCall[] => {
      const { handle, stream } = comm.member(call.rank);
      const { count, dtype, [direction]: buffer } = onDevice(call);
      if (count === 0 || dtype === undefined || buffer === undefined) return [];
      const { device } = stream;
      const type = dataTypes[dtype];
      return [{ name: direction, args: [buffer.ptr, count, type, peer, handle, device.stream] }];
    });
    return this.#nccl.sequence([calls]);
  }

  /** Records calls of all ranks, and messages, one after another. */
  record(comm: NcclCommunicator, recorded: readonly RecordedWork[]): CapturedGraph {
    const rows = recorded.map((work) => {
      if ("ends" in work) return work.ends.map(({ call }) => call);
      registerWindows(comm, work.calls);
      return work.calls;
    });
    const copied = this.#arrays.stage(rows.flat(), (rank) => comm.member(rank));
    const onDevice: WithDeviceMemory = (call) =>
      copied?.withDeviceMemory(call, comm.member(call.rank)) ?? call;
    const issue = (): void => {
      for (const work of recorded) {
        if ("ends" in work) this.#messageCalls(comm, work.ends, onDevice).run();
        else this.#makeCalls(comm, work.calls.map(onDevice));
      }
    };
    const graph = CapturedGraph.capture(comm.devices, issue, copied);
    this.#readPlans?.(comm.info.name);
    return graph;
  }

  /**
   * Makes the NCCL calls of one call of all ranks. Operators that were made for it end also when it throws. The result makes
   * them again with the same arguments; `undefined` where there are such operators, or no NCCL calls.
   */
  #makeCalls(comm: NcclCommunicator, calls: readonly RankCall[]): RepeatedNcclCall | undefined {
    const nccl = this.#nccl;
    const first = calls[0] as RankCall;
    if (isSingleRankCopy(first, comm.size)) {
      copySingleRank(first, comm.member(0).stream);
      return undefined;
    }
    const args: NcclCallArgs[] = [];
    const endOps = (): void => {
      for (const { call, op } of args) comm.destroyOp(call, op);
    };
    let sequence: CallSequence;
    try {
      for (const call of calls) args.push(comm.callArgs(call));
      const groups = groupsOf(args, nccl.hasAllToAll);
      sequence = nccl.sequence(groups);
      if (groups.length > 1) sequence = counting(comm, sequence, groups.length - 1);
      sequence.run();
    } catch (error) {
      // Operators that cannot be ended either must not hide why the call failed.
      try {
        endOps();
      } catch {}
      throw error;
    }
    endOps();
    if (calls.some(({ op }) => typeof op === "object")) return undefined;
    return new RepeatedNcclCall(comm, this.#readPlans, calls, sequence);
  }

  #withStagedArrays(
    comm: NcclCommunicator,
    calls: readonly RankCall[],
    submit: (onDevice?: WithDeviceMemory) => void,
  ): FinishCopyBack | undefined {
    const copied = this.#arrays.stage(calls, (rank) => comm.member(rank));
    if (copied === undefined) {
      submit();
      return undefined;
    }
    try {
      copied.copyIn();
      submit((call) => copied.withDeviceMemory(call, comm.member(call.rank)));
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

/** A call of all ranks, or messages, with all arguments, submitted again as further calls of its communicator. */
class RepeatedNcclCall implements RepeatedCall {
  readonly #comm: NcclCommunicator;
  readonly #readPlans: ReadPlans | undefined;
  readonly #calls: CallSequence;
  /** Of messages: the pairs of their ends in other processes. */
  readonly #pairs: readonly number[] | undefined;

  constructor(
    comm: NcclCommunicator,
    readPlans: ReadPlans | undefined,
    calls: readonly RankCall[],
    sequence: CallSequence,
    pairs?: readonly number[],
  ) {
    this.#comm = comm;
    this.#readPlans = readPlans;
    this.#calls = comm.info.ownStream === true ? followingMemory(comm, calls, sequence) : sequence;
    this.#pairs = pairs;
  }

  /** Short enough to be inlined. */
  submit(number: number, completion: Completion): void {
    if (!completion.acceptsMore) {
      this.#submitFirst(number, completion);
      return;
    }
    try {
      this.#calls.run();
    } catch (error) {
      this.#comm.deferAppended(error, completion);
    }
    this.#count(number);
    this.#comm.progress.countLaunch();
  }

  /** Submits the first call of a completion. */
  #submitFirst(number: number, completion: Completion): void {
    const comm = this.#comm;
    if (comm.isOver) throw abortedError(comm.info, comm.abortReason);
    try {
      this.#calls.run();
    } catch (error) {
      comm.deferRemoteError(error, completion);
      this.#count(number);
      return;
    }
    this.#count(number);
    comm.progress.whenDone(comm.devices, comm, completion);
    if (this.#readPlans === undefined) return;
    // Each call's plan is logged.
    this.#readPlans(comm.info.name);
    completion.acceptsMore = false;
  }

  #count(number: number): void {
    const { counters } = this.#comm;
    if (counters === undefined) return;
    if (this.#pairs === undefined) counters.submitted = number + 1;
    else counters.messagesRepeated(this.#pairs);
  }
}

/** Calls on streams of their own, which first wait for the memory operations on their buffers. */
function followingMemory(
  comm: NcclCommunicator,
  calls: readonly RankCall[],
  sequence: CallSequence,
): CallSequence {
  return {
    run: () => {
      comm.followMemory(calls);
      sequence.run();
    },
  };
}

/** Calls of several groups, each of which is a launch. */
function counting({ progress }: NcclCommunicator, calls: CallSequence, further: number) {
  return {
    run: () => {
      calls.run();
      progress.launches += further;
    },
  };
}

/** Registers symmetric memory of calls that is new; without such memory the calls skip the windows. */
function registerWindows({ windows }: NcclCommunicator, calls: readonly RankCall[]): void {
  if (symmetricPlace(calls[0] as RankCall) !== undefined) windows.register(calls);
}

/** Copies the only rank's contribution to its result, which replaces a call that NCCL would refuse. */
function copySingleRank(call: RankCall, { device }: LocalStream): void {
  const { send, recv, count } = call;
  if (send === undefined || recv === undefined || send.ptr === recv.ptr || count === 0) return;
  device.use().copy(recv.ptr, send.ptr, count * bytesOf(send.dtype), device.stream);
}

/** Settles `completion` when copies that follow the work have ended as well. */
function afterCopyBack(completion: Completion, finish: FinishCopyBack | undefined): Completion {
  if (finish === undefined) return completion;
  return {
    acceptsMore: false,
    settled(error) {
      try {
        finish(error !== undefined);
      } catch (fault) {
        completion.settled(error ?? fault);
        return;
      }
      completion.settled(error);
    },
  };
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
