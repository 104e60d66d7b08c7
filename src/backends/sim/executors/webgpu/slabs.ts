/**
 * Memory of the device: few large slabs, in which ranks' buffers are allocated, so that a call needs few bindings.
 *
 * A slab is one GPUBuffer, or several end to end for a range larger than the device's largest buffer. Ranges start at multiples
 * of 256 bytes, and their length is one. Reused memory is cleared when it is allocated again.
 */
import { alignment, type OpenDevice, usage, WebgpuError } from "./device.ts";

/** Memory with addresses of its own; `failure` is set when its allocation failed. */
export interface Slab {
  /** All of `partBytes`, a multiple of the bytes that a binding covers; only the last one may differ. */
  readonly buffers: readonly GPUBuffer[];
  readonly partBytes: number;
  readonly bytes: number;
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

/** A slab that ranges are allocated in. */
interface OwnSlab extends Slab {
  /** Free ranges as [begin, end), ascending and apart. */
  free: [number, number][];
  /** Bytes from here on have never been allocated. */
  fresh: number;
}

/** The first slab; each further one is as large as all before it. */
const firstBytes = 8 * 2 ** 20;

/** The memory of one device. */
export class Slabs {
  readonly #device: OpenDevice;
  readonly #least: number;
  readonly #slabs = new Set<OwnSlab>();

  constructor(device: OpenDevice, slabBytes: number | undefined) {
    this.#device = device;
    this.#least = slabBytes ?? firstBytes;
  }

  /** Allocates a range of at least that many bytes; zeros on request, else any contents. */
  allocate(byteLength: number, zero: boolean): Range {
    const bytes = roundUp(Math.max(byteLength, 1));
    for (const slab of this.#slabs) {
      const at = slab.failure === undefined ? take(slab, bytes) : undefined;
      if (at !== undefined) return this.#given(slab, at, bytes, zero);
    }
    const slab = this.#grow(bytes);
    return this.#given(slab, take(slab, bytes) ?? 0, bytes, zero);
  }

  /** Frees a range; an empty slab is destroyed, unless it is the only one. */
  free({ slab, offset, bytes }: Range): void {
    if (slab.foreign || !this.#slabs.has(slab as OwnSlab)) return;
    const own = slab as OwnSlab;
    own.free = merged([...own.free, [offset, offset + bytes]]);
    const whole = own.free[0]?.[0] === 0 && own.free[0][1] === own.bytes;
    if (!whole || (this.#slabs.size === 1 && own.failure === undefined)) return;
    this.#slabs.delete(own);
    destroy(own);
  }

  /** Frees all memory. */
  close(): void {
    for (const slab of this.#slabs) destroy(slab);
    this.#slabs.clear();
  }

  #given(slab: OwnSlab, offset: number, bytes: number, zero: boolean): Range {
    const used = Math.min(offset + bytes, slab.fresh) - offset;
    if (zero && used > 0) {
      const encoder = this.#device.device.createCommandEncoder();
      for (const part of stretchesOf(slab, offset, offset + used)) {
        encoder.clearBuffer(part.buffer, part.offset, part.bytes);
      }
      this.#device.queue.submit([encoder.finish()]);
    }
    slab.fresh = Math.max(slab.fresh, offset + bytes);
    return { slab, offset, bytes };
  }

  #grow(bytes: number): OwnSlab {
    const { bufferBytes } = this.#device.limits;
    const most = bufferBytes - (bufferBytes % alignment);
    const before = [...this.#slabs].reduce((sum, slab) => sum + slab.bytes, 0);
    const preferred = roundUp(Math.max(this.#least, this.#least === firstBytes ? before : 0));
    const slab = this.#make(Math.max(bytes, Math.min(most, preferred)), most);
    this.#slabs.add(slab);
    return slab;
  }

  #make(bytes: number, most: number): OwnSlab {
    const { device, adapter, limits } = this.#device;
    const partBytes = bytes <= most ? bytes : most - (most % limits.windowBytes);
    device.pushErrorScope("out-of-memory");
    const buffers: GPUBuffer[] = [];
    for (let at = 0; at < bytes; at += partBytes) {
      const size = Math.min(partBytes, bytes - at);
      const all = usage.storage | usage.copySource | usage.copyTarget;
      buffers.push(device.createBuffer({ label: "twinccl memory", size, usage: all }));
    }
    const slab: OwnSlab = {
      buffers,
      partBytes,
      bytes,
      foreign: false,
      failure: undefined,
      free: [[0, bytes]],
      fresh: 0,
    };
    void device.popErrorScope().then(
      (error) => {
        if (error === null) return;
        slab.failure = new WebgpuError(
          adapter,
          "out-of-memory",
          `${bytes} bytes: ${error.message}`,
        );
      },
      () => {},
    );
    return slab;
  }
}

function destroy({ buffers }: Slab): void {
  for (const buffer of buffers) buffer.destroy();
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / alignment) * alignment;
}

/** First fit. */
function take(slab: OwnSlab, bytes: number): number | undefined {
  const hole = slab.free.find(([begin, end]) => end - begin >= bytes);
  if (hole === undefined) return undefined;
  const [begin] = hole;
  hole[0] += bytes;
  if (hole[0] === hole[1]) slab.free.splice(slab.free.indexOf(hole), 1);
  return begin;
}

function merged(ranges: [number, number][]): [number, number][] {
  const kept: [number, number][] = [];
  for (const [begin, end] of ranges.sort((a, b) => a[0] - b[0])) {
    const last = kept.at(-1);
    if (last !== undefined && last[1] === begin) last[1] = end;
    else kept.push([begin, end]);
  }
  return kept;
}
