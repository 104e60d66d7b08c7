/** An open device with its memory and kernels: everything that worlds on it share. */
import type { OpenDevice } from "./device.ts";
import { messageOf } from "./device.ts";
import { Download, type Extent } from "./download.ts";
import type { Job, Scratch, Spot } from "./jobs.ts";
import { type Kernels, kernelsOf } from "./kernels.ts";
import { type Recorder, Recording } from "./recording.ts";
import { Slabs, type Stretch, stretchesOf } from "./slabs.ts";
import type { NativeAdds } from "./wgsl/float-native.ts";

/** Hands out bytes that were read; they are valid during the call only. */
export type Found = (take: (bytes: Uint8Array) => void) => void;

/** A device at work. */
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

  /** Runs jobs that only copy, once. */
  runOnce(plan: (scratch: Scratch) => readonly Job[]): void {
    const recording = new Recording(this, [{ operation: undefined, divisor: 1, plan }]);
    this.submit((encoder) => recording.encode(encoder));
    recording.close();
  }

  /** Submits what `encode` encodes. */
  submit(encode: (encoder: GPUCommandEncoder) => void): void {
    this.device.watched(() => {
      const encoder = this.device.device.createCommandEncoder();
      encode(encoder);
      this.device.queue.submit([encoder.finish()]);
    });
  }

  /** Reads these extents, in their order, once everything submitted before is done; one submit, `before` in it. */
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
      // Where there was no memory the copies were not made, but what they were to fill can be read.
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

  /** Gives everything back. */
  close(): void {
    this.slabs.close();
    this.device.close();
  }
}
