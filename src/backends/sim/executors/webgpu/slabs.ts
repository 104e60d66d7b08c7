/**
 * Memory of the device: few large buffers, from which ranks' buffers are cut, so that a call needs few bindings.
 *
 * Ranges start at multiples of 256 bytes and are as long. What was used before is cleared when it is given out again.
 */
import { InvalidArgumentError } from "../../../../api/index.ts";
import { alignment, type OpenDevice, usage } from "./device.ts";
import { WebgpuError } from "./errors.ts";

/** One of the device's buffers; `failure` is set when there was no memory for it. */
export interface Slab {
  readonly buffer: GPUBuffer;
  readonly bytes: number;
  /** Handed in by the caller: nothing is cut from it. */
  readonly foreign: boolean;
  failure: WebgpuError | undefined;
}

/** A range of a slab. */
export interface Range {
  readonly slab: Slab;
  readonly offset: number;
  readonly bytes: number;
}

/** A slab that ranges are cut from. */
interface OwnSlab extends Slab {
  /** Free ranges as [begin, end), ascending and apart. */
  free: [number, number][];
  /** Everything from here on has never been given out. */
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

  /** A range of at least that many bytes; zero where asked, else with whatever was there. */
  allocate(byteLength: number, zero: boolean): Range {
    const bytes = roundUp(Math.max(byteLength, 1));
    for (const slab of this.#slabs) {
      const at = slab.failure === undefined ? take(slab, bytes) : undefined;
      if (at !== undefined) return this.#given(slab, at, bytes, zero);
    }
    const slab = this.#grow(bytes);
    return this.#given(slab, take(slab, bytes) ?? 0, bytes, zero);
  }

  /** Takes a range back; a slab that holds none is given up, unless it is the only one. */
  free({ slab, offset, bytes }: Range): void {
    if (slab.foreign || !this.#slabs.has(slab as OwnSlab)) return;
    const own = slab as OwnSlab;
    own.free = merged([...own.free, [offset, offset + bytes]]);
    const whole = own.free[0]?.[0] === 0 && own.free[0][1] === own.bytes;
    if (!whole || (this.#slabs.size === 1 && own.failure === undefined)) return;
    this.#slabs.delete(own);
    own.buffer.destroy();
  }

  /** Gives all memory back. */
  close(): void {
    for (const { buffer } of this.#slabs) buffer.destroy();
    this.#slabs.clear();
  }

  #given(slab: OwnSlab, offset: number, bytes: number, zero: boolean): Range {
    const used = Math.min(offset + bytes, slab.fresh) - offset;
    if (zero && used > 0) {
      const encoder = this.#device.device.createCommandEncoder();
      encoder.clearBuffer(slab.buffer, offset, used);
      this.#device.queue.submit([encoder.finish()]);
    }
    slab.fresh = Math.max(slab.fresh, offset + bytes);
    return { slab, offset, bytes };
  }

  #grow(bytes: number): OwnSlab {
    const { bufferBytes } = this.#device.limits;
    const most = bufferBytes - (bufferBytes % alignment);
    if (bytes > most) {
      throw new InvalidArgumentError(
        {
          headline: `alloc: found ${bytes} bytes, ${this.#device.adapter} takes at most ${most} in one buffer`,
          hint: "use several smaller buffers",
        },
        { field: "length" },
      );
    }
    const before = [...this.#slabs].reduce((sum, slab) => sum + slab.bytes, 0);
    const size = Math.min(
      most,
      roundUp(Math.max(bytes, this.#least, this.#least === firstBytes ? before : 0)),
    );
    const slab = this.#make(size);
    this.#slabs.add(slab);
    return slab;
  }

  #make(bytes: number): OwnSlab {
    const { device, adapter } = this.#device;
    device.pushErrorScope("out-of-memory");
    const buffer = device.createBuffer({
      label: "twinccl memory",
      size: bytes,
      usage: usage.storage | usage.copySource | usage.copyTarget,
    });
    const slab: OwnSlab = {
      buffer,
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
