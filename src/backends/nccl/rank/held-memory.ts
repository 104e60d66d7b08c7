/** Memory that is not to be given back yet, because NCCL may be using it. */

/** Held addresses, with the number of their holds. */
export class HeldMemory {
  readonly #holds = new Map<bigint, number>();
  /** Addresses to be freed once they are not held. */
  readonly #due = new Set<bigint>();
  readonly #free: (ptr: bigint) => void;

  /** `free` gets addresses that are due when the last hold on them goes. */
  constructor(free: (ptr: bigint) => void) {
    this.#free = free;
  }

  hold(ptr: bigint): void {
    this.#holds.set(ptr, (this.#holds.get(ptr) ?? 0) + 1);
  }

  letGo(ptr: bigint): void {
    const left = (this.#holds.get(ptr) ?? 0) - 1;
    if (left > 0) {
      this.#holds.set(ptr, left);
      return;
    }
    this.#holds.delete(ptr);
    if (this.#due.delete(ptr)) this.#free(ptr);
  }

  /** True when memory that is due has to stay for now. */
  keeps(ptr: bigint): boolean {
    const isHeld = this.#holds.has(ptr);
    if (isHeld) this.#due.add(ptr);
    return isHeld;
  }
}
