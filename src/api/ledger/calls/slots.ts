/** The open collective calls of one communicator, by number: oldest first, without a gap. */
import type { CommInfo } from "../../backend.ts";
import { invariant } from "../../invariant.ts";
import { Fifo } from "./fifo.ts";
import { Slot } from "./slot.ts";

/** Calls that some rank has made. */
export class Slots {
  readonly #comm: CommInfo;
  readonly #slots = new Fifo<Slot>();
  #firstNumber = 0;

  constructor(comm: CommInfo) {
    this.#comm = comm;
  }

  /** The oldest. */
  get first(): Slot | undefined {
    return this.#slots.first;
  }

  /** The call of that number; made where no rank has come to it before. */
  numbered(number: number): Slot {
    if (this.#slots.length === 0) this.#firstNumber = number;
    const slot = this.#slots.at(number - this.#firstNumber) ?? this.#next(number);
    invariant(slot.number === number, "ranks make calls in turn");
    return slot;
  }

  /** The oldest is about to be served. */
  shift(): void {
    if (this.#slots.shift() !== undefined) this.#firstNumber++;
  }

  clear(): void {
    this.#slots.clear();
  }

  #next(number: number): Slot {
    const slot = new Slot(number, this.#comm);
    this.#slots.push(slot);
    return slot;
  }
}
