/** One rank's part of a call in a trace: a line when it was made, and a line and a slice of its row when it ended. */
import type { RankCall } from "../../api/index.ts";
import type { ChromeEvent } from "./chrome-event.ts";
import { classes, fieldValue, rows, type TraceEvent, us } from "./trace.ts";

/** The rank and the call of a part. */
export interface Part {
  /** The rank's process in the Chrome trace, and the rank as lines name it. */
  readonly pid: number;
  readonly who: string;
  /** Name of the communicator, and number of the call there. */
  readonly comm: string;
  readonly number: number;
  readonly call: RankCall;
  /** The algorithm; `undefined` for a call that ended before any began. */
  readonly algorithm: string | undefined;
}

/** The part was made. */
export function made(part: Part, atPs: number): TraceEvent {
  return { timePs: atPs, class: classes.post, text: line("post", part), chrome: [] };
}

/** The part is done. */
export function done(part: Part, startPs: number, endPs: number): TraceEvent {
  const chrome = slice(part, startPs, endPs);
  return { timePs: endPs, class: classes.finish, text: line("done", part), chrome: [chrome] };
}

/** The part has failed, at that time. */
export function failed(part: Part, startPs: number, endPs: number, error: unknown): TraceEvent {
  const code = codeOf(error);
  const { name, args, ...span } = slice(part, startPs, endPs);
  const reason = error instanceof Error ? error.message.split("\n", 1)[0] : String(error);
  const facts = { ...args, error: code, reason };
  const chrome = { ...span, name: `${name} ${code}`, cname: "terrible", args: facts } as const;
  return { timePs: endPs, class: classes.finish, text: line("fail", part, code), chrome: [chrome] };
}

function line(event: string, part: Part, error?: string): string {
  const { who, comm, number, algorithm } = part;
  const words = [
    event,
    who,
    `comm=${fieldValue(comm)}`,
    `call=${number}`,
    error && `error=${fieldValue(error)}`,
  ];
  return [...words, whatOf(part), algorithm].filter((word) => word !== undefined).join(" ");
}

function slice(part: Part, startPs: number, endPs: number): ChromeEvent {
  const { pid, comm, number, algorithm } = part;
  const args = { comm, call: number, ...(algorithm === undefined ? {} : { algorithm }) };
  const span = { pid, tid: rows.calls, ts: us(startPs), dur: us(endPs - startPs) };
  return { name: whatOf(part), ph: "X", ...span, args };
}

function whatOf({ call: { collective, dtype, count } }: Part): string {
  return dtype === undefined ? collective : `${collective} ${dtype}[${count}]`;
}

/** The code of an error, or what else it is called. */
function codeOf(error: unknown): string {
  const { code, name } = Object(error) as { readonly code?: unknown; readonly name?: unknown };
  const known = [code, name].find((each) => typeof each === "string");
  return known === undefined ? typeof error : String(known);
}
