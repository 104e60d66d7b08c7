/** Virtual time in integer picoseconds: one clock a rank, streams of calls in order, ports, and predicted durations of calls. */

import {
  evaluate,
  type Layout,
  type Link,
  type LinkModel,
  linkModel,
  type Program,
} from "../../algorithms/index.ts";
import type { CallSet, CommInfo, RankCall, VirtualClock } from "../../api/backend-entry.ts";
import { largest } from "../../api/largest.ts";
import type { WorldTrace } from "./world-trace.ts";

/** The clocks of all ranks of a world. */
export class SimClock implements VirtualClock {
  readonly #now: Float64Array;
  readonly #streams: Streams;
  readonly #trace: WorldTrace | undefined;

  constructor(size: number, streams: Streams, trace: WorldTrace | undefined) {
    this.#streams = streams;
    this.#now = new Float64Array(size);
    this.#trace = trace;
  }

  now(rank: number): number {
    return this.#now[rank] as number;
  }

  reach(rank: number, timePs: number): void {
    if (timePs > (this.#now[rank] as number)) this.#now[rank] = timePs;
  }

  work(rank: number, durationNs: number, label: string | undefined): void {
    const start = this.now(rank);
    const end = start + Math.round(durationNs * 1000);
    this.#now[rank] = end;
    this.#trace?.work(rank, start, end, label);
  }

  join({ comm, calls }: CallSet): void {
    this.#streams.begin(comm, calls);
    const lastPs = largest(calls.map(({ finishedAtPs }) => finishedAtPs));
    for (const call of calls) call.finishedAtPs = lastPs;
    this.#streams.end(comm, calls);
  }
}

/** Sends and receives under way that a rank posted together. */
export interface ConcurrentCalls {
  /** The end of the rank's earlier calls, in picoseconds. */
  readonly beganPs: number;
  readonly sendPort: Port;
  readonly recvPort: Port;
}

/** The calls of one rank on one communicator. */
interface Stream {
  /** The end of the last call. */
  freePs: number;
  /** The last batch of sends and receives, some of which may lack their counterparts. */
  batch: object | undefined;
  together: ConcurrentCalls | undefined;
}

/** The end of each rank's calls, by communicator. */
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

  /** Joins the rank's current batch of sends and receives, or begins one. */
  join(comm: CommInfo, rank: number, batch: object): ConcurrentCalls {
    const stream = this.#of(comm)[rank] as Stream;
    if (stream.batch !== batch || stream.together === undefined) {
      stream.batch = batch;
      stream.together = { beganPs: stream.freePs, sendPort: new Port(), recvPort: new Port() };
    }
    return stream.together;
  }

  /** Stores the end of every call. */
  end(comm: CommInfo, calls: readonly RankCall[]): void {
    const streams = this.#of(comm);
    for (const call of calls) {
      const stream = streams[call.rank] as Stream;
      stream.freePs = Math.max(stream.freePs, call.finishedAtPs);
    }
  }

  /** The end of a rank's dispatched calls. */
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
class Port {
  /** Starts and ends alternate, ascending; adjacent spans are merged. */
  readonly #busy: number[] = [];

  /** The first time from `fromPs` on at which the port is free for that duration. */
  freeFrom(fromPs: number, durationPs: number): number {
    let start = fromPs;
    for (let i = 0; i < this.#busy.length; i += 2) {
      if (start + durationPs <= (this.#busy[i] as number)) break;
      start = Math.max(start, this.#busy[i + 1] as number);
    }
    return start;
  }

  /** Occupies the port at a time at which it is free. */
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

/** Computes the ends of a call's ranks from their starts. */
export class CallTimes {
  readonly #program: Program;
  readonly #layout: Layout;
  readonly #model: LinkModel;
  /** Starts by rank, relative to the first of them. NaN before the first call. */
  readonly #starts: Float64Array;
  /** Ends by rank, relative to the first start. */
  #ends: Float64Array;

  constructor(program: Program, layout: Layout, model: LinkModel) {
    this.#program = program;
    this.#layout = layout;
    this.#model = model;
    this.#starts = new Float64Array(program.ranks).fill(Number.NaN);
    this.#ends = this.#starts;
  }

  /** Moves `finishedAtPs` of every call, given by rank, from the rank's start to its end. */
  predict(calls: readonly RankCall[]): void {
    let firstPs = Infinity;
    for (const { finishedAtPs } of calls) firstPs = Math.min(firstPs, finishedAtPs);
    const starts = this.#starts;
    let known = true;
    for (let i = 0; i < calls.length; i++) {
      const start = (calls[i] as RankCall).finishedAtPs - firstPs;
      if (starts[i] === start) continue;
      starts[i] = start;
      known = false;
    }
    // The recurrence only adds and compares integers, so its result does not depend on the first start.
    if (!known) {
      this.#ends = evaluate(this.#program, this.#layout, starts, this.#model).finished;
    }
    for (const call of calls) call.finishedAtPs = firstPs + (this.#ends[call.rank] as number);
  }
}

/** Predicts the end of a call on each rank. */
export class Durations {
  readonly #link: Link;
  /** By program, layout and bytes per element. */
  readonly #known = new WeakMap<Program, WeakMap<Layout, Map<number, CallTimes>>>();

  constructor(link: Link) {
    this.#link = link;
  }

  /** The times of calls executed by a program, for a number of bytes per element. */
  of(program: Program, layout: Layout, bytes: number): CallTimes {
    let layouts = this.#known.get(program);
    if (layouts === undefined) {
      layouts = new WeakMap();
      this.#known.set(program, layouts);
    }
    let known = layouts.get(layout);
    if (known === undefined) {
      known = new Map();
      layouts.set(layout, known);
    }
    let times = known.get(bytes);
    if (times === undefined) {
      times = new CallTimes(program, layout, linkModel(this.#link, bytes));
      known.set(bytes, times);
    }
    return times;
  }
}
