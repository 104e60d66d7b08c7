/** The slots of every channel: as many messages as it has may be under way or not yet taken. */

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
