/**
 * A recurrence for traffic without contention; it needs no queue of events. Times are only sums and maxima.
 *
 * With one lane a rank, unlimited credits and no shared links, a rank uses its ports in program order. So each lane is advanced
 * until it has to wait, in any order.
 */

import { UnsupportedError } from "../../api/errors.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertArgument } from "../arguments.ts";
import { none } from "../program.ts";
import { MessageLog } from "./message-log.ts";
import { assertModel, type LinkModel, type OnProgress, reportEvery, type Timing } from "./model.ts";
import { assertTraffic, doubled, type Traffic } from "./traffic.ts";

/** Options of an engine beside the traffic and the model. */
export interface RunOptions {
  /** Time at which each rank starts the call; 0 for all when left out. */
  readonly start?: ArrayLike<number> | undefined;
  readonly log?: MessageLog | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/** Needs the arguments of an engine. */
export function assertRun(
  subject: string,
  traffic: Traffic,
  model: LinkModel,
  options: RunOptions,
): void {
  assertTraffic(subject, traffic);
  assertModel(subject, model);
  const isOptions = typeof options === "object" && options !== null;
  assertArgument(isOptions, subject, "options", options, "an object with named fields");
  const { start = [], log, onProgress } = options;
  const isTimes = Array.isArray(start) || ArrayBuffer.isView(start);
  assertArgument(isTimes, subject, "start", start, "an array of times");
  for (let rank = 0; rank < traffic.ranks; rank++) {
    const time = start[rank] ?? 0;
    if (!Number.isFinite(time)) throw invalid(subject, `start[${rank}]`, textOf(time), "a time");
  }
  const isLog = log === undefined || log instanceof MessageLog;
  assertArgument(isLog, subject, "log", log, "a MessageLog");
  const isCallback = onProgress === undefined || typeof onProgress === "function";
  assertArgument(isCallback, subject, "onProgress", onProgress, "a function");
}

/** Needs the arguments of the recurrence: one lane a rank. */
function assertRecurrence(traffic: Traffic, model: LinkModel, options: RunOptions): void {
  assertRun("runRecurrence", traffic, model, options);
  const { channels } = traffic;
  const [field, needed] = ["traffic.channels", "1, as runEvents takes more"];
  assertArgument(channels === 1, "runRecurrence", field, channels, needed);
}

/** Times of traffic with one lane a rank over links that are not shared. */
export function runRecurrence(
  traffic: Traffic,
  model: LinkModel,
  options: RunOptions = {},
): Timing {
  assertRecurrence(traffic, model, options);
  const { start = [], log, onProgress } = options;
  const { ranks, starts, receives, sends, elements, times, edgeTo } = traffic;
  const { latency } = model;
  const flight = new InFlight(edgeTo.length);
  const { heads } = flight;
  /** By edge: 1 while its receiver waits for a message that was not sent yet. */
  const awaited = new Uint8Array(edgeTo.length);
  const now = Float64Array.from({ length: ranks }, (_, rank) => start[rank] ?? 0);
  // A port may be in use until the rank starts.
  const sendPort = now.slice();
  const recvPort = now.slice();
  const sent = new Float64Array(ranks);
  const at = starts.slice(0, ranks);
  const left = Int32Array.from({ length: ranks }, (_, lane) => times[at[lane] as number] ?? 0);
  const ready = Int32Array.from({ length: ranks }, (_, place) => ranks - 1 - place);
  let readyCount = ranks;
  let received = 0;
  let knownElements = 0;
  let knownOccupancy = model.occupancy(0);
  while (readyCount > 0) {
    const lane = ready[--readyCount] as number;
    const end = starts[lane + 1] as number;
    let time = now[lane] as number;
    let outPort = sendPort[lane] as number;
    let inPort = recvPort[lane] as number;
    let out = sent[lane] as number;
    let run = at[lane] as number;
    let more = left[lane] as number;
    while (run < end) {
      const receive = receives[run] as number;
      const send = sends[run] as number;
      let length = elements[run] as number;
      while (more > 0) {
        if (receive !== none) {
          const message = heads[receive] as number;
          if (message === none) {
            awaited[receive] = 1;
            break;
          }
          flight.drop(receive, message);
          length = flight.elements[message] as number;
          const sendStart = flight.sendStart[message] as number;
          const recvStart = Math.max(sendStart + latency, inPort);
          log?.add(receive, length, sendStart, recvStart, 0);
          if (length !== knownElements) {
            knownElements = length;
            knownOccupancy = model.occupancy(length);
          }
          inPort = recvStart + knownOccupancy;
          time = Math.max(time, inPort);
          if (++received % reportEvery === 0) onProgress?.(received);
        }
        if (send !== none) {
          const sendStart = Math.max(time, outPort);
          // A forwarded message occupied the receiving port for the same time.
          outPort = sendStart + (receive === none ? model.occupancy(length) : knownOccupancy);
          out += length;
          flight.push(send, sendStart, length, sendStart + latency);
          if (awaited[send] === 1) {
            awaited[send] = 0;
            ready[readyCount++] = edgeTo[send] as number;
          }
        }
        more--;
      }
      if (more > 0) break;
      run++;
      more = times[run] ?? 0;
    }
    now[lane] = time;
    sendPort[lane] = outPort;
    recvPort[lane] = inPort;
    sent[lane] = out;
    at[lane] = run;
    left[lane] = more;
  }
  assertEnded(traffic, at);
  return {
    finished: now.map((time, rank) => Math.max(time, sendPort[rank] ?? 0)),
    sentElements: sent,
  };
}

/**
 * Messages in flight, sent and not yet received: a queue for every edge. All queues share one pool that is reused, so memory
 * grows with the messages in flight and not with all messages sent. The engines' inner loops read the columns, which are replaced when the pool grows.
 */
export class InFlight {
  /** First and last message of each edge; -1 where there is none. */
  readonly heads: Int32Array;
  readonly #tails: Int32Array;
  /** Time at which a message took its sender's port, and its length. */
  sendStart = new Float64Array(64);
  elements = new Float64Array(64);
  /** Time at which its head reaches the receiver; NaN while unknown. */
  arrival = new Float64Array(64);
  #next = new Int32Array(64);
  #free = none;
  #used = 0;

