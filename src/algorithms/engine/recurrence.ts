/**
 * The recurrence: when nothing contends, no event needs to wait for another rank's.
 *
 * With one lane a rank, unlimited credits and no shared links, a rank uses its ports in program order, so each lane is
 * taken as far as it gets, in any order, and no queue of events is needed. Times only add and take maxima.
 */
import { none } from "../program.ts";
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
