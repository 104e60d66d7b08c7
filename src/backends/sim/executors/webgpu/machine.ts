/** An open device with its memory: everything that worlds on it share. */
import { messageOf, type OpenDevice, usage } from "./device.ts";
import type { Spot } from "./jobs.ts";
import { type Range, type Slab, Slabs, type Stretch, stretchesOf } from "./slabs.ts";
import type { NativeAdds } from "./wgsl/float-sum.ts";

/** A device with its memory. */
export class Machine {
  readonly device: OpenDevice;
  readonly slabs: Slabs;
  readonly natives: NativeAdds;

  constructor(device: OpenDevice, slabBytes: number | undefined, natives: NativeAdds) {
    this.device = device;
    this.slabs = new Slabs(device, slabBytes);
    this.natives = natives;
  }

  /** Writes bytes to an address that is a multiple of 4; up to 3 bytes of padding follow them. */
  upload({ slab, offset }: Spot, bytes: Uint8Array): void {
    const whole = bytes.length - (bytes.length % 4);
    const { queue } = this.device;
    const shared = !(bytes.buffer instanceof ArrayBuffer);
    const source = (shared ? bytes.slice() : bytes) as Uint8Array<ArrayBuffer>;
    let at = 0;
    for (const { buffer, ...part } of stretchesOf(slab, offset, offset + whole)) {
      queue.writeBuffer(buffer, part.offset, source, at, part.bytes);
      at += part.bytes;
    }
    if (whole === bytes.length) return;
    const rest = new Uint8Array(4);
    rest.set(source.subarray(whole));
    const [last] = stretchesOf(slab, offset + whole, offset + bytes.length) as [Stretch];
    queue.writeBuffer(last.buffer, last.offset, rest);
  }

  /** Submits the commands of `encode`. */
  submit(encode: (encoder: GPUCommandEncoder) => void): void {
    this.device.watched(() => {
      const encoder = this.device.device.createCommandEncoder();
      encode(encoder);
      this.device.queue.submit([encoder.finish()]);
    });
  }

  /**
   * Reads these ranges once everything submitted before is done, and passes the bytes of each, in their order, to `take`,
   * during which alone they are valid. One submit includes the commands of `before`, which use memory of `slabs`.
   */
  async download(
    ranges: readonly Range[],
    take: (bytes: Uint8Array, at: number) => void,
    before?: (encoder: GPUCommandEncoder) => void,
    slabs: Iterable<Slab> = ranges.map(({ slab }) => slab),
  ): Promise<void> {
    const downloads: Download[] = [];
    try {
      this.submit((encoder) => {
        before?.(encoder);
        for (const range of ranges) {
          const download = new Download(this.device.device, range);
          downloads.push(download);
          download.encode(encoder);
        }
      });
      const waits =
        downloads.length === 0
          ? [this.device.done()]
          : downloads.map((each) => this.device.settled(each.read()));
      const read = await Promise.allSettled(waits);
      // After a failed allocation the copies were not made, but their target can still be mapped.
      await this.device.allocated;
      for (const { failure } of slabs) if (failure !== undefined) throw failure;
      this.device.assertFine();
      const failed = read.find((each) => each.status === "rejected");
      if (failed !== undefined) {
        await Promise.resolve();
        this.device.fail("lost", messageOf(failed.reason));
        this.device.assertFine();
      }
      downloads.forEach((download, at) => {
        take(download.bytes(), at);
      });
    } finally {
      for (const download of downloads) download.drop();
    }
  }

  /** Frees all memory. */
  close(): void {
    this.slabs.close();
    this.device.close();
  }
}

/** Copies are whole words. */
const wordBytes = 4;

/** One range: encoded with other commands, read once after them. */
class Download {
  readonly #parts: readonly { readonly from: Stretch; readonly staging: GPUBuffer }[];
  readonly #skipped: number;
  readonly #length: number;

  constructor(device: GPUDevice, { slab, offset, bytes }: Range) {
    this.#skipped = offset % wordBytes;
    this.#length = bytes;
    const last = Math.ceil((offset + bytes) / wordBytes) * wordBytes;
    this.#parts = stretchesOf(slab, offset - this.#skipped, last).map((from) => {
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

  /** The bytes, valid until they are dropped. */
  bytes(): Uint8Array {
    const mapped = this.#parts.map(({ staging }) => new Uint8Array(staging.getMappedRange()));
    const whole = mapped.length === 1 ? (mapped[0] as Uint8Array) : concatenated(mapped);
    return whole.subarray(this.#skipped, this.#skipped + this.#length);
  }

  /** Frees the staging memory. */
  drop(): void {
    for (const { staging } of this.#parts) staging.destroy();
  }
}

function concatenated(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
