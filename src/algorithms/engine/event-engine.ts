/**
 * The event engine: ports that lanes share, slots that a sender must wait for, and links that messages queue for.
 *
 * A message leaves when its sender has reached the step, and the send port and a slot of its channel are free. It takes
 * the links of its route one after another, each in order of arrival, and then the receiver's port. Where anything is
 * shared, half steps run in the order of time. A lane that shares neither ports nor links runs until it has to wait.
 * Events of the same time run by class, links first, then in the order in which they were queued.
 */
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertArgument, assertInteger, hasFields } from "../arguments.ts";
import { none } from "../program.ts";
import { EventQueue } from "./event-queue.ts";
import { type Fabric, type LinkModel, reportEvery, type Timing } from "./model.ts";
import { assertEnded, assertRun, InFlight, type RunOptions } from "./recurrence.ts";
import type { Traffic } from "./traffic.ts";

/** The resources that messages contend for. */
export interface EventOptions extends RunOptions {
  /** Links that messages share; none when left out. */
  readonly fabric?: Fabric | undefined;
  /** Messages between two lanes that are sent but not received before the sender waits, 1 to 1,024; unlimited when left out. */
  readonly credits?: number | undefined;
}

/** The times, and the number of messages that waited. */
export interface EventTiming extends Timing {
  /** Messages that waited for a link. */
  readonly waited: number;
}

/** Times of any traffic. */
export function runEvents(
  traffic: Traffic,
  model: LinkModel,
  options: EventOptions = {},
): EventTiming {
  assertRun("runEvents", traffic, model, options);
  const { fabric, credits = Infinity } = options;
  const isFabric = fabric === undefined || hasFields(fabric, fabricKinds);
  assertArgument(isFabric, "runEvents", "fabric", fabric, "shared links, as fabricOf gives them");
  if (fabric !== undefined) {
    assertInteger("runEvents", "fabric.links", fabric.links, 0, Number.MAX_SAFE_INTEGER);
  }
  if (credits !== Infinity) assertInteger("runEvents", "credits", credits, 1, maxCredits);
  return new EventRun(traffic, model, options).run();
}

const fabricKinds = {
  links: "number",
  link: "function",
  latency: "function",
  occupancy: "function",
} as const;

/** Most credits: each of them takes memory for every pair of lanes. */
export const maxCredits = 1024;

/** Classes of events at the same time. */
const classes = { link: 0, lane: 1 } as const;

class EventRun {
  readonly #traffic: Traffic;
  readonly #model: LinkModel;
  readonly #options: EventOptions;
  readonly #fabric: Fabric | undefined;
  readonly #queue = new EventQueue();
  readonly #flight: InFlight;
  readonly #lanes: number;
  /** No lane shares a port or link, so lanes need not run in the order of time. */
  readonly #isUnshared: boolean;
  readonly #now: Float64Array;
  readonly #sendPort: Float64Array;
  readonly #recvPort: Float64Array;
  readonly #sent: Float64Array;
  readonly #at: Int32Array;
  readonly #stepsLeft: Int32Array;
  /** Elements that a lane has received and not forwarded yet; `none` before a receive. */
  readonly #held: Float64Array;
  /** By edge: 1 while its receiver waits for a message. */
  readonly #awaited: Uint8Array;
  readonly #slots: Slots | undefined;
  readonly #positions: LinkPositions | undefined;
  /** Time from which each link is free. */
  readonly #linkFree: Float64Array;
  #received = 0;
  #waited = 0;

