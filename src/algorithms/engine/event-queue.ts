/**
 * Pending events, the earliest first: a binary heap in typed arrays.
 *
 * The order is total: by time, then by class, then by the sequence in which events were queued. So no result depends on
 * the state of the heap.
 */

/** Of events at the same time, those of a lower class come first. */
export type EventClass = 0 | 1;

/** Sequence numbers of one class stay below this, and doubles hold class and sequence together exactly. */
const classSpan = 2 ** 50;

const firstCapacity = 64;

/** A queue of events; the caller gives each event a number. */
export class EventQueue {
  #times = new Float64Array(firstCapacity);
  #orders = new Float64Array(firstCapacity);
  #events = new Int32Array(firstCapacity);
  #size = 0;
  #queued = 0;
  #time = 0;

  /** Time of the event that was popped last. */
  get time(): number {
    return this.#time;
  }

  push(event: number, time: number, kind: EventClass = 0): void {
    if (this.#size === this.#events.length) this.#grow();
    const times = this.#times;
    const orders = this.#orders;
    const events = this.#events;
    const order = kind * classSpan + this.#queued++;
    let at = this.#size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = times[parent] as number;
      if (time > above || (time === above && order > (orders[parent] as number))) break;
      times[at] = above;
      orders[at] = orders[parent] as number;
      events[at] = events[parent] as number;
      at = parent;
    }
    times[at] = time;
    orders[at] = order;
    events[at] = event;
  }

  /** Removes the earliest event; `undefined` when there is none. */
  pop(): number | undefined {
    if (this.#size === 0) return undefined;
    const first = this.#events[0] as number;
    this.#time = this.#times[0] as number;
    const last = --this.#size;
    if (last > 0) this.#sink(last);
    return first;
  }

  /** Moves the event at index `from` to the top, and sinks it to its position. */
  #sink(from: number): void {
    const times = this.#times;
    const orders = this.#orders;
    const events = this.#events;
    const time = times[from] as number;
    const order = orders[from] as number;
    const event = events[from] as number;
    let at = 0;
    for (let child = 1; child < from; child = 2 * at + 1) {
      let least = times[child] as number;
      const right = child + 1;
      if (right < from) {
        const other = times[right] as number;
        if (
          other < least ||
          (other === least && (orders[right] as number) < (orders[child] as number))
        ) {
          child = right;
          least = other;
        }
      }
      if (time < least || (time === least && order < (orders[child] as number))) break;
      times[at] = least;
      orders[at] = orders[child] as number;
      events[at] = events[child] as number;
      at = child;
    }
    times[at] = time;
    orders[at] = order;
    events[at] = event;
  }

  #grow(): void {
    const times = new Float64Array(2 * this.#size);
    const orders = new Float64Array(2 * this.#size);
    const events = new Int32Array(2 * this.#size);
    times.set(this.#times);
    orders.set(this.#orders);
    events.set(this.#events);
    this.#times = times;
    this.#orders = orders;
    this.#events = events;
  }
}