  constructor(edges: number) {
    this.heads = new Int32Array(edges).fill(none);
    this.#tails = new Int32Array(edges).fill(none);
  }

  /** Capacity of the pool. */
  get capacity(): number {
    return this.#next.length;
  }

  /** Appends a message to an edge's queue and returns its number. */
  push(edge: number, sendStart: number, elements: number, arrival: number): number {
    let message = this.#free;
    if (message !== none) this.#free = this.#next[message] as number;
    else {
      if (this.#used === this.#next.length) this.#grow();
      message = this.#used++;
    }
    this.sendStart[message] = sendStart;
    this.elements[message] = elements;
    this.arrival[message] = arrival;
    this.#next[message] = none;
    const tail = this.#tails[edge] as number;
    if (tail === none) this.heads[edge] = message;
    else this.#next[tail] = message;
    this.#tails[edge] = message;
    return message;
  }

  /** Removes the first message of an edge's queue. Its columns are valid until the next push. */
  drop(edge: number, message: number): void {
    const next = this.#next[message] as number;
    this.heads[edge] = next;
    if (next === none) this.#tails[edge] = none;
    this.#next[message] = this.#free;
    this.#free = message;
  }

  #grow(): void {
    this.#next = doubled(this.#next);
    this.sendStart = longer(this.sendStart);
    this.elements = longer(this.elements);
    this.arrival = longer(this.arrival);
  }
}

/** A copy of twice the capacity. */
function longer(array: Float64Array<ArrayBuffer>): Float64Array<ArrayBuffer> {
  const copy = new Float64Array(2 * array.length);
  copy.set(array);
  return copy;
}

/** Throws where a lane has steps left, from run `at` on, although no lane can go on. */
export function assertEnded({ starts, channels }: Traffic, at: Int32Array): void {
  const lane = at.findIndex((run, index) => run < (starts[index + 1] as number));
  if (lane < 0) return;
  throw new UnsupportedError({
    headline: `a program that never ends: rank ${Math.floor(lane / channels)} waits for a message that is not sent, or for a credit`,
    hint: "verifyAlgorithm reports its problems",
  });
}

/** The error for a program in which every rank waits for a message that no rank sends. */
export function stuckError(): UnsupportedError {
  return new UnsupportedError({
    headline: "a program in which every rank receives before it sends: it never ends",
    hint: "verifyAlgorithm reports its problems",
  });
}
