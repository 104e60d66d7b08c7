/**
 * Allocates addresses of a memory: first fit over free ranges, which are merged when they touch.
 *
 * Addresses above `top` were never given out, so the memory there still holds zeros.
 */
import { partitionPoint } from "../../../api/partition-point.ts";

/** Addresses from `begin` to `limit`. */
export class Allocator {
  /** Bytes of the range for so many bytes. */
  readonly #rangeBytes: (bytes: number) => number;
  /** Free ranges by address: where each begins, and its bytes. */
  readonly #begins: number[];
  readonly #sizes: number[];
  #top: number;
  #live = 0;

  constructor(begin: number, limit: number, rangeBytes: (bytes: number) => number) {
    this.#begins = [begin];
    this.#sizes = [limit - begin];
    this.#top = begin;
    this.#rangeBytes = rangeBytes;
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
  take(bytes: number, limit = Number.POSITIVE_INFINITY): number | undefined {
    const size = this.#rangeBytes(bytes);
    const found = this.#sizes.findIndex(
      (free, at) => free >= size && (this.#begins[at] as number) + size <= limit,
    );
    if (found < 0) return undefined;
    const address = this.#begins[found] as number;
    const rest = (this.#sizes[found] as number) - size;
    if (rest === 0) this.#remove(found);
    else {
      this.#begins[found] = address + size;
      this.#sizes[found] = rest;
    }
    this.#top = Math.max(this.#top, address + size);
    this.#live += size;
    return address;
  }

  /** Frees a range of `take`, of as many bytes. */
  give(address: number, bytes: number): void {
    const size = this.#rangeBytes(bytes);
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
