/**
 * One piece of the caller's host memory and its place on a device while calls use it.
 *
 * Output of a call under way is newer on the device than in the array: a later call of the rank that reads it
 * takes it from there, so that calls may follow one another without waiting.
 */
import type { HostArrayMemory } from "../memory/host-array-memory.ts";
import { common, type Range, united, without } from "../memory/ranges.ts";
import type { LocalRank } from "./local-rank.ts";

/** Data on its way back to the array. */
interface Arrival {
  readonly area: ArrayArea;
  readonly range: Range;
}

/** Data on its way back to the arrays of each rank, oldest first. */
const arriving = new WeakMap<LocalRank, Arrival[]>();

/** A range of an ArrayBuffer on the device of one rank. */
export class ArrayArea implements Range {
  readonly local: LocalRank;
  readonly memory: HostArrayMemory;
  readonly begin: number;
  readonly end: number;
  readonly #ptr: bigint;
  readonly #read: readonly Range[];
  readonly #written: readonly Range[];

  /** `read` and `written` are what calls read and write of `range`. */
  constructor(
    local: LocalRank,
    memory: HostArrayMemory,
    range: Range,
    read: readonly Range[],
    written: readonly Range[],
  ) {
    this.local = local;
    this.memory = memory;
    this.begin = range.begin;
    this.end = range.end;
    this.#read = united(common(read, range));
    this.#written = united(common(written, range));
    this.#ptr = local.areas.take(range.end - range.begin);
  }

  /** Where a byte of the memory is on the device. */
  at(byteOffset: number): bigint {
    return this.#ptr + BigInt(byteOffset - this.begin);
  }

  holds(memory: object, range: Range): boolean {
    return this.memory === memory && this.begin <= range.begin && range.end <= this.end;
  }

  /** Copies in what calls read, in stream order: the newest bytes, wherever they are. */
  copyIn(): void {
    const { device, staging } = this.local;
    let left: readonly Range[] = this.#read;
    for (const { area, range } of (arriving.get(this.local) ?? []).toReversed()) {
      if (area.memory !== this.memory) continue;
      for (const { begin, end } of area === this ? [] : common(left, range)) {
        device.use().copy(this.at(begin), area.at(begin), end - begin, device.stream);
      }
      left = without(left, range);
    }
    for (const { begin, end } of left) {
      staging.upload(this.at(begin), this.#bytes({ begin, end }));
    }
  }

  /** Begins to copy back what calls wrote; the function returned is to be called once that is done, or has failed. */
  copyBack(): (failed: boolean) => void {
    const { local } = this;
    const others = arriving.get(local) ?? [];
    const own = this.#written.map((range) => {
      const bytes = local.staging.fetch(this.at(range.begin), range.end - range.begin);
      return { area: this, range, bytes };
    });
    arriving.set(local, [...others, ...own]);
    return (failed) => {
      const all = arriving.get(local) ?? [];
      const rest = all.filter((each) => !own.some((one) => one === each));
      arriving.set(local, rest);
      if (failed) return;
      for (const { range, bytes } of own) this.#bytes(range).set(bytes);
    };
  }

  #bytes({ begin, end }: Range): Uint8Array {
    const { worldRank: rank, device } = this.local;
    const whose = { rank, ranks: [rank], device: device.name };
    return this.memory.bytes(begin, end - begin, whose);
  }

  /** Gives its place back; work that uses it may still be queued. */
  release(): void {
    this.local.areas.giveBack(this.#ptr, this.end - this.begin);
  }
}
