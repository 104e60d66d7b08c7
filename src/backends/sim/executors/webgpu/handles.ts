/** GPUBuffers that were handed in, under the addresses they are adopted by. */
import { InvalidArgumentError } from "../../../../api/index.ts";
import { invalid } from "../../../../api/option-kinds.ts";
import { usage } from "./device.ts";
import type { Range, Slab } from "./slabs.ts";

/** Far above the addresses that sessions give to their own memory. */
const firstAddress = 1n << 60n;
const spacing = 1n << 40n;

/** Copies and bindings consist of whole words. */
const wordBytes = 4;

const needed = usage.storage | usage.copySource | usage.copyTarget;

/** The handed-in buffers of one executor. */
export class Handles {
  readonly #known = new WeakMap<GPUBuffer, bigint>();
  readonly #slabs: WeakRef<Slab>[] = [];
  readonly #kept = new WeakMap<GPUBuffer, Slab>();

  /** The address of a buffer; the same one every time. */
  address(buffer: GPUBuffer): bigint {
    const known = this.#known.get(buffer);
    if (known !== undefined) return known;
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
      ...{ buffers: [buffer], partBytes: buffer.size, bytes: buffer.size },
      ...{ foreign: true, failure: undefined },
    };
    this.#slabs.push(new WeakRef(slab));
    this.#kept.set(buffer, slab);
    this.#known.set(buffer, address);
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
