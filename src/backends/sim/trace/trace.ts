/**
 * The trace: all events of a world in virtual time, as stable text and as a Chrome trace.
 *
 * Pass one to `sim({ trace })` and read it afterwards. Events are ordered by (time, class, sequence); the same seed
 * gives the same bytes.
 */

import type { MessageEvent, TimedMachine } from "../../../algorithms/index.ts";
import type {
  CallSet,
  CommInfo,
  FailedCall,
  RankCall,
  Transfer,
} from "../../../api/backend-entry.ts";
import { escaped } from "../../../api/error-text.ts";
import { getOrCreate } from "../../../api/get-or-create.ts";
import type { CollectiveName } from "../../../api/index.ts";
import { assertOptions, invalid, textOf } from "../../../api/option-kinds.ts";
import { sum } from "../../../api/sums.ts";
import {
  callSpan,
  classes,
  completedEvent,
  failedEvent,
  fieldValue,
  lineBreaks,
  postedEvent,
  rows,
  type TracedCall,
  type TracedRank,
  type TracedSpan,
  type TraceEvent,
  us,
} from "./events.ts";
import { type ChromeEvent, timelineSvg } from "./timeline.ts";

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

/** Options of a trace. */
export interface TraceOptions {
  /**
   * False leaves out the messages of collective calls, which are many for large programs; true when left out. Sends and
   * receives are always there.
   */
  readonly messages?: boolean | undefined;
}

/** Position of one generation of a world in a trace. */
interface TracedWorld {
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
  /** @internal */
  readonly hasMessages: boolean;

