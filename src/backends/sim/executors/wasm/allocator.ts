/**
 * Allocates addresses of an arena: first fit over free ranges, which are merged when they touch.
 *
 * Addresses above `top` were never given out, so the memory there still holds zeros.
 */
import { partitionPoint } from "../../../../api/partition-point.ts";

/**
 * Every range begins at a multiple of this: the length of a cache line.
 *
 * @internal
 */
export const rangeAlignment = 64;

/**
 * The distance between the starts of equally long ranges, from a minimum of bytes on: their cache lines are `lines` modulo
 * `modulo`.
 *
 * A fold reads and writes one place of sixteen buffers at a time. At distances of a power of two, all these lines would share
 * one set of a cache, with eight ways. All their pages would share one entry of the page tables, so that way prediction and
 * prefetching fail. So buffers begin five lines, and large ones five pages and five lines, after a power of two;
 * docs/design/tunings.md has the measurement.
 */
const spacings = [
  { bytes: 2 ** 20, lines: 325, modulo: 1024 },
  { bytes: 2 ** 12, lines: 5, modulo: 8 },
] as const;

/** Addresses from `begin` to `limit`. */
export class Allocator {
  readonly #limit: number;
  /** Free ranges below `top` by address: where each begins, and its bytes. */
  readonly #begins: number[] = [];
  readonly #sizes: number[] = [];
  #top: number;
  #live = 0;

  constructor(begin: number, limit: number) {
    this.#top = Math.ceil(begin / rangeAlignment) * rangeAlignment;
    this.#limit = limit;
  }

  /** The end of all addresses that were ever allocated. */
  get top(): number {
    return this.#top;
  }

  /** Allocated bytes. */
  get live(): number {
    return this.#live;
  }

  /** The address of `bytes` free bytes that end by `limit`; `undefined` where there are none in one piece. */
  take(bytes: number, limit: number = this.#limit): number | undefined {
    const size = roundUp(bytes);
    const found = this.#sizes.findIndex(
      (free, at) => free >= size && (this.#begins[at] as number) + size <= limit,
    );
    if (found < 0) return this.#extend(size, limit);
    const address = this.#begins[found] as number;
    const rest = (this.#sizes[found] as number) - size;
    if (rest === 0) this.#remove(found);
    else {
      this.#begins[found] = address + size;
      this.#sizes[found] = rest;
    }
    this.#live += size;
    return address;
  }

  /** Frees a range of `take`, of as many bytes. */
  give(address: number, bytes: number): void {
    const size = roundUp(bytes);
    this.#live -= size;
    const begins = this.#begins;
    let at = partitionPoint(begins.length, (range) => (begins[range] as number) < address);
    begins.splice(at, 0, address);
    this.#sizes.splice(at, 0, size);
    if (this.#touches(at)) this.#merge(at);
    if (at > 0 && this.#touches(at - 1)) {
      at--;
      this.#merge(at);
    }
  }

  #extend(size: number, limit: number): number | undefined {
    const last = this.#begins.length - 1;
    const atTop =
      last >= 0 && (this.#begins[last] as number) + (this.#sizes[last] as number) === this.#top;
    const address = atTop ? (this.#begins[last] as number) : this.#top;
    if (address + size > limit) return undefined;
    if (atTop) this.#remove(last);
    this.#top = address + size;
    this.#live += size;
    return address;
  }

  #touches(at: number): boolean {
    const next = this.#begins[at + 1];
    return (
      next !== undefined && (this.#begins[at] as number) + (this.#sizes[at] as number) === next
    );
  }

  #merge(at: number): void {
    this.#sizes[at] = (this.#sizes[at] as number) + (this.#sizes[at + 1] as number);
    this.#remove(at + 1);
  }

  #remove(at: number): void {
    this.#begins.splice(at, 1);
    this.#sizes.splice(at, 1);
  }
}

/** Bytes of the range of an allocation. Empty allocations take a range too, so that all addresses differ. */
function roundUp(bytes: number): number {
  const lines = Math.max(1, Math.ceil(bytes / rangeAlignment));
  const spacing = spacings.find((row) => bytes >= row.bytes);
  if (spacing === undefined) return lines * rangeAlignment;
  const { modulo } = spacing;
  const more = (spacing.lines + modulo - (lines % modulo)) % modulo;
  return (lines + more) * rangeAlignment;
}
