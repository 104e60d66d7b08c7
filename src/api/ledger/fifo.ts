/** First in, first out, in constant time: a loop leaves thousands of calls in the queue. */

/** Compacts the array once this many slots, and more than half of it, are free. */
const mostLeft = 64;

/** A queue, oldest first. */
export class Fifo<T> {
  #places: (T | undefined)[] = [];
  /** Where the oldest is. */
  #head = 0;

  get length(): number {
    return this.#places.length - this.#head;
  }

  get first(): T | undefined {
    return this.#places[this.#head];
  }

  /** The item behind this many others. */
  at(index: number): T | undefined {
    return this.#places[this.#head + index];
  }

  push(item: T): void {
    this.#places.push(item);
  }

  /** The oldest, which leaves. */
  shift(): T | undefined {
    const left = this.#places[this.#head];
    if (this.length === 0) return undefined;
    this.#places[this.#head++] = undefined;
    if (this.#head >= mostLeft && this.#head >= this.length) {
      this.#places.splice(0, this.#head);
      this.#head = 0;
    }
    return left;
  }

  /** All of them, oldest first. */
  items(): T[] {
    return this.#places.slice(this.#head) as T[];
  }

  clear(): void {
    this.#places = [];
    this.#head = 0;
  }
}
