/**
 * Memory of the device: few large slabs, in which ranks' buffers are allocated, so that a call needs few bindings.
 *
 * A slab is one GPUBuffer, or several end to end for a range larger than the device's largest buffer. Ranges start at multiples
 * of 256 bytes, and their length is one. Reused memory is cleared when it is allocated again.
 */
import { Allocator } from "../allocator.ts";
import { alignment, type DeviceLimits, type OpenDevice, usage, WebgpuError } from "./device.ts";

/** Memory with addresses of its own; `failure` is set when its allocation failed. */
export interface Slab {
  /** All of `partBytes`, a multiple of the bytes that a binding covers; only the last one may differ. */
  readonly buffers: readonly GPUBuffer[];
  readonly partBytes: number;
  readonly bytes: number;
  /** Its ranges that one binding covers, as far as they were used, by their order. */
  readonly windows: Stretch[];
  /** True for a caller's buffer: no ranges are allocated in it. */
  readonly foreign: boolean;
  failure: WebgpuError | undefined;
}

/** A range of a slab. */
export interface Range {
  readonly slab: Slab;
  readonly offset: number;
  readonly bytes: number;
}

/** A range of one GPUBuffer. */
export interface Stretch {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly bytes: number;
}

/** The places of a slab's bytes from `begin` to `end`. */
export function stretchesOf({ buffers, partBytes }: Slab, begin: number, end: number): Stretch[] {
  const stretches: Stretch[] = [];
  for (let at = begin; at < end; ) {
    const offset = at % partBytes;
    const bytes = Math.min(end - at, partBytes - offset);
    stretches.push({ buffer: buffers[(at - offset) / partBytes] as GPUBuffer, offset, bytes });
    at += bytes;
  }
  return stretches;
}

/** The window with a byte of a slab: the same object for all of its bytes. */
export function windowOf(slab: Slab, offset: number, { windowBytes }: DeviceLimits): Stretch {
  const index = Math.floor(offset / windowBytes);
  const begin = index * windowBytes;
  const end = Math.min(begin + windowBytes, slab.bytes);
  slab.windows[index] ??= stretchesOf(slab, begin, end)[0] as Stretch;
  return slab.windows[index];
}

/** The first slab; each further one is as large as all before it. */
const firstBytes = 8 * 2 ** 20;

/** The memory of one device. */
export class Slabs {
  readonly #device: OpenDevice;
  readonly #least: number;
  readonly #slabs = new Map<Slab, Allocator>();

  constructor(device: OpenDevice, slabBytes: number | undefined) {
    this.#device = device;
    this.#least = slabBytes ?? firstBytes;
  }

  /** Allocates a range of at least that many bytes; zeros on request, else any contents. */
  allocate(byteLength: number, zero: boolean): Range {
    const bytes = roundUp(byteLength);
    for (const slab of this.#slabs.keys()) {
      const range = slab.failure === undefined ? this.#take(slab, bytes, zero) : undefined;
      if (range !== undefined) return range;
    }
    return this.#take(this.#grow(bytes), bytes, zero) as Range;
  }

  /** Frees a range; an empty slab is destroyed, unless it is the only one. */
  free({ slab, offset, bytes }: Range): void {
    const ranges = this.#slabs.get(slab);
    if (ranges === undefined) return;
    ranges.give(offset, bytes);
    if (ranges.live > 0 || (this.#slabs.size === 1 && slab.failure === undefined)) return;
    this.#slabs.delete(slab);
    destroy(slab);
  }

  /** Frees all memory. */
  close(): void {
    for (const slab of this.#slabs.keys()) destroy(slab);
    this.#slabs.clear();
  }

  #take(slab: Slab, bytes: number, zero: boolean): Range | undefined {
    const ranges = this.#slabs.get(slab) as Allocator;
    const before = ranges.top;
    const offset = ranges.take(bytes);
    if (offset === undefined) return undefined;
    // Memory that was never allocated is still zero.
    const used = Math.min(offset + bytes, before) - offset;
    if (zero && used > 0) {
      const encoder = this.#device.device.createCommandEncoder();
      for (const part of stretchesOf(slab, offset, offset + used)) {
        encoder.clearBuffer(part.buffer, part.offset, part.bytes);
      }
      this.#device.queue.submit([encoder.finish()]);
    }
    return { slab, offset, bytes };
  }

  #grow(bytes: number): Slab {
    const { bufferBytes } = this.#device.limits;
    const most = bufferBytes - (bufferBytes % alignment);
    const before = [...this.#slabs.keys()].reduce((sum, slab) => sum + slab.bytes, 0);
    const preferred = roundUp(Math.max(this.#least, this.#least === firstBytes ? before : 0));
    const slab = this.#make(Math.max(bytes, Math.min(most, preferred)), most);
    this.#slabs.set(slab, new Allocator(0, slab.bytes, roundUp));
    return slab;
  }

  #make(bytes: number, most: number): Slab {
    const { device, adapter, limits } = this.#device;
    const partBytes = bytes <= most ? bytes : most - (most % limits.windowBytes);
    const make = (): Slab => {
      const buffers: GPUBuffer[] = [];
      for (let at = 0; at < bytes; at += partBytes) {
        const size = Math.min(partBytes, bytes - at);
        const all = usage.storage | usage.copySource | usage.copyTarget;
        buffers.push(device.createBuffer({ label: "twinccl memory", size, usage: all }));
      }
      const own = { foreign: false, failure: undefined };
      return { buffers, partBytes, bytes, windows: [], ...own };
    };
    const slab = this.#device.allocate(make, (message) => {
      slab.failure = new WebgpuError(adapter, "out-of-memory", `${bytes} bytes: ${message}`);
    });
    return slab;
  }
}

function destroy({ buffers }: Slab): void {
  for (const buffer of buffers) buffer.destroy();
}

/** Empty allocations take a range too. */
function roundUp(bytes: number): number {
  return Math.ceil(Math.max(bytes, 1) / alignment) * alignment;
}
