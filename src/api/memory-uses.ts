/**
 * Overlaps among the memory of many buffers: those of a group's messages, or of all ranks of a call.
 *
 * Ranges are sorted by their begin, so that one question takes a binary search in place of a comparison with each buffer.
 */
import { type DeviceBuffer, memoryOf } from "./buffer.ts";
import { getOrCreate } from "./get-or-create.ts";
import type { Memory } from "./memory.ts";
import { partitionPoint } from "./partition-point.ts";

/**
 * Adds a buffer to the last `ends` in each memory; false where it does not begin behind those before it, and may overlap one.
 * Finds buffers apart without an index: the parts of a buffer that a loop takes, or buffers of their own.
 */
export function addBehind(ends: Map<Memory, number>, buffer: DeviceBuffer): boolean {
  const { byteOffset, byteLength } = buffer;
  if (byteLength === 0) return true;
  const memory = memoryOf(buffer);
  if (memory.adopted === true || byteOffset < (ends.get(memory) ?? 0)) return false;
  ends.set(memory, byteOffset + byteLength);
  return true;
}

/** Indexes buffers by their memory, and by their address on devices with adopted memory. A user is a message, or a rank. */
export class MemoryUses {
  readonly #byMemory = new Map<Memory, Ranges<number>>();
  #hasAdopted = false;
  /** By device with adopted memory: the adopted ranges, and all of them. Made at the first question. */
  #byAddress: ReadonlyMap<string, AddressRanges> | undefined;

  /** Adds a buffer; all are added before the first question. */
  add(buffer: DeviceBuffer, user: unknown): void {
    const { byteOffset: begin, byteLength } = buffer;
    if (byteLength === 0) return;
    const memory = memoryOf(buffer);
    const range = { begin, end: begin + byteLength, user };
    getOrCreate(this.#byMemory, memory, () => new Ranges()).add(range);
    if (memory.adopted === true) this.#hasAdopted = true;
  }

  /** True when a buffer of another user has bytes of this one, which was added, in the sense of `overlapBytes`. */
  isShared(buffer: DeviceBuffer, user: unknown): boolean {
    const { byteOffset: begin, byteLength } = buffer;
    const memory = memoryOf(buffer);
    const within = this.#byMemory.get(memory);
    const range = { begin, end: begin + byteLength, user };
    if (within?.overlaps(range) === true) return true;
    if (!this.#hasAdopted) return false;
    this.#byAddress ??= addressRanges(this.#byMemory);
    const beside = this.#byAddress.get(memory.device);
    const others = memory.adopted === true ? beside?.all : beside?.adopted;
    const { ptr } = buffer;
    return others?.overlaps({ begin: ptr, end: ptr + BigInt(byteLength), user }) === true;
  }
}

/** Positions from `begin` to `end`, exclusive: offsets in one memory, or addresses on one device. */
interface Range<P extends number | bigint> {
  readonly begin: P;
  readonly end: P;
  readonly user: unknown;
}

/** The ranges of a device with adopted memory. */
interface AddressRanges {
  readonly adopted: Ranges<bigint>;
  readonly all: Ranges<bigint>;
}

function addressRanges(
  byMemory: ReadonlyMap<Memory, Ranges<number>>,
): ReadonlyMap<string, AddressRanges> {
  const byDevice = new Map<string, AddressRanges>();
  for (const { device, adopted } of byMemory.keys()) {
    if (adopted === true) byDevice.set(device, { adopted: new Ranges(), all: new Ranges() });
  }
  for (const [{ device, ptr, adopted }, ranges] of byMemory) {
    const known = byDevice.get(device);
    for (const { begin, end, user } of known === undefined ? [] : ranges.items) {
      const range = { begin: ptr + BigInt(begin), end: ptr + BigInt(end), user };
      known?.all.add(range);
      if (adopted === true) known?.adopted.add(range);
    }
  }
  return byDevice;
}

/** The furthest end among the first ranges, and the furthest one of any other user. */
interface PrefixReach<P extends number | bigint> {
  readonly end: P;
  readonly user: unknown;
  readonly otherEnd: P | undefined;
}

/** Ranges of one memory, or of one device; sorted at the first question that needs it. */
class Ranges<P extends number | bigint> {
  readonly items: Range<P>[] = [];
  #hasSeveralUsers = false;
  #reaches: readonly PrefixReach<P>[] | undefined;

  add(range: Range<P>): void {
    this.#hasSeveralUsers ||= range.user !== (this.items[0] ?? range).user;
    this.items.push(range);
  }

  /** True when a range of another user overlaps this one. */
  overlaps({ begin, end, user }: Range<P>): boolean {
    if (begin === end || (!this.#hasSeveralUsers && this.items[0]?.user === user)) return false;
    this.#reaches ??= this.#sorted();
    const { items } = this;
    const before = partitionPoint(items.length, (at) => (items[at] as Range<P>).begin < end);
    const reach = this.#reaches[before - 1];
    if (reach === undefined) return false;
    const furthest = reach.user === user ? reach.otherEnd : reach.end;
    return furthest !== undefined && furthest > begin;
  }

  /** Sorts the ranges by their begin, and gives the reach of each prefix. */
  #sorted(): PrefixReach<P>[] {
    this.items.sort((a, b) => (a.begin < b.begin ? -1 : Number(a.begin > b.begin)));
    let reach: PrefixReach<P> | undefined;
    return this.items.map((range) => {
      reach = reach === undefined ? { ...range, otherEnd: undefined } : reachWith(reach, range);
      return reach;
    });
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
