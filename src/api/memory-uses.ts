/**
 * Overlaps among the memory of many buffers: those of a group's messages, or of all ranks of a call.
 *
 * Ranges are sorted by their begin, so that one question takes a binary search in place of a comparison with each buffer.
 */
import { type DeviceBuffer, memoryOf } from "./buffer.ts";
import type { Memory } from "./memory.ts";

/** A buffer, and the number of its user: a message of a group, or a rank. */
export interface MemoryUse {
  readonly buffer: DeviceBuffer;
  readonly user: number;
}

/** Indexes buffers by their memory, and by their address on devices with adopted memory. */
export class MemoryUses {
  readonly #byMemory = new Map<Memory, Ranges<number>>();
  /** By device, for devices with adopted memory: their adopted ranges, and all of them. */
  readonly #adopted = new Map<string, Ranges<bigint>>();
  readonly #addressed = new Map<string, Ranges<bigint>>();

  constructor(all: readonly MemoryUse[]) {
    for (const use of all) {
      const memory = memoryOf(use.buffer);
      add(this.#byMemory, memory, offsets(use));
      if (memory.adopted === true) add(this.#adopted, memory.device, addresses(use));
    }
    if (this.#adopted.size === 0) return;
    for (const use of all) {
      const { device } = memoryOf(use.buffer);
      if (this.#adopted.has(device)) add(this.#addressed, device, addresses(use));
    }
  }

  /** True when a buffer of another user has bytes of this one, in the sense of `overlapBytes`. */
  isShared(use: MemoryUse): boolean {
    const memory = memoryOf(use.buffer);
    if (this.#byMemory.get(memory)?.overlaps(offsets(use)) === true) return true;
    const beside = (memory.adopted === true ? this.#addressed : this.#adopted).get(memory.device);
    return beside?.overlaps(addresses(use)) === true;
  }
}

/** Positions from `begin` to `end`, exclusive: offsets in one memory, or addresses on one device. */
interface Range<P extends number | bigint> {
  readonly begin: P;
  readonly end: P;
  readonly user: number;
}

function offsets({ buffer: { byteOffset, byteLength }, user }: MemoryUse): Range<number> {
  return { begin: byteOffset, end: byteOffset + byteLength, user };
}

function addresses({ buffer: { ptr, byteLength }, user }: MemoryUse): Range<bigint> {
  return { begin: ptr, end: ptr + BigInt(byteLength), user };
}

function add<K, P extends number | bigint>(
  index: Map<K, Ranges<P>>,
  key: K,
  range: Range<P>,
): void {
  if (range.begin === range.end) return;
  const ranges = index.get(key);
  if (ranges === undefined) index.set(key, new Ranges(range));
  else ranges.add(range);
}

/** The furthest end among the first ranges, and the furthest one of any other user. */
interface PrefixReach<P extends number | bigint> {
  readonly end: P;
  readonly user: number;
  readonly otherEnd: P | undefined;
}

/** Ranges of one memory, or of one device; sorted at the first question that needs it. */
class Ranges<P extends number | bigint> {
  readonly #ranges: Range<P>[];
  /** The only user; `undefined` when there are several. */
  #soleUser: number | undefined;
  #reaches: readonly PrefixReach<P>[] | undefined;

  constructor(first: Range<P>) {
    this.#ranges = [first];
    this.#soleUser = first.user;
  }

  add(range: Range<P>): void {
    if (range.user !== this.#soleUser) this.#soleUser = undefined;
    this.#ranges.push(range);
  }

  /** True when a range of another user overlaps this one. */
  overlaps({ begin, end, user }: Range<P>): boolean {
    if (begin === end || user === this.#soleUser) return false;
    this.#reaches ??= this.#sorted();
    const reach = this.#reaches[this.#countBefore(end) - 1];
    if (reach === undefined) return false;
    const furthest = reach.user === user ? reach.otherEnd : reach.end;
    return furthest !== undefined && furthest > begin;
  }

  /** Sorts the ranges by their begin, and gives the reach of each prefix. */
  #sorted(): PrefixReach<P>[] {
    this.#ranges.sort((a, b) => (a.begin < b.begin ? -1 : Number(a.begin > b.begin)));
    let reach: PrefixReach<P> | undefined;
    return this.#ranges.map((range) => {
      reach = reach === undefined ? { ...range, otherEnd: undefined } : reachWith(reach, range);
      return reach;
    });
  }

  /** Number of sorted ranges that begin before a position. */
  #countBefore(position: P): number {
    let low = 0;
    let high = this.#ranges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#ranges[middle] as Range<P>).begin < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function reachWith<P extends number | bigint>(
  reach: PrefixReach<P>,
  { end, user }: Range<P>,
): PrefixReach<P> {
  if (user === reach.user) return end > reach.end ? { ...reach, end } : reach;
  if (end > reach.end) return { end, user, otherEnd: reach.end };
  const isFurther = reach.otherEnd === undefined || end > reach.otherEnd;
  return isFurther ? { ...reach, otherEnd: end } : reach;
}
