/**
 * The order of turns in which no push ever comes too late. A pull that was not pushed yet is a lease of its version; every push
 * of another worker makes it one staler.
 *
 * Leases are always such that pushing them in the order of their versions keeps each within the bound. A pull or a push that
 * would break that waits. The oldest lease may therefore always be pushed, so workers that push or leave never wait for ever.
 */
export class Admission {
  readonly #bound: number;
  /** Versions by worker, in the order of pulls, which is that of versions. */
  readonly #leases = new Map<number, number>();

  /** `bound`: most pushes of others between a pull and its push. */
  constructor(bound: number) {
    this.#bound = bound;
  }

  /** The version that a worker has pulled and not pushed. */
  leaseOf(worker: number): number | undefined {
    return this.#leases.get(worker);
  }

  /** One more lease would be the last to be pushed, after all others. */
  mayPull(): boolean {
    return this.#leases.size <= this.#bound;
  }

  /** A worker pulls the present version. */
  pull(worker: number, version: number): void {
    this.#leases.delete(worker);
    this.#leases.set(worker, version);
  }

  /** The others' leases stay within the bound when this worker makes the version after the present one. */
  mayPush(worker: number, version: number): boolean {
    const others = [...this.#leases].filter(([each]) => each !== worker).map(([, lease]) => lease);
    return others.every((lease, place) => version + 1 + place - lease <= this.#bound);
  }

  /** Gives a lease back, pushed or not. */
  release(worker: number): void {
    this.#leases.delete(worker);
  }
}
