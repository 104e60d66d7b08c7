/** Numbers for the pairs of lanes that messages go between: an open-addressing table in typed arrays. */

/** No lane: a peer that does not exist. */
const none = -1;

/** The edges seen so far. */
export class EdgeTable {
  #from = new Int32Array(64);
  #to = new Int32Array(64);
  #size = 0;
  /** Edge number plus one; 0 where a slot is free. At least twice as many as edges. */
  #slots = new Int32Array(128);

  get size(): number {
    return this.#size;
  }

  /** Number of the edge between two lanes, or places; the next free one when it is new. */
  edge(from: number, to: number): number {
    const slots = this.#slots;
    const mask = slots.length - 1;
    let slot = hash(from, to) & mask;
    for (let found = slots[slot] as number; found !== 0; found = slots[slot] as number) {
      if (this.#from[found - 1] === from && this.#to[found - 1] === to) return found - 1;
      slot = (slot + 1) & mask;
    }
    if (this.#size === this.#from.length) {
      this.#grow();
      return this.edge(from, to);
    }
    this.#from[this.#size] = from;
    this.#to[this.#size] = to;
    slots[slot] = ++this.#size;
    return this.#size - 1;
  }

  /** Where each edge begins and ends. */
  ends(): { readonly from: Int32Array; readonly to: Int32Array } {
    return { from: this.#from.slice(0, this.#size), to: this.#to.slice(0, this.#size) };
  }

  #grow(): void {
    this.#from = doubled(this.#from);
    this.#to = doubled(this.#to);
    const slots = new Int32Array(2 * this.#slots.length);
    const mask = slots.length - 1;
    for (let edge = 0; edge < this.#size; edge++) {
      let slot = hash(this.#from[edge] ?? none, this.#to[edge] ?? none) & mask;
      while (slots[slot] !== 0) slot = (slot + 1) & mask;
      slots[slot] = edge + 1;
    }
    this.#slots = slots;
  }
}

function hash(from: number, to: number): number {
  const mixed = Math.imul(from ^ Math.imul(to, 0x9e3779b1), 0x85ebca6b);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}

/** A copy with as much room again. */
export function doubled(array: Int32Array): Int32Array<ArrayBuffer> {
  const longer = new Int32Array(2 * array.length);
  longer.set(array);
  return longer;
}
