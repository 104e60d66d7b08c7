/** Bytes on their way from a slab to the host, by way of buffers that can be mapped. */
import { usage } from "./device.ts";
import { type Slab, type Stretch, stretchesOf } from "./slabs.ts";

/** The bytes of a slab from `begin` to `end`. */
export interface Extent {
  readonly slab: Slab;
  readonly begin: number;
  readonly end: number;
}

/** Copies are whole words. */
const wordBytes = 4;

/** One extent: encoded with other commands, read when they are done, handed out once. */
export class Download {
  readonly #parts: readonly { readonly from: Stretch; readonly staging: GPUBuffer }[];
  readonly #skipped: number;
  readonly #length: number;

  constructor(device: GPUDevice, { slab, begin, end }: Extent) {
    this.#skipped = begin % wordBytes;
    this.#length = end - begin;
    const last = Math.ceil(end / wordBytes) * wordBytes;
    this.#parts = stretchesOf(slab, begin - this.#skipped, last).map((from) => {
      const size = from.bytes;
      const staging = device.createBuffer({ size, usage: usage.mapRead | usage.copyTarget });
      return { from, staging };
    });
  }

  encode(encoder: GPUCommandEncoder): void {
    for (const { from, staging } of this.#parts) {
      encoder.copyBufferToBuffer(from.buffer, from.offset, staging, 0, from.bytes);
    }
  }

  /** Waits until the bytes are there. */
  async read(): Promise<void> {
    await Promise.all(this.#parts.map(({ staging }) => staging.mapAsync(usage.mapRead)));
  }

  /** Hands the bytes out; they are valid during the call only. */
  hand(take: (bytes: Uint8Array) => void): void {
    const mapped = this.#parts.map(({ staging }) => new Uint8Array(staging.getMappedRange()));
    const whole = mapped.length === 1 ? (mapped[0] as Uint8Array) : joined(mapped);
    take(whole.subarray(this.#skipped, this.#skipped + this.#length));
    this.drop();
  }

  /** Gives the staging memory back. */
  drop(): void {
    for (const { staging } of this.#parts) staging.destroy();
  }
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
