/** An open device with its memory and kernels: everything that worlds on it share. */
import { messageOf, type OpenDevice, usage } from "./device.ts";
import type { FoldJob, Scratch, Spot } from "./jobs.ts";
import { type Kernels, kernelsOf } from "./kernels.ts";
import { type Recorder, Recording } from "./recording.ts";
import { type Slab, Slabs, type Stretch, stretchesOf } from "./slabs.ts";
import { waited } from "./wait.ts";
import type { NativeAdds } from "./wgsl/float-sum.ts";

/** Downloaded bytes: passes them to `take`, during which alone they are valid. */
export type Found = (take: (bytes: Uint8Array) => void) => void;

/** A device with its memory and kernels. */
export class Machine implements Recorder {
  readonly device: OpenDevice;
  readonly slabs: Slabs;
  readonly kernels: Kernels;
  readonly natives: NativeAdds;

  constructor(device: OpenDevice, slabBytes: number | undefined, natives: NativeAdds) {
    this.device = device;
    this.slabs = new Slabs(device, slabBytes);
    this.kernels = kernelsOf(device.device);
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

  /** Runs copying jobs once. */
  runOnce(plan: (scratch: Scratch) => readonly FoldJob[]): void {
    const recording = new Recording(this, [{ operation: undefined, divisor: 1, plan }]);
    this.submit((encoder) => recording.encode(encoder));
    recording.close();
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
   * Reads these extents, in their order, once everything submitted before is done. One submit includes the commands of
   * `before`.
   */
  async download(
    extents: readonly Extent[],
    before?: (encoder: GPUCommandEncoder) => void,
  ): Promise<Found[]> {
    const downloads = extents.map((extent) => new Download(this.device.device, extent));
    this.submit((encoder) => {
      before?.(encoder);
      for (const download of downloads) download.encode(encoder);
    });
    const read = await Promise.allSettled(downloads.map((download) => download.read()));
    const failed = read.find((each) => each.status === "rejected");
    try {
      // After a failed allocation the copies were not made, but their target can still be mapped.
      for (const { slab } of extents) if (slab.failure !== undefined) throw slab.failure;
      this.device.assertFine();
      if (failed === undefined) return downloads.map((download) => (take) => download.hand(take));
      await Promise.resolve();
      this.device.fail("lost", messageOf(failed.reason));
      throw this.device.failure;
    } catch (error) {
      for (const download of downloads) download.drop();
      throw error;
    }
  }

  /** Frees all memory. */
  close(): void {
    this.slabs.close();
    this.device.close();
  }
}

/** The bytes of a slab from `begin` to `end`. */
interface Extent {
  readonly slab: Slab;
  readonly begin: number;
  readonly end: number;
}

/** Copies are whole words. */
const wordBytes = 4;

/** One extent: encoded with other commands, read once after them. */
class Download {
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
    await waited(Promise.all(this.#parts.map(({ staging }) => staging.mapAsync(usage.mapRead))));
  }

  /** Passes the bytes on; they are valid during the call only. */
  hand(take: (bytes: Uint8Array) => void): void {
    const mapped = this.#parts.map(({ staging }) => new Uint8Array(staging.getMappedRange()));
    const whole = mapped.length === 1 ? (mapped[0] as Uint8Array) : concatenated(mapped);
    take(whole.subarray(this.#skipped, this.#skipped + this.#length));
    this.drop();
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
