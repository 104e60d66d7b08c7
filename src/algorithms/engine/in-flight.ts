/**
 * Messages that were sent and not yet received: a queue for every edge, all in one pool that is used again and again.
 * So memory grows with what is under way at the same time and not with what is ever sent.
 */
import { none } from "../program.ts";
import { doubled } from "./traffic.ts";

/** The messages under way. The columns are for the engines' inner loops; they are replaced when the pool grows. */
export class InFlight {
  /** First and last message of each edge; -1 where there is none. */
  readonly heads: Int32Array;
  readonly #tails: Int32Array;
  /** When a message took its sender's port, and how long it is. */
  sendStart = new Float64Array(64);
  elements = new Float64Array(64);
  /** When its head reaches the receiver; NaN while that is open. */
  arrival = new Float64Array(64);
  #next = new Int32Array(64);
  #free = none;
  #used = 0;

  constructor(edges: number) {
    this.heads = new Int32Array(edges).fill(none);
    this.#tails = new Int32Array(edges).fill(none);
  }

  /** Room in the pool. */
  get capacity(): number {
    return this.#next.length;
  }

  /** Puts a message at the end of an edge's queue and gives its number. */
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

  /** Takes the first message off an edge's queue. Its columns hold until the next push. */
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

/** A copy with as much room again. */
function longer(array: Float64Array<ArrayBuffer>): Float64Array<ArrayBuffer> {
  const copy = new Float64Array(2 * array.length);
  copy.set(array);
  return copy;
}

// Where messages are on their way through shared links, by their number in `InFlight`.

/** The ways of the messages that are under way. */
export class Journeys {
  edge = new Int32Array(0);
  /** Links that are passed. */
  hop = new Int32Array(0);
  /** When the last byte has come as far as the head has. */
  tail = new Float64Array(0);

  /** A message leaves its sender; `capacity` is that of the pool it is in. */
  begin(message: number, edge: number, sendEnd: number, capacity: number): void {
    if (capacity > this.edge.length) this.#grow(capacity);
    this.edge[message] = edge;
    this.hop[message] = 0;
    this.tail[message] = sendEnd;
  }

  /** A message's last byte has passed a link, which is so long. */
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

// The slots of every channel: as many messages as it has may be under way or not yet taken.

/** When the slots are free again. */
export class Slots {
  readonly #credits: number;
  /** By edge and slot: when the message that used it last was taken, and its sender knew. */
  readonly #freeAt: Float64Array;
  readonly #taken: Int32Array;
  readonly #given: Int32Array;
  /** Edges whose sender waits for a slot. */
  readonly #awaited: Uint8Array;

  constructor(edges: number, credits: number) {
    this.#credits = credits;
    this.#freeAt = new Float64Array(edges * credits);
    this.#taken = new Int32Array(edges);
    this.#given = new Int32Array(edges);
    this.#awaited = new Uint8Array(edges);
  }

  /** When the next slot of an edge is free; NaN, and noted as awaited, while that is not known. */
  freeAt(edge: number): number {
    const taken = this.#taken[edge] as number;
    if (taken < this.#credits) return 0;
    if ((this.#given[edge] as number) > taken - this.#credits) {
      return this.#freeAt[edge * this.#credits + (taken % this.#credits)] as number;
    }
    this.#awaited[edge] = 1;
    return Number.NaN;
  }

  /** Uses that slot. */
  take(edge: number): void {
    this.#taken[edge] = (this.#taken[edge] as number) + 1;
  }

  /** The next message of an edge was taken; true when its sender waits for the slot. */
  give(edge: number, freeAt: number): boolean {
    const given = this.#given[edge] as number;
    this.#freeAt[edge * this.#credits + (given % this.#credits)] = freeAt;
    this.#given[edge] = given + 1;
    if (this.#awaited[edge] === 0) return false;
    this.#awaited[edge] = 0;
    return true;
  }
}
