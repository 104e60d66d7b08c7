/**
 * One WebAssembly memory with the buffers of its worlds in it, and the kernels over it.
 *
 * Shared memory keeps every view when it grows; memory of one thread loses all. `bytes` and `words` are therefore renewed after
 * each growth, and must not be kept beyond an allocation.
 */
import { fillElements, fingerprintOf } from "../../../../algorithms/host-memory.ts";
import type { DType } from "../../../../api/index.ts";
import { invariant } from "../../../../api/invariant.ts";
import type { SimMemory } from "../../executor.ts";
import { Allocator } from "../allocator.ts";
import type { WasmLinearMemory, WasmModule } from "./module.ts";
import { compiled, instantiate, type Kernels, maxPages, newMemory } from "./module.ts";

const pageBytes = 65_536;
/** The last page stays free: loads reach a little beyond a buffer's end. */
const usablePages = maxPages - 1;
/**
 * Every range begins at a multiple of this, the length of a cache line; the first one behind one line, so that no address is 0.
 *
 * @internal
 */
export const rangeAlignment = 64;
/** Grown by at least this part of its size, so that growing is rare. */
const minGrowthPages = 256;
const firstPages = 16;

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

/**
 * Bytes of the range of an allocation. Empty allocations take a range too, so that all addresses differ.
 *
 * @internal
 */
export function rangeBytes(bytes: number): number {
  const lines = Math.max(1, Math.ceil(bytes / rangeAlignment));
  const spacing = spacings.find((row) => bytes >= row.bytes);
  if (spacing === undefined) return lines * rangeAlignment;
  const { modulo } = spacing;
  const more = (spacing.lines + modulo - (lines % modulo)) % modulo;
  return (lines + more) * rangeAlignment;
}

/** Frees the memory of a collected object. */
interface Held {
  readonly arena: WeakRef<Arena>;
  readonly address: number;
  readonly byteLength: number;
}

const forgotten = new FinalizationRegistry<Held>(({ arena, address, byteLength }) =>
  arena.deref()?.give(address, byteLength),
);

/** A memory, its allocator and its kernels. */
export class Arena {
  readonly memory: WasmLinearMemory;
  readonly module: WasmModule;
  readonly kernels: Kernels;
  readonly #allocator: Allocator;
  /** The end of the memory of buffers; addresses beyond are for calls. */
  readonly #buffersEnd: number;
  readonly #self: WeakRef<Arena> = new WeakRef(this);
  bytes: Uint8Array;
  words: Uint32Array;

  /**
   * `callBytes` of the 4 GiB that one memory can have are for calls alone, so that a memory full of buffers still serves
   * them. `maxBytes` are the most for buffers.
   */
  constructor(shared: boolean, callBytes: number, maxBytes = Number.POSITIVE_INFINITY) {
    this.module = compiled(shared);
    this.memory = newMemory(shared, firstPages);
    this.kernels = instantiate(this.module, this.memory);
    this.#buffersEnd = Math.min(maxBytes, usablePages * pageBytes - callBytes);
    this.#allocator = new Allocator(rangeAlignment, this.#buffersEnd + callBytes, rangeBytes);
    this.bytes = new Uint8Array(this.memory.buffer);
    this.words = new Uint32Array(this.memory.buffer);
  }

  /** Bytes of the memory; it never shrinks. */
  get size(): number {
    return this.bytes.length;
  }

  /** The same in pages. */
  get pages(): number {
    return this.size / pageBytes;
  }

  /** Allocated bytes. */
  get live(): number {
    return this.#allocator.live;
  }

  /** The address of a block of zeros; `undefined` if the memory of buffers has no space for it. */
  take(byteLength: number): number | undefined {
    return this.#take(byteLength, this.#buffersEnd);
  }

  /** The same for a call's own memory, which may lie in the part reserved for calls. */
  takeForCall(byteLength: number): number | undefined {
    return this.#take(byteLength);
  }

  /** Frees memory of `take` or `takeForCall`. */
  give(address: number, byteLength: number): void {
    this.#allocator.give(address, byteLength);
  }

  /** Frees a range when `owner` is collected before it frees it. */
  watch(owner: object, address: number, byteLength: number): void {
    forgotten.register(owner, { arena: this.#self, address, byteLength }, owner);
  }

  /** The owner frees the range itself. */
  unwatch(owner: object): void {
    forgotten.unregister(owner);
  }

  #take(byteLength: number, limit?: number): number | undefined {
    const before = this.#allocator.top;
    const address = this.#allocator.take(byteLength, limit);
    if (address === undefined) return undefined;
    if (!this.#reach(address + byteLength)) {
      this.#allocator.give(address, byteLength);
      return undefined;
    }
    // Memory that was never allocated is still zero.
    const used = Math.min(address + byteLength, before);
    // Whole words: ranges have no other ends, and in shared memory bytes take four times as long.
    if (used > address) this.words.fill(0, address / 4, Math.ceil(used / 4));
    return address;
  }

  /** Grows the memory to hold all bytes below `end` and a page more; false where it cannot. */
  #reach(end: number): boolean {
    const { pages } = this;
    const needed = Math.ceil(end / pageBytes) + 1;
    if (needed <= pages) return true;
    const roomy = Math.min(Math.max(needed, pages + minGrowthPages, 2 * pages), maxPages);
    if (!this.#grow(roomy - pages) && !this.#grow(needed - pages)) return false;
    this.bytes = new Uint8Array(this.memory.buffer);
    this.words = new Uint32Array(this.memory.buffer);
    return true;
  }

  #grow(pages: number): boolean {
    try {
      this.memory.grow(pages);
      return true;
    } catch {
      return false;
    }
  }
}

/** Memory of a simulated device: a range of an arena, where kernels reach it. */
export class WasmMemory implements SimMemory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  readonly borrowed = false;
  /** Place of the first byte in the arena. */
  readonly address: number;
  #arena: Arena | undefined;

  constructor(device: string, ptr: bigint, byteLength: number, arena: Arena, address: number) {
    this.device = device;
    this.ptr = ptr;
    this.byteLength = byteLength;
    this.#arena = arena;
    this.address = address;
    arena.watch(this, address, byteLength);
  }

  /** The arena, until the memory is freed: from then on it does not reference one. */
  get arena(): Arena | undefined {
    return this.#arena;
  }

  write(byteOffset: number, bytes: Uint8Array): void {
    this.#held().bytes.set(bytes, this.address + byteOffset);
  }

  read(byteOffset: number, into: Uint8Array): void {
    into.set(this.view(byteOffset, into.length));
  }

  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    fillElements(this.#held().memory.buffer, this.address + byteOffset, count, dtype, value);
  }

  fingerprint(byteOffset: number, byteLength: number): number {
    return fingerprintOf(this.view(byteOffset, byteLength));
  }

  free(): void {
    this.#arena?.unwatch(this);
    this.#arena?.give(this.address, this.byteLength);
    this.#arena = undefined;
  }

  /** Some of its bytes, until the arena grows. */
  view(byteOffset: number, byteLength: number): Uint8Array {
    const begin = this.address + byteOffset;
    return this.#held().bytes.subarray(begin, begin + byteLength);
  }

  #held(): Arena {
    invariant(this.#arena !== undefined, "memory that was freed is neither read nor written");
    return this.#arena;
  }
}
