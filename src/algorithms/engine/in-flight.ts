/**
 * Messages in flight: sent and not yet received. A queue for every edge, their positions on shared links, and the slots
 * of bounded channels.
 *
 * All queues share one pool that is reused, so memory grows with the messages in flight and not with all messages sent.
 */
import { none } from "../program.ts";
import { doubled } from "./traffic.ts";

/** The messages in flight. The engines' inner loops read the columns, which are replaced when the pool grows. */
export class InFlight {
  /** First and last message of each edge; -1 where there is none. */
  readonly heads: Int32Array;
  readonly #tails: Int32Array;
  /** Time at which a message took its sender's port, and its length. */
  sendStart = new Float64Array(64);
  elements = new Float64Array(64);
  /** Time at which its head reaches the receiver; NaN while unknown. */
  arrival = new Float64Array(64);
  #next = new Int32Array(64);
  #free = none;
  #used = 0;

  constructor(edges: number) {
    this.heads = new Int32Array(edges).fill(none);
    this.#tails = new Int32Array(edges).fill(none);
  }

  /** Capacity of the pool. */
  get capacity(): number {
    return this.#next.length;
  }

  /** Appends a message to an edge's queue and returns its number. */
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

  /** Removes the first message of an edge's queue. Its columns are valid until the next push. */
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

/** A copy of twice the capacity. */
function longer(array: Float64Array<ArrayBuffer>): Float64Array<ArrayBuffer> {
  const copy = new Float64Array(2 * array.length);
  copy.set(array);
  return copy;
}

/** Positions of messages on shared links, by their number in `InFlight`. */
export class LinkPositions {
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
export class Slots {
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
