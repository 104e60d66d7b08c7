/** Puts calls, messages and recordings on the streams of a session's ranks, with copies of the arrays that they were given. */
import type { CallSet, HalfTransfer, RankCall, Waiting } from "../../../api/index.ts";
import type { CopiedArrays, Finish } from "../rank/copied-arrays.ts";
import type { LocalRank } from "../rank/local-rank.ts";
import type { Member } from "../rank/member.ts";
import type { NcclCalls } from "../result/nccl.ts";
import type { NcclCommunicator } from "./communicators.ts";
import { CapturedGraph } from "./graphs.ts";
import { type MessageEnd, submitCall, submitMessages } from "./submit.ts";

/** Gives a call device memory in place of its arrays. */
type Move = (call: RankCall) => RankCall;

/** Submits for one session; what is returned ends the copies once the work is done. */
export class Submitter {
  readonly #nccl: NcclCalls;
  /** Left out where calls take no arrays. */
  readonly #arrays: CopiedArrays | undefined;

  constructor(nccl: NcclCalls, arrays: CopiedArrays | undefined) {
    this.#nccl = nccl;
    this.#arrays = arrays;
  }

  /** One call of all ranks. */
  call(comm: NcclCommunicator, set: CallSet): Finish | undefined {
    try {
      return this.#submit(comm, set);
    } catch (error) {
      // It was not made, also where it counts since others waited for it.
      comm.count(set.number - 1);
      throw error;
    }
  }

  #submit(comm: NcclCommunicator, { calls, kept }: CallSet): Finish | undefined {
    comm.windows.cover(calls);
    return this.#copying(comm, calls, (move) => {
      if (move !== undefined) submitCall(this.#nccl, comm, calls.map(move));
      else {
        const ready = submitCall(this.#nccl, comm, calls);
        if (kept !== undefined) kept.work = ready;
      }
    });
  }

  /** Messages that are under way at once; `halves` are those whose other ends live elsewhere. */
  messages(
    comm: NcclCommunicator,
    ends: readonly MessageEnd[],
    halves: readonly HalfTransfer[],
  ): Finish | undefined {
    const calls = ends.map(({ call }) => call);
    try {
      const finish = this.#copying(comm, calls, (move = (call) => call) => {
        const moved = ends.map((end) => ({ ...end, call: move(end.call) }));
        submitMessages(this.#nccl, comm, moved);
      });
      comm.made?.handedOver(halves);
      return finish;
    } catch (error) {
      comm.made?.refuse(halves);
      throw error;
    }
  }

  /** Records calls of all ranks, one after another. */
  record(comm: NcclCommunicator, rows: readonly (readonly RankCall[])[]): CapturedGraph {
    for (const row of rows) comm.windows.cover(row);
    const localOf = localsOf(comm);
    const copied = this.#arrays?.place(rows.flat(), localOf);
    const move: Move = (call) => copied?.moved(call, localOf(call.rank)) ?? call;
    const issue = (): void => {
      for (const row of rows) submitCall(this.#nccl, comm, row.map(move));
    };
    return CapturedGraph.capture(comm.devices, issue, copied);
  }

  #copying(
    comm: NcclCommunicator,
    calls: readonly RankCall[],
    submit: (move?: Move) => void,
  ): Finish | undefined {
    const localOf = localsOf(comm);
    const copied = this.#arrays?.place(calls, localOf);
    if (copied === undefined) {
      submit();
      return undefined;
    }
    try {
      copied.copyIn();
      submit((call) => copied.moved(call, localOf(call.rank)));
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

/** Tells `waiting` when copies that follow the work are ended as well. */
export function finishing(waiting: Waiting, finish: Finish | undefined): Waiting {
  if (finish === undefined) return waiting;
  return {
    takesMore: false,
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
  return (rank) => (members.get(rank) as Member).local;
}
