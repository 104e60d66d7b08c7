/** Memory of a simulated rank on the device. */

import { fillElements } from "../../../../algorithms/host-memory.ts";
import { bytesOf, type DType, InvalidArgumentError } from "../../../../api/index.ts";
import { invalid } from "../../../../api/option-kinds.ts";
import type { SimMemory } from "../../executor.ts";
import { usage } from "./device.ts";
import { advanced, copyOf } from "./jobs.ts";
import type { Machine } from "./machine.ts";
import { runOnce } from "./recording.ts";
import type { Range, Slab } from "./slabs.ts";

/** Bytes of a block that a fill repeats. */
const fillBytes = 2 ** 18;

/** The last write of a range. */
interface Write {
  readonly begin: number;
  readonly end: number;
  readonly stamp: number;
}

/** Writes that are tracked by range; older ones count for the whole memory. */
const maxWrites = 64;

/** A range of device memory, as a rank's buffers see it. */
export class WebgpuMemory implements SimMemory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  readonly borrowed = false;
  readonly adopted: boolean;
  readonly range: Range;
  readonly machine: Machine;
  #writes: Write[] = [];
  #stamp = 0;

  constructor(machine: Machine, device: string, ptr: bigint, byteLength: number, range: Range) {
    this.machine = machine;
    this.device = device;
    this.ptr = ptr;
    this.byteLength = byteLength;
    this.range = range;
    this.adopted = range.slab.foreign;
  }

  /** Copies bytes in, behind everything submitted so far. */
  write(byteOffset: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.assertFine();
    this.noteWrite(byteOffset, bytes.length);
    const spot = advanced(this.range, byteOffset);
    // Padding after the last byte of an own allocation overwrites no data.
    const padded = !this.adopted && byteOffset + bytes.length === this.byteLength;
    if (spot.offset % 4 === 0 && (padded || bytes.length % 4 === 0)) {
      this.machine.upload(spot, bytes);
      return;
    }
    const staged = this.machine.slabs.allocate(bytes.length, false);
    this.machine.upload(staged, bytes);
    runOnce(this.machine, [copyOf(staged, spot, bytes.length)]);
    this.machine.slabs.free(staged);
  }

  /** Copies bytes out, once everything submitted so far is done. */
  async read(byteOffset: number, into: Uint8Array): Promise<void> {
    if (into.length === 0) return;
    this.assertFine();
    const range = { ...advanced(this.range, byteOffset), bytes: into.length };
    await this.machine.download([range], (bytes) => into.set(bytes));
  }

  /** Sets elements to a value, rounded to the dtype. */
  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    const bytes = count * bytesOf(dtype);
    const size = Math.min(bytes, fillBytes);
    const block = new ArrayBuffer(size);
    fillElements(block, 0, size / bytesOf(dtype), dtype, value);
    for (let at = 0; at < bytes; at += size) {
      this.write(byteOffset + at, new Uint8Array(block, 0, Math.min(size, bytes - at)));
    }
  }

  /** The number of the last write that touched the range. */
  fingerprint(byteOffset: number, byteLength: number): number {
    const end = byteOffset + byteLength;
    return this.#writes.reduce(
      (last, write) =>
        write.begin < end && write.end > byteOffset ? Math.max(last, write.stamp) : last,
      0,
    );
  }

  /** Records that a call, or the caller, writes a range. */
  noteWrite(byteOffset: number, byteLength: number): void {
    this.#stamp++;
    const write = { begin: byteOffset, end: byteOffset + byteLength, stamp: this.#stamp };
    const kept = this.#writes.filter(({ begin, end }) => begin < write.begin || end > write.end);
    kept.push(write);
    this.#writes = kept.length <= maxWrites ? kept : [{ ...write, begin: 0, end: this.byteLength }];
  }

  /** Frees the memory. */
  free(): void {
    this.machine.slabs.free(this.range);
  }

  /** Throws the failure of its device, or of its allocation. */
  assertFine(): void {
    this.machine.device.assertFine();
    if (this.range.slab.failure !== undefined) throw this.range.slab.failure;
  }
}

/** Far above the addresses that sessions assign to their own memory. */
const firstAddress = 1n << 60n;
const spacing = 1n << 40n;

/** Copies and bindings consist of whole words. */
const wordBytes = 4;

const needed = usage.storage | usage.copySource | usage.copyTarget;

/** The caller's buffers of one executor. */
export class Handles {
  /** Keeps a buffer's slab for as long as the buffer. */
  readonly #known = new WeakMap<GPUBuffer, { readonly address: bigint; readonly slab: Slab }>();
  readonly #slabs: WeakRef<Slab>[] = [];

  /** The address of a buffer; the same one every time. */
  address(buffer: GPUBuffer): bigint {
    const known = this.#known.get(buffer);
    if (known !== undefined) return known.address;
    if ((buffer.usage & needed) !== needed) {
      throw new InvalidArgumentError(
        {
          headline: `address: found a GPUBuffer of usage 0x${buffer.usage.toString(16)}, needs STORAGE, COPY_SRC and COPY_DST`,
          hint: "create it with GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST",
        },
        { field: "buffer" },
      );
    }
    if (buffer.size % wordBytes !== 0) {
      throw new InvalidArgumentError(
        {
          headline: `address: found a GPUBuffer of ${buffer.size} bytes, needs a multiple of ${wordBytes}`,
          hint: "WebGPU copies and binds whole words: create it larger, and adopt as much of it as is used",
        },
        { field: "buffer" },
      );
    }
    const address = firstAddress + BigInt(this.#slabs.length) * spacing;
    const slab: Slab = {
      ...{ buffers: [buffer], partBytes: buffer.size, bytes: buffer.size, windows: [] },
      ...{ foreign: true, failure: undefined },
    };
    this.#slabs.push(new WeakRef(slab));
    this.#known.set(buffer, { address, slab });
    return address;
  }

  /** The bytes behind an address. */
  range(ptr: bigint, byteLength: number): Range {
    const number = ptr < firstAddress ? -1 : Number((ptr - firstAddress) / spacing);
    const slab = this.#slabs[number]?.deref();
    const offset = number < 0 ? 0 : Number((ptr - firstAddress) % spacing);
    if (slab === undefined || offset + byteLength > slab.bytes) {
      const found = slab === undefined ? "no GPUBuffer" : `a GPUBuffer of ${slab.bytes} bytes`;
      throw invalid(
        "adopt",
        `ptr 0x${ptr.toString(16)}`,
        `${found} there`,
        `one of at least ${offset + byteLength}`,
        "take the address from executor.address(gpuBuffer) of the executor that the world was opened with",
        { field: "ptr" },
      );
    }
    return { slab, offset, bytes: byteLength };
  }
}
