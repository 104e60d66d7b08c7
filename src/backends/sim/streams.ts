/**
 * Calls of one communicator run in call order on every rank: a call that was made while an earlier one was under way
 * begins, in virtual time, when that one is done.
 */
import type { CommInfo, RankCall } from "../../api/index.ts";

/** When each rank is done with its last call, by communicator. */
export class Streams {
  readonly #free = new WeakMap<CommInfo, Float64Array>();

  /** Moves the start of every call (`finishedAtPs`, until it is predicted) behind the rank's earlier calls. */
  begin(comm: CommInfo, calls: readonly RankCall[]): void {
    const free = this.#of(comm);
    for (const call of calls) {
      call.finishedAtPs = Math.max(call.finishedAtPs, free[call.rank] as number);
    }
  }

  /** Notes when every call will be done. */
  end(comm: CommInfo, calls: readonly RankCall[]): void {
    const free = this.#of(comm);
    for (const call of calls) {
      free[call.rank] = Math.max(free[call.rank] as number, call.finishedAtPs);
    }
  }

  #of(comm: CommInfo): Float64Array {
    let free = this.#free.get(comm);
    if (free === undefined) {
      free = new Float64Array(comm.ranks.length);
      this.#free.set(comm, free);
    }
    return free;
  }
}
