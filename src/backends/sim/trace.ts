/**
 * The trace: everything that happened, in virtual time, as stable text and as a Chrome trace.
 *
 * Pass one to `sim({ trace })` and read it afterwards. Events are ordered by (time, class, sequence); the same seed
 * gives the same bytes.
 */

import type { MessageEvent } from "../../algorithms/index.ts";
import type { CallSet, CommInfo, Transfer } from "../../api/index.ts";
import type { ChromeEvent } from "./chrome-event.ts";
import { timelineSvg } from "./timeline.ts";
import type { TransferTimes } from "./transfers.ts";

/** A message of a traced call: who sent how much to whom, and when it held their ports. */
export interface TracedMessage extends MessageEvent {
  /** Name of the communicator, and number of the call on it. */
  readonly comm: string;
  readonly call: number;
}

/** Classes order events of the same time: first what ends, then what begins. */
const classes = { receive: 0, finish: 1, work: 2, post: 3 } as const;

interface Event {
  readonly timePs: number;
  readonly class: number;
  readonly text: string;
  /** The event as Chrome's trace viewer draws it; none for events that only the text shows. */
  readonly chrome: readonly ChromeEvent[];
}

/** Rows of a rank in the Chrome trace. */
const rows = { calls: 0, out: 1, in: 2, work: 3 } as const;

/** Collects the events of the worlds it is passed to. */
export class Trace {
  #events: Event[] = [];
  #messages: TracedMessage[] = [];
  #ranks = 0;

  /** Number of events so far. */
  get length(): number {
    return this.#events.length;
  }

  /** Forgets everything. */
  clear(): void {
    this.#events = [];
    this.#messages = [];
    this.#ranks = 0;
  }

  /**
   * A line an event: time in picoseconds, what, who, and the facts, always in the same order. Control characters of names and
   * labels are escaped: a line feed is `\u000a`.
   */
  toText(): string {
    return this.#sorted()
      .map(({ timePs, text }) => `${timePs} ${onOneLine(text)}\n`)
      .join("");
  }

  /**
   * Every message, in the order in which they arrive. Ranks are those of the world; times are picoseconds of the virtual
   * clock. `step` is the step of the plan's program that receives it; 0 for point to point, which has no program.
   */
  messages(): readonly TracedMessage[] {
    return [...this.#messages].sort((a, b) => a.recvEnd - b.recvEnd);
  }

  /** The trace for chrome://tracing and Perfetto: a process a rank, rows for calls, ports and work, arrows for messages. */
  toChrome(): { readonly displayTimeUnit: "ns"; readonly traceEvents: readonly ChromeEvent[] } {
    const names: ChromeEvent[] = [];
    for (let rank = 0; rank < this.#ranks; rank++) {
      names.push({
        name: "process_name",
        ph: "M",
        pid: rank,
        tid: 0,
        args: { name: `rank ${rank}` },
      });
      for (const [row, tid] of Object.entries(rows)) {
        names.push({ name: "thread_name", ph: "M", pid: rank, tid, args: { name: row } });
      }
    }
    const events = this.#sorted().flatMap(({ chrome }) => chrome);
    return { displayTimeUnit: "ns", traceEvents: [...names, ...events] };
  }

  /** The trace as a drawing: a band a rank, in virtual time, with arrows for messages. */
  toSvg(title = "virtual time"): string {
    return timelineSvg(this.toChrome().traceEvents, title);
  }

  /**
   * Every rank's part of a call: when it was made and when its result was there. `unclaimed` where NCCL was to be
   * followed and nothing is said about its bits.
   */
  call(set: CallSet, startedPs: readonly number[], plan: string, unclaimed = false): void {
    const algorithm = unclaimed ? `${plan} unclaimed` : plan;
    for (const { rank, dtype, count, finishedAtPs } of set.calls) {
      const world = set.comm.ranks[rank] as number;
      this.#ranks = Math.max(this.#ranks, world + 1);
      const what = dtype === undefined ? set.collective : `${set.collective} ${dtype}[${count}]`;
      const text = `rank=${world} comm=${set.comm.name} call=${set.number} ${what} ${algorithm}`;
      const start = startedPs[rank] as number;
      this.#add(start, classes.post, `post ${text}`, []);
      const args = { comm: set.comm.name, call: set.number, algorithm };
      const span = { pid: world, tid: rows.calls, ts: us(start), dur: us(finishedAtPs - start) };
      this.#add(finishedAtPs, classes.finish, `done ${text}`, [
        { name: what, ph: "X", ...span, args },
      ]);
    }
  }

  /** A message between two ranks of a call. */
  message(set: CallSet, event: MessageEvent): void {
    const from = set.comm.ranks[event.from] as number;
    const to = set.comm.ranks[event.to] as number;
    const { elements, sendStart, sendEnd, recvStart, recvEnd, channel } = event;
    this.#ranks = Math.max(this.#ranks, from + 1, to + 1);
    const id = this.#messages.length;
    this.#messages.push({ ...event, from, to, comm: set.comm.name, call: set.number });
    const text =
      `recv rank=${to} from=${from} comm=${set.comm.name} call=${set.number} channel=${channel} ` +
      `elements=${elements} sent=${sendStart}..${sendEnd} began=${recvStart}`;
    const name = `${set.collective} ${from}→${to}`;
    const args = { elements, call: set.number };
    const flow = { name, id, cat: "message" };
    this.#add(recvEnd, classes.receive, text, [
      {
        name,
        ph: "X",
        pid: from,
        tid: rows.out,
        ts: us(sendStart),
        dur: us(sendEnd - sendStart),
        args,
      },
      { ...flow, ph: "s", pid: from, tid: rows.out, ts: us(sendStart) },
      {
        name,
        ph: "X",
        pid: to,
        tid: rows.in,
        ts: us(recvStart),
        dur: us(recvEnd - recvStart),
        args,
      },
      { ...flow, ph: "f", bp: "e", pid: to, tid: rows.in, ts: us(recvEnd) },
    ]);
  }

  /** A send and the receive it met. */
  transfer(comm: CommInfo, { send, recv }: Transfer, times: TransferTimes): void {
    const set: CallSet = { comm, number: 0, collective: "send", calls: [send, recv] };
    const event = { from: send.rank, to: recv.rank, channel: 0, elements: send.count, step: 0 };
    this.message(set, { ...event, ...times });
  }

  /** Virtual compute of a rank. */
  work(rank: number, startPs: number, endPs: number, label: string | undefined): void {
    this.#ranks = Math.max(this.#ranks, rank + 1);
    const name = label ?? "work";
    this.#add(startPs, classes.work, `work rank=${rank} until=${endPs} ${name}`, [
      { name, ph: "X", pid: rank, tid: rows.work, ts: us(startPs), dur: us(endPs - startPs) },
    ]);
  }

  #add(timePs: number, order: number, text: string, chrome: readonly ChromeEvent[]): void {
    this.#events.push({ timePs, class: order, text, chrome });
  }

  /** Sorting is stable, so events of the same time and class keep the sequence in which they came. */
  #sorted(): Event[] {
    return [...this.#events].sort((a, b) => a.timePs - b.timePs || a.class - b.class);
  }
}

function onOneLine(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function us(ps: number): number {
  return ps / 1e6;
}