  constructor(options: TraceOptions = {}) {
    assertOptions<TraceOptions>("Trace", options, { messages: "boolean" });
    this.hasMessages = options.messages ?? true;
  }

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
    return this.#messages.toSorted((a, b) => a.recvEnd - b.recvEnd);
  }

  /** The calls and the work of all ranks, in the order in which they end. */
  spans(): readonly TracedSpan[] {
    const all = [...this.#events].flatMap(({ spans = [] }) => spans);
    return all.sort((a, b) => a.endPs - b.endPs);
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

  /**
   * The trace as a drawing: a band a process, in virtual time, with arrows for messages.
   *
   * @throws InvalidArgumentError for a title that is no string.
   */
  toSvg(title = "virtual time"): string {
    if (typeof title !== "string") throw invalid("toSvg", "title", textOf(title), "a string");
    return timelineSvg(this.toChrome().traceEvents, title);
  }

  /**
   * Position of a generation of a world, assigned at its first event.
   *
   * @internal
   */
  tracedWorld(world: WorldTrace): TracedWorld {
    return getOrCreate(this.#worlds, world, () => {
      const earlier = [...this.#worlds.keys()];
      const firstPid = sum(earlier.map(({ size }) => size));
      const firsts = new Set([...earlier, world].map(({ first }) => first));
      return { world: [...firsts].indexOf(world.first) + 1, firstPid, ranks: 0 };
    });
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

/** The times at which a message occupies the sender's port and the receiver's, in picoseconds. */
export interface TransferTimes {
  readonly sendStart: number;
  readonly sendEnd: number;
  readonly recvStart: number;
  readonly recvEnd: number;
}

/** The times from which each side of a transfer could move its data, in picoseconds, and the measured machine of its time. */
export interface TransferStarts {
  readonly sendPs: number;
  readonly recvPs: number;
  readonly on: TimedMachine | undefined;
}

/** A part of a call that a trace shows. */
interface Shown {
  /** Changes when the trace is cleared. */
  readonly place: TracedWorld;
  readonly part: TracedCall;
  readonly startPs: number;
  readonly made: TraceEvent;
  readonly done: TraceEvent;
}

const noPlan = { algorithm: undefined, on: undefined } as const;

/** The calls that a message belongs to. */
type MessageNumbers = Pick<TracedMessage, "call" | "sendCall" | "message">;

/** The facts of a traced call beside its plan. */
interface CallFacts {
  /** True where no claim is made about NCCL's bits, although NCCL was to be followed or the algorithm is the caller's. */
  readonly unclaimed: boolean;
  /** The calls as the ranks made them: the replay in place of its calls. */
  readonly posted: readonly RankCall[];
  /** The measured machine of the time. */
  readonly on: TimedMachine | undefined;
}

/** Records the events of one generation of a world. */
export class WorldTrace {
  readonly size: number;
  /** The first generation of the same world. */
  readonly first: WorldTrace;
  readonly #trace: Trace;
  readonly #generation: number;
  /** The number of each rank in the first generation. */
  readonly #initialRanks: readonly number[];
  /** Numbers of messages from one rank to another so far, by communicator, sender and receiver. */
  readonly #sent = new WeakMap<CommInfo, Map<number, number>>();
  /** The traced parts of a rank's calls, in call order, until they can no longer fail. */
  readonly #shown = new WeakMap<RankCall, Shown[]>();
  /** The spans of the message of a send or a receive. */
  readonly #messageSpans = new WeakMap<RankCall, TracedSpan[]>();

  /** The trace of a newly opened world, or of the rebuild of `before`. */
  constructor(trace: Trace, initialRanks: readonly number[], before: WorldTrace | undefined) {
    this.size = initialRanks.length;
    this.#trace = trace;
    this.first = before?.first ?? this;
    this.#generation = before === undefined ? 1 : before.#generation + 1;
    this.#initialRanks = initialRanks;
  }

  /** The name of a rank's process; ranks of the first generation of the first world have no suffix. */
  processName(rank: number, { world }: TracedWorld): string {
    const initialRank = this.#initialRanks[rank] as number;
    const worldText = world > 1 ? ` of world ${world}` : "";
    const generationText = this.#generation > 1 ? `, generation ${this.#generation}` : "";
    const was = initialRank === rank ? "" : ` (rank ${initialRank} at first)`;
    return `rank ${rank}${worldText}${generationText}${was}`;
  }

  /** Every rank's part of a call: the times of the call and of its result. */
  call(
    { comm, number, calls }: CallSet,
    startedPs: readonly number[],
    plan: string,
    { unclaimed, posted, on }: CallFacts,
  ): void {
    const algorithm = unclaimed ? `${plan} unclaimed` : plan;
    for (const [at, call] of calls.entries()) {
      const part = this.#part(comm, call, number, { algorithm, on });
      const startPs = startedPs[call.rank] as number;
      const begin = postedEvent(part, startPs);
      const end = completedEvent(part, startPs, call.finishedAtPs);
      this.#trace.add(begin);
      this.#trace.add(end);
      const owner = posted[at] as RankCall;
      const shown = { place: this.#place, part, startPs, made: begin, done: end };
      getOrCreate(this.#shown, owner, () => []).push(shown);
    }
  }

  /**
   * Records the failure of a call: it ends when its rank gets the error. In a replay the calls before it are done, and later
   * ones do not begin. A call that was not dispatched begins at `freePs`, when the rank's earlier calls are done, unless it
   * failed before.
   */
  failed(comm: CommInfo, { call, number, error, atPs }: FailedCall, freePs: number): void {
    const shown = (this.#shown.get(call) ?? []).filter(({ place }) => place === this.#place);
    const begun = shown.filter(({ startPs }) => startPs < atPs);
    for (const later of shown.slice(begun.length)) {
      this.#trace.remove(later.made);
      this.#trace.remove(later.done);
    }
    const last = begun.at(-1);
    if (last !== undefined) {
      this.#trace.remove(last.done);
      this.#trace.add(failedEvent(last.part, last.startPs, atPs, error));
      return;
    }
    const spans = this.#messageSpans.get(call) ?? [];
    const ended = spans.findIndex((span) => {
      return span.name === call.collective && span.call?.number === number;
    });
    if (ended >= 0) spans.splice(ended, 1);
    const part = this.#part(comm, call, number);
    const startPs = Math.min(Math.max(call.postedAtPs, freePs), atPs);
    this.#trace.add(postedEvent(part, startPs));
    this.#trace.add(failedEvent(part, startPs, atPs, error));
  }

  /** True if the messages of collective calls are recorded. */
  get hasMessages(): boolean {
    return this.#trace.hasMessages;
  }

  /** A message between two ranks of a call. */
  message({ comm, number }: CallSet, collective: CollectiveName, event: MessageEvent): void {
    this.#message(comm, collective, { call: number }, event);
  }

  /** A send and its matched receive; `began` are the times from which the two sides could move data. */
  transfer(comm: CommInfo, transfer: Transfer, times: TransferTimes, began: TransferStarts): void {
    const { send, recv, sendNumber, recvNumber } = transfer;
    const message = this.#nthBetween(comm, send.rank, recv.rank);
    const event = { from: send.rank, to: recv.rank, channel: 0, elements: send.count, step: 0 };
    const numbers = { call: recvNumber, sendCall: sendNumber, message };
    const facts = { algorithm: undefined, on: began.on };
    const { sendPs, recvPs } = began;
    const sent = { ...facts, peerStartPs: recvPs };
    const received = { ...facts, peerStartPs: sendPs };
    const spans = [
      callSpan(this.#part(comm, send, sendNumber, sent), sendPs, times.sendEnd, false),
      callSpan(this.#part(comm, recv, recvNumber, received), recvPs, times.recvEnd, false),
    ];
    for (const call of [send, recv]) this.#messageSpans.set(call, spans);
    this.#message(comm, "send", numbers, { ...event, ...times }, spans);
  }

  #nthBetween(comm: CommInfo, from: number, to: number): number {
    const sent = getOrCreate(this.#sent, comm, () => new Map());
    const both = from * comm.ranks.length + to;
    const number = sent.get(both) ?? 0;
    sent.set(both, number + 1);
    return number;
  }

  #message(
    comm: CommInfo,
    collective: CollectiveName,
    numbers: MessageNumbers,
    event: MessageEvent,
    spans: readonly TracedSpan[] = [],
  ): void {
    const from = comm.ranks[event.from] as number;
    const to = comm.ranks[event.to] as number;
    const { elements, sendStart, sendEnd, recvStart, recvEnd, channel } = event;
    const sender = this.#seen(from);
    const receiver = this.#seen(to);
    const { world, generation } = receiver.of;
    const id = this.#trace.addMessage({
      ...{ ...event, from, to, world, generation },
      ...{ comm: comm.name, ...numbers },
    });
    const { call, sendCall = call, message } = numbers;
    const both = message === undefined ? "" : ` sendCall=${sendCall} message=${message}`;
    const text =
      `recv ${receiver.rankText} from=${from} comm=${fieldValue(comm.name)} call=${call}${both} channel=${channel} ` +
      `elements=${elements} sent=${sendStart}..${sendEnd} began=${recvStart}`;
    const name = `${collective} ${from}→${to}`;
    const args = message === undefined ? { elements, call } : { elements, call, message };
    const sendArgs = message === undefined ? args : { ...args, call: sendCall };
    const flow = { name, id, cat: "message" };
    const out = { pid: sender.pid, tid: rows.out, ts: us(sendStart) };
    const into = { pid: receiver.pid, tid: rows.in };
    const chrome: ChromeEvent[] = [
      { name, ph: "X", ...out, dur: us(sendEnd - sendStart), args: sendArgs },
      { ...flow, ph: "s", ...out },
      { name, ph: "X", ...into, ts: us(recvStart), dur: us(recvEnd - recvStart), args },
      { ...flow, ph: "f", bp: "e", ...into, ts: us(recvEnd) },
    ];
    this.#trace.add({ timePs: recvEnd, class: classes.receive, text, chrome, spans });
  }

  /** Virtual compute of a rank. */
  work(rank: number, startPs: number, endPs: number, label: string | undefined): void {
    const { pid, rankText, of } = this.#seen(rank);
    const name = label ?? "work";
    const times = { ts: us(startPs), dur: us(endPs - startPs) };
    this.#trace.add({
      timePs: startPs,
      class: classes.work,
      text: `work ${rankText} until=${endPs} ${name}`,
      chrome: [{ name, ph: "X", pid, tid: rows.work, ...times }],
      spans: [{ kind: "work", ...of, name, startPs, endPs, call: undefined }],
    });
  }

  get #place(): TracedWorld {
    return this.#trace.tracedWorld(this);
  }

  /** The rank of an event. */
  #seen(rank: number): TracedRank {
    const place = this.#place;
    const { world, firstPid } = place;
    place.ranks = Math.max(place.ranks, rank + 1);
    const worldText = world > 1 ? ` world=${world}` : "";
    const generationText = this.#generation > 1 ? ` generation=${this.#generation}` : "";
    const of = { world, generation: this.#generation, rank };
    return { pid: firstPid + rank, rankText: `rank=${rank}${worldText}${generationText}`, of };
  }

  #part(
    comm: CommInfo,
    call: RankCall,
    number: number,
    plan: Pick<TracedCall, "algorithm" | "on" | "peerStartPs"> = noPlan,
  ): TracedCall {
    return { ...this.#seen(comm.ranks[call.rank] as number), comm, number, call, ...plan };
  }
}