  constructor(traffic: Traffic, model: LinkModel, options: EventOptions) {
    const { ranks, channels, starts, times, edgeTo } = traffic;
    const { start = [], fabric, credits = Infinity } = options;
    const lanes = ranks * channels;
    this.#traffic = traffic;
    this.#model = model;
    this.#options = options;
    this.#fabric = fabric;
    this.#lanes = lanes;
    this.#isUnshared = channels === 1 && fabric === undefined;
    this.#flight = new InFlight(edgeTo.length);
    this.#sendPort = Float64Array.from({ length: ranks }, (_, rank) => start[rank] ?? 0);
    this.#recvPort = this.#sendPort.slice();
    this.#now = Float64Array.from(
      { length: lanes },
      (_, lane) => this.#sendPort[Math.floor(lane / channels)] as number,
    );
    this.#sent = new Float64Array(ranks);
    this.#at = starts.slice(0, lanes);
    this.#stepsLeft = Int32Array.from(
      { length: lanes },
      (_, lane) => times[starts[lane] as number] ?? 0,
    );
    this.#held = new Float64Array(lanes).fill(none);
    this.#awaited = new Uint8Array(edgeTo.length);
    this.#slots = credits === Infinity ? undefined : new Slots(edgeTo.length, credits);
    this.#positions = fabric === undefined ? undefined : new LinkPositions();
    this.#linkFree = new Float64Array(fabric?.links ?? 0);
  }

  run(): EventTiming {
    const queue = this.#queue;
    const lanes = this.#lanes;
    for (let lane = 0; lane < lanes; lane++) this.#schedule(lane);
    for (let event = queue.pop(); event !== undefined; event = queue.pop()) {
      if (event >= lanes) this.#takeLink(event - lanes, queue.time);
      else if (this.#isUnshared) this.#runLane(event);
      else if (this.#halfStep(event)) this.#schedule(event);
    }
    assertEnded(this.#traffic, this.#at);
    const { ranks, channels } = this.#traffic;
    const finished = new Float64Array(ranks);
    this.#now.forEach((time, lane) => {
      const rank = Math.floor(lane / channels);
      finished[rank] = Math.max(finished[rank] as number, time, this.#sendPort[rank] as number);
    });
    return { finished, sentElements: this.#sent, waited: this.#waited };
  }

  #runLane(lane: number): void {
    while (this.#halfStep(lane)) {
      // Until the lane ends or waits.
    }
  }

  /** Queues the next half step of a lane, unless it waits for a message. */
  #schedule(lane: number): void {
    const { starts, receives } = this.#traffic;
    const run = this.#at[lane] as number;
    if (run >= (starts[lane + 1] as number)) return;
    const now = this.#now[lane] as number;
    const receive = receives[run] as number;
    if (receive === none || this.#held[lane] !== none) {
      this.#queue.push(lane, now, classes.lane);
      return;
    }
    const message = this.#flight.heads[receive] as number;
    const arrival = message === none ? Number.NaN : (this.#flight.arrival[message] as number);
    if (Number.isNaN(arrival)) this.#awaited[receive] = 1;
    else this.#queue.push(lane, Math.max(now, arrival), classes.lane);
  }

  /** Runs the receiving or the sending half of a lane's step; false when the lane ended or has to wait. */
  #halfStep(lane: number): boolean {
    const { starts, receives, sends, elements } = this.#traffic;
    const run = this.#at[lane] as number;
    if (run >= (starts[lane + 1] as number)) return false;
    const receive = receives[run] as number;
    const send = sends[run] as number;
    let held = this.#held[lane] as number;
    if (receive === none) held = elements[run] as number;
    else if (held === none) {
      held = this.#receive(lane, receive);
      if (held === none) return false;
      if (send === none) this.#endRepetition(lane, run);
      else this.#held[lane] = held;
      return true;
    }
    if (!this.#send(lane, send, held)) return false;
    this.#held[lane] = none;
    this.#endRepetition(lane, run);
    return true;
  }

  /** Ends one repetition of a run. */
  #endRepetition(lane: number, run: number): void {
    const left = (this.#stepsLeft[lane] as number) - 1;
    if (left > 0) {
      this.#stepsLeft[lane] = left;
      return;
    }
    this.#at[lane] = run + 1;
    this.#stepsLeft[lane] = this.#traffic.times[run + 1] ?? 0;
  }

  /** Elements received, or `none` when the message has not arrived. */
  #receive(lane: number, edge: number): number {
    const flight = this.#flight;
    const message = flight.heads[edge] as number;
    const arrival = message === none ? Number.NaN : (flight.arrival[message] as number);
    if (Number.isNaN(arrival)) {
      this.#awaited[edge] = 1;
      return none;
    }
    const { channels } = this.#traffic;
    const rank = this.#isUnshared ? lane : Math.floor(lane / channels);
    const elements = flight.elements[message] as number;
    const recvStart = Math.max(arrival, this.#recvPort[rank] as number);
    const taken = recvStart + this.#model.occupancy(elements);
    // After a slower link the tail arrives later than the port could take it.
    const late = Math.max(0, (this.#positions?.tail[message] ?? 0) - taken);
    const recvEnd = taken + late;
    this.#recvPort[rank] = recvEnd;
    this.#now[lane] = Math.max(this.#now[lane] as number, recvEnd);
    const sendStart = flight.sendStart[message] as number;
    this.#options.log?.add(edge, elements, sendStart, recvStart, late);
    flight.drop(edge, message);
    if (this.#slots !== undefined)
      this.#releaseSlot(this.#slots, edge, recvEnd + this.#model.latency);
    if (++this.#received % reportEvery === 0) this.#options.onProgress?.(this.#received);
    return elements;
  }

  /** Frees the slot of a received message, from the time at which its sender learns of it. */
  #releaseSlot(slots: Slots, edge: number, freeAt: number): void {
    if (!slots.release(edge, freeAt)) return;
    const sender = this.#traffic.edgeFrom[edge] as number;
    this.#queue.push(sender, Math.max(this.#now[sender] as number, freeAt), classes.lane);
  }

  /** Sends the message of a step; false when there is no free slot. */
  #send(lane: number, edge: number, elements: number): boolean {
    const { channels } = this.#traffic;
    const rank = this.#isUnshared ? lane : Math.floor(lane / channels);
    if (this.#slots !== undefined && !this.#takeSlot(this.#slots, lane, edge)) return false;
    const sendStart = Math.max(this.#now[lane] as number, this.#sendPort[rank] as number);
    const sendEnd = sendStart + this.#model.occupancy(elements);
    this.#sendPort[rank] = sendEnd;
    this.#sent[rank] = (this.#sent[rank] as number) + elements;
    this.#launch(edge, sendStart, sendEnd, elements);
    return true;
  }

  /** Puts a message in flight. */
  #launch(edge: number, sendStart: number, sendEnd: number, elements: number): void {
    const fabric = this.#fabric;
    if (fabric === undefined) {
      const arrival = sendStart + this.#model.latency;
      this.#flight.push(edge, sendStart, elements, arrival);
      this.#wake(edge, arrival);
      return;
    }
    const message = this.#flight.push(edge, sendStart, elements, Number.NaN);
    const positions = this.#positions as LinkPositions;
    positions.begin(message, edge, sendEnd, this.#flight.capacity);
    this.#forward(positions, fabric, message, sendStart);
  }

  /** Takes a slot of a channel; false when the lane has to wait. The lane is queued if the end of the wait is known. */
  #takeSlot(slots: Slots, lane: number, edge: number): boolean {
    const freeAt = slots.freeAt(edge);
    if (Number.isNaN(freeAt)) return false;
    if (freeAt > (this.#now[lane] as number)) {
      this.#now[lane] = freeAt;
      if (!this.#isUnshared) {
        // Until then another lane of the rank can use the port.
        this.#queue.push(lane, freeAt, classes.lane);
        return false;
      }
    }
    slots.take(edge);
    return true;
  }

  /** A message takes its next link, after the messages that reached the link before. */
  #takeLink(message: number, time: number): void {
    const fabric = this.#fabric as Fabric;
    const positions = this.#positions as LinkPositions;
    const link = this.#linkOf(positions, fabric, message);
    const begins = Math.max(time, this.#linkFree[link] as number);
    if (begins > time) this.#waited++;
    const passed = begins + fabric.occupancy(link, this.#flight.elements[message] as number);
    const latency = fabric.latency(link);
    this.#linkFree[link] = passed;
    positions.pass(message, passed, latency);
    this.#forward(positions, fabric, message, begins + latency);
  }

  /** Moves the head of a message to the next link, or to the receiver. */
  #forward(positions: LinkPositions, fabric: Fabric, message: number, time: number): void {
    if (this.#linkOf(positions, fabric, message) !== none) {
      this.#queue.push(this.#lanes + message, time, classes.link);
      return;
    }
    const arrival = time + this.#model.latency;
    this.#flight.arrival[message] = arrival;
    positions.tail[message] = (positions.tail[message] as number) + this.#model.latency;
    this.#wake(positions.edge[message] as number, arrival);
  }

  #linkOf(positions: LinkPositions, fabric: Fabric, message: number): number {
    const { edgeFrom, edgeFar, channels } = this.#traffic;
    const edge = positions.edge[message] as number;
    const to = edgeFar[edge] as number;
    // A message without a receiver leaves its port and is dropped.
    if (to === none) return none;
    const from = Math.floor((edgeFrom[edge] as number) / channels);
    const hop = positions.hop[message] as number;
    const link = fabric.link(from, Math.floor(to / channels), hop);
    const is = link === none || (link >= 0 && link < fabric.links && Number.isInteger(link));
    if (is) return link;
    const needed = `one of ${fabric.links} links, or -1 after the last`;
    throw invalid("runEvents", "fabric.link", `${textOf(link)} at hop ${hop}`, needed);
  }

  /** Queues the lane that waits for a message, now that its arrival is known. */
  #wake(edge: number, arrival: number): void {
    if (this.#awaited[edge] !== 1) return;
    this.#awaited[edge] = 0;
    const lane = this.#traffic.edgeTo[edge] as number;
    this.#queue.push(lane, Math.max(this.#now[lane] as number, arrival), classes.lane);
  }
}

/** Positions of messages on shared links, by their number in `InFlight`. */
class LinkPositions {
  edge = new Int32Array(0);
  /** Links passed. */
  hop = new Int32Array(0);
  /** Time at which the last byte reaches the position of the head. */
  tail = new Float64Array(0);

  /** A message leaves its sender; `capacity` is the pool's. */
  begin(message: number, edge: number, sendEnd: number, capacity: number): void {
    if (capacity > this.edge.length) this.#grow(capacity);
    this.edge[message] = edge;
    this.hop[message] = 0;
    this.tail[message] = sendEnd;
  }

  /** The last byte of a message passes a link of that latency. */
  pass(message: number, passed: number, latency: number): void {
    this.hop[message] = (this.hop[message] as number) + 1;
    this.tail[message] = Math.max(this.tail[message] as number, passed) + latency;
  }

  #grow(capacity: number): void {
    const edge = new Int32Array(capacity);
    const hop = new Int32Array(capacity);
    const tail = new Float64Array(capacity);
    edge.set(this.edge);
    hop.set(this.hop);
    tail.set(this.tail);
    this.edge = edge;
    this.hop = hop;
    this.tail = tail;
  }
}

/** The slots of every channel, one for each message that is sent and not yet received, and the times they are free. */
class Slots {
  readonly #credits: number;
  /** By edge and slot: the time at which the sender learned that the slot's last message was received. */
  readonly #freeAt: Float64Array;
  readonly #taken: Int32Array;
  readonly #released: Int32Array;
  /** By edge: 1 while its sender waits for a slot. */
  readonly #awaited: Uint8Array;

  constructor(edges: number, credits: number) {
    this.#credits = credits;
    this.#freeAt = new Float64Array(edges * credits);
    this.#taken = new Int32Array(edges);
    this.#released = new Int32Array(edges);
    this.#awaited = new Uint8Array(edges);
  }

  /** Time at which the next slot of an edge is free; NaN while unknown, and the edge is then marked as awaited. */
  freeAt(edge: number): number {
    const taken = this.#taken[edge] as number;
    if (taken < this.#credits) return 0;
    if ((this.#released[edge] as number) > taken - this.#credits) {
      return this.#freeAt[edge * this.#credits + (taken % this.#credits)] as number;
    }
    this.#awaited[edge] = 1;
    return Number.NaN;
  }

  /** Takes that slot. */
  take(edge: number): void {
    this.#taken[edge] = (this.#taken[edge] as number) + 1;
  }

  /** Frees the slot of the next received message of an edge; true when the sender waits for it. */
  release(edge: number, freeAt: number): boolean {
    const released = this.#released[edge] as number;
    this.#freeAt[edge * this.#credits + (released % this.#credits)] = freeAt;
    this.#released[edge] = released + 1;
    if (this.#awaited[edge] === 0) return false;
    this.#awaited[edge] = 0;
    return true;
  }
}
