/** Lanes that can take a step, the earliest first; of equal times the one that was queued first. */
export class EventQueue {
  readonly #times: number[] = [];
  readonly #order: number[] = [];
  readonly #lanes: number[] = [];
  #queued = 0;

  get size(): number {
    return this.#lanes.length;
  }

  push(lane: number, time: number): void {
    let at = this.#lanes.length;
    const order = this.#queued++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!this.#before(time, order, parent)) break;
      this.#move(parent, at);
      at = parent;
    }
    this.#set(at, lane, time, order);
  }

  /** Takes the earliest lane; `undefined` when there is none. */
  pop(): number | undefined {
    const first = this.#lanes[0];
    const lane = this.#lanes.pop();
    const time = this.#times.pop();
    const order = this.#order.pop();
    if (lane === undefined || time === undefined || order === undefined) return undefined;
    const size = this.#lanes.length;
    if (size === 0) return lane;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      const right = child + 1;
      if (
        right < size &&
        this.#before(this.#times[right] as number, this.#order[right] as number, child)
      ) {
        child = right;
      }
      if (this.#before(time, order, child)) break;
      this.#move(child, at);
      at = child;
    }
    this.#set(at, lane, time, order);
    return first;
  }

  #before(time: number, order: number, at: number): boolean {
    const other = this.#times[at] as number;
    return time < other || (time === other && order < (this.#order[at] as number));
  }

  #move(from: number, to: number): void {
    this.#set(
      to,
      this.#lanes[from] as number,
      this.#times[from] as number,
      this.#order[from] as number,
    );
  }

  #set(at: number, lane: number, time: number, order: number): void {
    this.#lanes[at] = lane;
    this.#times[at] = time;
    this.#order[at] = order;
  }
}
