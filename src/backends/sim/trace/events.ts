/** The events of a trace: their lines of text, their bars in Chrome's format, and the spans of calls and work. */

import type { TimedMachine } from "../../../algorithms/index.ts";
import type { CommInfo, RankCall } from "../../../api/backend-entry.ts";
import { firstLine } from "../../../api/error-text.ts";
import type { CollectiveName, DType } from "../../../api/index.ts";
import type { ChromeEvent } from "./timeline.ts";

/** A call of a rank, or its virtual compute, from its start to its end. */
export interface TracedSpan {
  readonly kind: "call" | "work";
  /** As in `TracedMessage`. */
  readonly world: number;
  readonly generation: number;
  /** The rank in the world. */
  readonly rank: number;
  /** Of work: its label, `work` without one; of a call its collective. A send and a receive are calls. */
  readonly name: string;
  /** Start and end on the rank's virtual clock, in picoseconds. A call starts with the rank's arrival. */
  readonly startPs: number;
  readonly endPs: number;
  /** Facts of a call; `undefined` for work. */
  readonly call: TracedCallFacts | undefined;
}

/** The facts of one rank's part of a call. */
export interface TracedCallFacts {
  readonly collective: CollectiveName;
  /** Name of the communicator, its number of ranks, and number of the call on it, as in `TracedMessage`. */
  readonly comm: string;
  readonly ranks: number;
  readonly number: number;
  readonly dtype: DType | undefined;
  readonly count: number;
  /** Bytes of the larger one of the rank's buffers. */
  readonly bytes: number;
  /** The machine of the time, in words; `undefined` for a time on links. */
  readonly predictedFor: string | undefined;
  /** The reason why that time is extrapolated. */
  readonly extrapolated: string | undefined;
  /** True where the rank got an error in place of a result. */
  readonly failed: boolean;
  /** Of a message the start of its other end, in picoseconds. */
  readonly peerStartPs?: number;
}

/** Classes order events of the same time: first what ends, then what begins. */
export const classes = { receive: 0, finish: 1, work: 2, post: 3 } as const;

/** The event at a time. */
export interface TraceEvent {
  readonly timePs: number;
  readonly class: number;
  readonly text: string;
  /** The calls and work that end with the event. */
  readonly spans?: readonly TracedSpan[];
  /** The event as Chrome's trace viewer draws it; none for events that only the text shows. */
  readonly chrome: readonly ChromeEvent[];
}

/** Rows of a rank in the Chrome trace. */
export const rows = { calls: 0, out: 1, in: 2, work: 3 } as const;

/** The rank of an event. */
export interface TracedRank {
  /** Its process in the Chrome trace, and its name in lines. */
  readonly pid: number;
  readonly rankText: string;
  /** The rank and its world, for spans. */
  readonly of: Pick<TracedSpan, "world" | "generation" | "rank">;
}

/** The rank and the call of a part. */
export interface TracedCall extends TracedRank {
  readonly comm: CommInfo;
  /** Number of the call on the communicator. */
  readonly number: number;
  readonly call: RankCall;
  /** The algorithm; `undefined` for a call that ended before its start. */
  readonly algorithm: string | undefined;
  /** The measured machine of its time. */
  readonly on: TimedMachine | undefined;
  /** Of a message the start of its other end. */
  readonly peerStartPs?: number;
}

/** Records the call of the part. */
export function postedEvent(part: TracedCall, atPs: number): TraceEvent {
  return { timePs: atPs, class: classes.post, text: line("post", part), chrome: [] };
}

/** The end of a call that takes no time follows its beginning. */
function endOf(startPs: number, endPs: number): Pick<TraceEvent, "timePs" | "class"> {
  return { timePs: endPs, class: endPs === startPs ? classes.post : classes.finish };
}

/** Records the end of the part. */
export function completedEvent(part: TracedCall, startPs: number, endPs: number): TraceEvent {
  const chrome = [slice(part, startPs, endPs)];
  const spans = [callSpan(part, startPs, endPs, false)];
  return { ...endOf(startPs, endPs), text: line("done", part), chrome, spans };
}

/** Records the failure of the part at that time. */
export function failedEvent(
  part: TracedCall,
  startPs: number,
  endPs: number,
  error: unknown,
): TraceEvent {
  const code = codeOf(error);
  const { name, args, ...span } = slice(part, startPs, endPs);
  const facts = { ...args, error: code, reason: firstLine(error) };
  const chrome = { ...span, name: `${name} ${code}`, cname: "terrible", args: facts } as const;
  const spans = [callSpan(part, startPs, endPs, true)];
  const text = line("fail", part, code);
  return { ...endOf(startPs, endPs), text, chrome: [chrome], spans };
}

function line(event: string, part: TracedCall, error?: string): string {
  const { rankText, comm, number, algorithm } = part;
  const words = [
    event,
    rankText,
    `comm=${fieldValue(comm.name)}`,
    `call=${number}`,
    error && `error=${fieldValue(error)}`,
  ];
  return [...words, whatOf(part), algorithm].filter((word) => word !== undefined).join(" ");
}

function slice(part: TracedCall, startPs: number, endPs: number): ChromeEvent {
  const { pid, comm, number, algorithm } = part;
  const args = { comm: comm.name, call: number, ...(algorithm === undefined ? {} : { algorithm }) };
  const span = { pid, tid: rows.calls, ts: us(startPs), dur: us(endPs - startPs) };
  return { name: whatOf(part), ph: "X", ...span, args };
}

export function callSpan(
  part: TracedCall,
  startPs: number,
  endPs: number,
  failed: boolean,
): TracedSpan {
  const { of, comm, number, call, on, peerStartPs } = part;
  const { collective, dtype, count, send, recv } = call;
  const bytes = Math.max(send?.byteLength ?? 0, recv?.byteLength ?? 0);
  const facts = {
    ...{ collective, comm: comm.name, ranks: comm.ranks.length, number, dtype, count, bytes },
    ...{ predictedFor: on?.machine, extrapolated: on?.extrapolated, failed },
    ...(peerStartPs !== undefined && { peerStartPs }),
  };
  return { kind: "call", ...of, name: collective, startPs, endPs, call: facts };
}

function whatOf({ call: { collective, dtype, count } }: TracedCall): string {
  return dtype === undefined ? collective : `${collective} ${dtype}[${count}]`;
}

/** The code of an error, otherwise its name. */
function codeOf(error: unknown): string {
  const { code, name } = Object(error) as { readonly code?: unknown; readonly name?: unknown };
  const known = [code, name].find((each) => typeof each === "string");
  return known === undefined ? typeof error : String(known);
}

/** Characters that break a line or control a terminal. */
export const lineBreaks = /[\p{Cc}\u2028\u2029]/gu;

/** A name as the value of a field: in quotes where it could be read as more than one. */
export function fieldValue(name: string): string {
  return /[\p{Zs}"]/u.test(name) ? JSON.stringify(name) : name;
}

/** Microseconds, in which Chrome's format counts. */
export function us(ps: number): number {
  return ps / 1e6;
}
