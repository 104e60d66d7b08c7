/**
 * Calls of one communicator run in call order on every rank: a call that was made while an earlier one was under way
 * begins, in virtual time, when that one is done. Sends and receives that a rank posted together are one call of it.
 */
import type { CommInfo, RankCall } from "../../api/index.ts";
import { Port } from "./port.ts";

/** Sends and receives under way that a rank posted together. */
export interface Together {
  /** When the rank was done with its earlier calls, in picoseconds. */
  readonly beganPs: number;
  readonly sendPort: Port;
  readonly recvPort: Port;
}

/** The calls of one rank on one communicator. */
interface Stream {
  /** When the last call is done. */
  freePs: number;
  /** The last batch of sends and receives, some of which may still have to meet their counterparts. */
  batch: object | undefined;
  together: Together | undefined;
}

/** When each rank is done with its calls, by communicator. */
export class Streams {
  readonly #streams = new WeakMap<CommInfo, Stream[]>();

  /** Moves the start of every call (`finishedAtPs`, until it is predicted) behind the rank's earlier calls. */
  begin(comm: CommInfo, calls: readonly RankCall[]): void {
    const streams = this.#of(comm);
    for (const call of calls) {
      const { freePs } = streams[call.rank] as Stream;
      call.finishedAtPs = Math.max(call.finishedAtPs, freePs);
    }
  }

  /** Joins the batch of sends and receives that a rank is at, or begins it. */
  join(comm: CommInfo, rank: number, batch: object): Together {
    const stream = this.#of(comm)[rank] as Stream;
    if (stream.batch !== batch || stream.together === undefined) {
      stream.batch = batch;
      stream.together = { beganPs: stream.freePs, sendPort: new Port(), recvPort: new Port() };
    }
    return stream.together;
  }

  /** Notes when every call will be done. */
  end(comm: CommInfo, calls: readonly RankCall[]): void {
    const streams = this.#of(comm);
    for (const call of calls) {
      const stream = streams[call.rank] as Stream;
      stream.freePs = Math.max(stream.freePs, call.finishedAtPs);
    }
  }

  /** When a rank is done with the calls that were served. */
  freePs(comm: CommInfo, rank: number): number {
    return (this.#of(comm)[rank] as Stream).freePs;
  }

  #of(comm: CommInfo): Stream[] {
    let streams = this.#streams.get(comm);
    if (streams === undefined) {
      streams = comm.ranks.map(() => ({ freePs: 0, batch: undefined, together: undefined }));
      this.#streams.set(comm, streams);
    }
    return streams;
  }
}
