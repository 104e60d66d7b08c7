/** Times of calls: the streams of ranks, and the ends of a call's ranks from their starts, on links or a measured machine. */
import {
  evaluate,
  type Layout,
  type LinkModel,
  type MachineTime,
  type MessageEvent,
  type Program,
} from "../../algorithms/index.ts";
import type { CommInfo, PostedMessages, RankCall } from "../../api/backend-entry.ts";
import { largest } from "../../api/largest.ts";
import { type ConcurrentCalls, Port } from "./transfer-times.ts";

/** Computes the ends of a call's ranks. */
export interface CallTimes {
  /** The time on a measured machine; `undefined` on links. */
  readonly machine: MachineTime | undefined;
  /** Moves `finishedAtPs` of every call, given by rank, from the rank's start to its end. */
  predict(calls: readonly RankCall[]): void;
  /** The same, with every message, in the order of reception. */
  predictMessages(calls: readonly RankCall[], onMessage: (event: MessageEvent) => void): void;
}

/** A call on links. */
export class LinkTimes implements CallTimes {
  readonly machine = undefined;
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
    if (!known) this.#ends = this.endsFrom(starts);
    for (const call of calls) call.finishedAtPs = firstPs + (this.#ends[call.rank] as number);
  }

  predictMessages(calls: readonly RankCall[], onMessage: (event: MessageEvent) => void): void {
    const starts = calls.map(({ finishedAtPs }) => finishedAtPs);
    const ends = this.endsFrom(starts, onMessage);
    for (const call of calls) call.finishedAtPs = ends[call.rank] as number;
  }

  /** The ends of ranks with these starts, by rank. */
  endsFrom(starts: ArrayLike<number>, onMessage?: (event: MessageEvent) => void): Float64Array {
    return evaluate(this.#program, this.#layout, starts, this.#model, onMessage).finished;
  }
}

/**
 * A call on a measured machine: all ranks end together, a fixed time after the last one's start. Its messages are those on
 * links, in proportion.
 */
export class MachineTimes implements CallTimes {
  readonly machine: MachineTime;
  readonly #timePs: number;
  readonly #onLinks: () => LinkTimes;

  constructor(machine: MachineTime, onLinks: () => LinkTimes) {
    this.machine = machine;
    this.#timePs = Math.round(machine.ns * 1000);
    this.#onLinks = onLinks;
  }

  predict(calls: readonly RankCall[]): void {
    let lastPs = 0;
    for (const { finishedAtPs } of calls) lastPs = Math.max(lastPs, finishedAtPs);
    for (const call of calls) call.finishedAtPs = lastPs + this.#timePs;
  }

  predictMessages(calls: readonly RankCall[], onMessage: (event: MessageEvent) => void): void {
    const startPs = largest(calls.map(({ finishedAtPs }) => finishedAtPs));
    const messages: MessageEvent[] = [];
    const starts = new Float64Array(calls.length);
    const ends = this.#onLinks().endsFrom(starts, (event) => messages.push(event));
    const scale = this.#timePs / largest(ends, 1);
    const at = (timePs: number): number => startPs + Math.round(timePs * scale);
    for (const { sendStart, sendEnd, recvStart, recvEnd, ...event } of messages) {
      const sent = { sendStart: at(sendStart), sendEnd: at(sendEnd) };
      onMessage({ ...event, ...sent, recvStart: at(recvStart), recvEnd: at(recvEnd) });
    }
    this.predict(calls);
  }
}

/** The calls of one rank, on its communicators without streams of their own or on one with them. */
interface Stream {
  /** The end of the last call. */
  freePs: number;
  /** The last sends and receives that were posted together, some of which may lack their counterparts. */
  together: ConcurrentCalls | undefined;
}

/** The end of each rank's calls. */
export class StreamTimes {
  readonly #byRank: Stream[] = [];
  readonly #byComm = new WeakMap<CommInfo, Stream[]>();

  /** Moves the start of every call (`finishedAtPs`, until it is predicted) behind the rank's earlier calls. */
  begin(comm: CommInfo, calls: readonly RankCall[]): void {
    const streams = this.#of(comm);
    for (const call of calls) {
      const { freePs } = streams[call.rank] as Stream;
      call.finishedAtPs = Math.max(call.finishedAtPs, freePs);
    }
  }

  /** Joins the rank's current batch of sends and receives, or begins one. */
  join(comm: CommInfo, rank: number, batch: PostedMessages): ConcurrentCalls {
    const stream = this.#of(comm)[rank] as Stream;
    if (stream.together?.batch !== batch) {
      const [sendPort, recvPort] = [new Port(), new Port()];
      const endsTo = new Map<number, number>();
      stream.together = { batch, beganPs: stream.freePs, stream, sendPort, recvPort, endsTo };
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
    let streams = this.#byComm.get(comm);
    if (streams === undefined) {
      streams = comm.ranks.map((worldRank) => {
        if (comm.ownStream === true) return newStream();
        this.#byRank[worldRank] ??= newStream();
        return this.#byRank[worldRank];
      });
      this.#byComm.set(comm, streams);
    }
    return streams;
  }
}

function newStream(): Stream {
  return { freePs: 0, together: undefined };
}
