/**
 * The recurrence: when nothing contends, no event needs to wait for another rank's.
 *
 * With one lane a rank, unlimited credits and no shared links, a rank uses its ports in program order, so each lane is
 * taken as far as it gets, in any order, and no queue of events is needed. Times only add and take maxima.
 */

import { UnsupportedError } from "../../api/errors.ts";
import type { Symmetry } from "../algorithm.ts";
import { column, none, stepWidth } from "../program.ts";
import { InFlight } from "./in-flight.ts";
import type { MessageLog } from "./message-log.ts";
import { type LinkModel, type OnProgress, reportEvery, type Timing } from "./model.ts";
import type { Traffic } from "./traffic.ts";

/** What an engine is told beside the traffic and the model. */
export interface RunOptions {
  /** When each rank comes to the call; all at 0 when left out. */
  readonly start?: ArrayLike<number> | undefined;
  readonly log?: MessageLog | undefined;
  readonly onProgress?: OnProgress | undefined;
}

/** Times of traffic with one lane a rank over links that nobody shares. */
export function runRecurrence(
  traffic: Traffic,
  model: LinkModel,
  { start = [], log, onProgress }: RunOptions = {},
): Timing {
  const { ranks, starts, receives, sends, elements, times, edgeTo } = traffic;
  const { latency } = model;
  const flight = new InFlight(edgeTo.length);
  const { heads } = flight;
  /** Edges whose receiver stands before a message that was not sent yet. */
  const awaited = new Uint8Array(edgeTo.length);
  const now = Float64Array.from({ length: ranks }, (_, rank) => start[rank] ?? 0);
  // A port may have been in use until the rank came here.
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
          // What is passed on occupied the other port as long.
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
  return {
    finished: now.map((time, rank) => Math.max(time, sendPort[rank] ?? 0)),
    sentElements: sent,
  };
}

// The recurrence of a symmetric program, step by step for all ranks at once.
//
// Rank 0's lane says what every rank does, so one row of times a step is enough: no lanes, no edges, no queues. For ranks
// that start at different times, where one cannot stand for all.

/** A symmetric program and the length of its chunks. */
export interface Lockstep {
  readonly ranks: number;
  readonly symmetry: Symmetry;
  /** Steps of rank 0, packed as in `Program.code`. */
  readonly steps: Int32Array;
  readonly chunkElements: number;
}

/** When the messages of one step left, by rank. */
interface Row {
  readonly starts: Float64Array;
  readonly span: number;
}

/** Times of ranks that come at `start`; every chunk is equally long. */
export function runLockstep(
  { ranks, symmetry, steps, chunkElements }: Lockstep,
  model: LinkModel,
  start: ArrayLike<number>,
  onProgress?: OnProgress,
): Timing {
  const now = Float64Array.from({ length: ranks }, (_, rank) => start[rank] ?? 0);
  const sendPort = now.slice();
  const flights = new Map<number, Row[]>();
  const free: Float64Array[] = [];
  let spans = 0;
  let received = 0;
  for (let at = 0; at < steps.length; at += stepWidth) {
    const from = steps[at + column.from] as number;
    const to = steps[at + column.to] as number;
    let span = steps[at + column.span] as number;
    const row = from === none ? undefined : taken(flights, from, ranks, symmetry);
    const starts = to === none ? undefined : (free.pop() ?? new Float64Array(ranks));
    if (row !== undefined) {
      span = row.span;
      const cost = { latency: model.latency, occupancy: model.occupancy(span * chunkElements) };
      receive({ now, sendPort, ...row }, symmetry, cost, starts);
      free.push(row.starts);
      const before = received;
      received += ranks;
      if (Math.floor(received / reportEvery) > Math.floor(before / reportEvery)) {
        onProgress?.(received);
      }
    } else if (starts !== undefined) {
      launch(now, sendPort, starts, model.occupancy(span * chunkElements));
    }
    if (starts === undefined) continue;
    spans += span;
    const flight = flights.get(to) ?? [];
    flights.set(to, flight);
    flight.push({ starts, span });
  }
  const finished = now.map((time, rank) => Math.max(time, sendPort[rank] as number));
  return { finished, sentElements: new Float64Array(ranks).fill(spans * chunkElements) };
}

/** Takes the row that was sent to a rank from one `from` away. */
function taken(
  flights: ReadonlyMap<number, Row[]>,
  from: number,
  ranks: number,
  symmetry: Symmetry,
): Row & { readonly offset: number } {
  const offset = symmetry === "rotation" ? (ranks - from) % ranks : from;
  const row = flights.get(offset)?.shift();
  if (row === undefined) throw stuck();
  return { ...row, offset };
}

/** The times of all ranks, and the row that they receive from so far away. */
interface Rows {
  readonly now: Float64Array;
  readonly sendPort: Float64Array;
  readonly starts: Float64Array;
  readonly offset: number;
}

/** What each message of a row costs. */
interface RowCost {
  readonly latency: number;
  readonly occupancy: number;
}

/** Every rank receives and, where there is a row for it, passes on. */
function receive(
  { now, sendPort, starts, offset }: Rows,
  symmetry: Symmetry,
  cost: RowCost,
  passed: Float64Array | undefined,
): void {
  const ranks = now.length;
  const ports = passed === undefined ? undefined : sendPort;
  if (symmetry === "hypercube") {
    for (let rank = 0; rank < ranks; rank += offset) {
      const other = rank ^ offset;
      receiveFrom(now, ports, starts, passed, [rank, rank + offset, other - rank], cost);
    }
    return;
  }
  receiveFrom(now, ports, starts, passed, [0, offset, ranks - offset], cost);
  receiveFrom(now, ports, starts, passed, [offset, ranks, -offset], cost);
}

/** Ranks from one up to another receive from those so many on. A lone lane's receiving port is free when the lane is. */
function receiveFrom(
  now: Float64Array,
  sendPort: Float64Array | undefined,
  starts: Float64Array,
  passed: Float64Array | undefined,
  [begin, end, away]: readonly [number, number, number],
  { latency, occupancy }: RowCost,
): void {
  for (let rank = begin; rank < end; rank++) {
    const arrival = (starts[rank + away] as number) + latency;
    const before = now[rank] as number;
    const time = (arrival > before ? arrival : before) + occupancy;
    now[rank] = time;
    if (sendPort === undefined || passed === undefined) continue;
    const port = sendPort[rank] as number;
    const begins = time > port ? time : port;
    passed[rank] = begins;
    sendPort[rank] = begins + occupancy;
  }
}

/** Every rank sends. */
function launch(
  now: Float64Array,
  sendPort: Float64Array,
  starts: Float64Array,
  occupancy: number,
): void {
  for (let rank = 0; rank < now.length; rank++) {
    const time = now[rank] as number;
    const port = sendPort[rank] as number;
    const begins = time > port ? time : port;
    starts[rank] = begins;
    sendPort[rank] = begins + occupancy;
  }
}

/** Every rank waits for what none has sent. */
export function stuck(): UnsupportedError {
  return new UnsupportedError({
    headline: "a program in which every rank receives before it sends: it never ends",
    hint: "verifyAlgorithm tells what is wrong with it",
  });
}
