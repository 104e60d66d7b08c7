/**
 * Device memory that calls borrow while they are under way, kept and used again by size.
 *
 * The next user of an area queues on the same stream, so that it may be given back while work that uses it is queued. A
 * pool grows to what the calls that are under way at a time, and the recordings that exist, use of each size.
 */

/** Sizes are rounded up to eighths of a power of two, so that similar ones share areas and little is wasted. */
const leastBytes = 512;

/** Areas of one device. */
export class AreaPool {
  readonly #allocate: (bytes: number) => bigint;
  readonly #spare = new Map<number, bigint[]>();

  constructor(allocate: (bytes: number) => bigint) {
    this.#allocate = allocate;
  }

  /** An area of at least so many bytes, with any contents. */
  take(bytes: number): bigint {
    const size = areaBytes(bytes);
    return this.#spare.get(size)?.pop() ?? this.#allocate(size);
  }

  /** Gives back what `take` gave for so many bytes. */
  giveBack(ptr: bigint, bytes: number): void {
    const size = areaBytes(bytes);
    const spare = this.#spare.get(size);
    if (spare === undefined) this.#spare.set(size, [ptr]);
    else spare.push(ptr);
  }
}

function areaBytes(bytes: number): number {
  const granule = Math.max(leastBytes, 2 ** (Math.floor(Math.log2(bytes)) - 3));
  return Math.ceil(bytes / granule) * granule;
}
