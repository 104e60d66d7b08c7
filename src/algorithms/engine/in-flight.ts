/**
 * Messages that were sent and not yet received: a queue for every edge, all in one pool that is used again and again.
 * So memory grows with what is under way at the same time and not with what is ever sent.
 */
import { doubled } from "./edges.ts";

const none = -1;

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
