/**
 * Calls of one communicator run in call order on every rank: a call that was made while an earlier one was under way
 * begins, in virtual time, when that one is done. Sends and receives that a rank posted together are one call of it.
 */
import type { CommInfo, RankCall } from "../../api/index.ts";

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

/** The times at which one direction of a rank's connection is in use, in picoseconds: it carries one message at a time. */
export class Port {
  /** Starts and ends in turn, ascending; spans that touch are one. */
  readonly #busy: number[] = [];

  /** The first time from `fromPs` on at which the port is free for so long. */
  freeFrom(fromPs: number, durationPs: number): number {
    let start = fromPs;
    for (let i = 0; i < this.#busy.length; i += 2) {
      if (start + durationPs <= (this.#busy[i] as number)) break;
      start = Math.max(start, this.#busy[i + 1] as number);
    }
    return start;
  }

  /** Uses the port at a time at which it is free. */
  take(startPs: number, durationPs: number): void {
    if (durationPs === 0) return;
    const busy = this.#busy;
    let at = 0;
    while (at < busy.length && (busy[at] as number) < startPs) at += 2;
    const joinsBefore = at > 0 && busy[at - 1] === startPs;
    const joinsAfter = busy[at] === startPs + durationPs;
    const added = [startPs, startPs + durationPs];
    if (joinsBefore && joinsAfter) busy.splice(at - 1, 2);
    else if (joinsBefore) busy[at - 1] = startPs + durationPs;
    else if (joinsAfter) busy[at] = startPs;
    else busy.splice(at, 0, ...added);
  }
}
