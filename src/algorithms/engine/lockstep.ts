/**
 * The recurrence of a symmetric program, step by step for all ranks at once.
 *
 * Rank 0's lane says what every rank does, so one row of times a step is enough: no lanes, no edges, no queues. For ranks
 * that start at different times, where one cannot stand for all.
 */
import { UnsupportedError } from "../../api/errors.ts";
import type { Symmetry } from "../algorithm.ts";
import { column, none, stepWidth } from "../program.ts";
import { type LinkModel, type OnProgress, reportEvery, type Timing } from "./model.ts";

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
