/**
 * The trace: all events of a world in virtual time, as stable text and as a Chrome trace.
 *
 * Pass one to `sim({ trace })` and read it afterwards. Events are ordered by (time, class, sequence); the same seed
 * gives the same bytes.
 */

import type { MessageEvent } from "../../algorithms/index.ts";
import { escaped } from "../../api/error-text.ts";
import type { ChromeEvent } from "./timeline.ts";
import { timelineSvg } from "./timeline.ts";
import type { WorldTrace } from "./world-trace.ts";

/** A message of a traced call: sender, receiver, bytes, and the times at which it held their ports. */
export interface TracedMessage extends MessageEvent {
  /** The number of the world in the trace, from 1; a rebuilt world keeps the number of the one that it replaces. */
  readonly world: number;
  /** Generation of that world: 1, and one more with every rebuild. */
  readonly generation: number;
  /** Name of the communicator, and number of the call on it: of a message point to point that of its receive. */
  readonly comm: string;
  readonly call: number;
  /** Of a message point to point: number of its send, which its rank counts apart. */
  readonly sendCall?: number;
  /**
   * Of a message point to point: the number of earlier messages from the same sender to the same receiver on this communicator.
   */
  readonly message?: number;
}

/** Classes order events of the same time: first what ends, then what begins. */
export const classes = { receive: 0, finish: 1, work: 2, post: 3 } as const;

/** The event at a time. */
export interface TraceEvent {
  readonly timePs: number;
  readonly class: number;
  readonly text: string;
  /** The event as Chrome's trace viewer draws it; none for events that only the text shows. */
  readonly chrome: readonly ChromeEvent[];
}

/** Rows of a rank in the Chrome trace. */
export const rows = { calls: 0, out: 1, in: 2, work: 3 } as const;

/** Position of one generation of a world in a trace. */
export interface TracedWorld {
  /** The number of its world, from 1. */
  readonly world: number;
  /** The process of rank 0 in the Chrome trace; those of the other ranks follow. */
  readonly firstPid: number;
  /** Number of ranks with events, from rank 0 on. */
  ranks: number;
}

/** Collects the events of the worlds it is passed to. */
export class Trace {
  #events = new Set<TraceEvent>();
  #messages: TracedMessage[] = [];
  /** Generations of worlds with events, in the order of their first event. */
  #worlds = new Map<WorldTrace, TracedWorld>();

  /** Number of events so far. */
  get length(): number {
    return this.#events.size;
  }

  /** Drops all events. */
  clear(): void {
    this.#events.clear();
    this.#messages = [];
    this.#worlds.clear();
  }

  /**
   * A line an event: time in picoseconds, kind, rank, and the facts, always in the same order. Control characters of names and
   * labels are escaped: a line feed is `\u000a`. A name with spaces or quotes is in quotes, as JSON has it. A call ends with
   * `done`, or with `fail` and the error's code if its operation failed, at the rank's time of the failure. Point-to-point data
   * has the numbers of the calls at both ends, as errors name them, and its number among the messages between the two ranks.
   * `generation=2` follows the ranks of a rebuilt world, whose clocks restart at 0. `world=2` follows the ranks of the trace's
   * second world.
   */
  toText(): string {
    return this.#sorted()
      .map(({ timePs, text }) => `${timePs} ${escaped(text, lineBreaks)}\n`)
      .join("");
  }

  /**
   * Every message, in the order in which they arrive. Ranks are those of the world; times are picoseconds of the virtual
   * clock. `step` is the step of the plan's program that receives it; 0 for point to point, which has no program.
   */
  messages(): readonly TracedMessage[] {
    return [...this.#messages].sort((a, b) => a.recvEnd - b.recvEnd);
  }

  /**
   * The trace for chrome://tracing and Perfetto: a process a rank, rows for calls, ports and work, arrows for messages. A
   * failed call has the code of its error in its name, and the error among its arguments. The ranks of a rebuilt world are
   * processes of their own, with the generation in their names.
   */
  toChrome(): { readonly displayTimeUnit: "ns"; readonly traceEvents: readonly ChromeEvent[] } {
    const names = [...this.#worlds].flatMap(([world, place]) => namesOf(world, place));
    const events = this.#sorted().flatMap(({ chrome }) => chrome);
    return { displayTimeUnit: "ns", traceEvents: [...names, ...events] };
  }

  /** The trace as a drawing: a band a process, in virtual time, with arrows for messages. */
  toSvg(title = "virtual time"): string {
    return timelineSvg(this.toChrome().traceEvents, title);
  }

  /**
   * Position of a generation of a world, assigned at its first event.
   *
   * @internal
   */
  tracedWorld(world: WorldTrace): TracedWorld {
    const known = this.#worlds.get(world);
    if (known !== undefined) return known;
    let firstPid = 0;
    for (const { size } of this.#worlds.keys()) firstPid += size;
    const firsts = new Set([...this.#worlds.keys(), world].map(({ first }) => first));
    const place = { world: [...firsts].indexOf(world.first) + 1, firstPid, ranks: 0 };
    this.#worlds.set(world, place);
    return place;
  }

  /** @internal */
  add(event: TraceEvent): void {
    this.#events.add(event);
  }

  /**
   * Removes an event.
   *
   * @internal
   */
  remove(event: TraceEvent): void {
    this.#events.delete(event);
  }

  /**
   * Adds a message, and returns its number among all messages.
   *
   * @internal
   */
  addMessage(message: TracedMessage): number {
    return this.#messages.push(message) - 1;
  }

  /** Sorting is stable, so events of the same time and class keep the order of their addition. */
  #sorted(): TraceEvent[] {
    return [...this.#events].sort((a, b) => a.timePs - b.timePs || a.class - b.class);
  }
}

/** The names of the processes and rows of one generation of a world. */
function namesOf(world: WorldTrace, place: TracedWorld): ChromeEvent[] {
  return Array.from({ length: place.ranks }, (_, rank) => {
    const pid = place.firstPid + rank;
    const name = world.processName(rank, place);
    return [
      { name: "process_name", ph: "M", pid, tid: 0, args: { name } } as const,
      ...Object.entries(rows).map(
        ([row, tid]) => ({ name: "thread_name", ph: "M", pid, tid, args: { name: row } }) as const,
      ),
    ];
  }).flat();
}

/** Characters that break a line or control a terminal. */
const lineBreaks = /[\p{Cc}\u2028\u2029]/gu;

/** A name as the value of a field: in quotes where it could be read as more than one. */
export function fieldValue(name: string): string {
  return /[\p{Zs}"]/u.test(name) ? JSON.stringify(name) : name;
}

/** Microseconds, in which Chrome's format counts. */
export function us(ps: number): number {
  return ps / 1e6;
}
