/** An open device with its memory and kernels: everything that worlds on it share. */
import type { OpenDevice } from "./device.ts";
import { messageOf, usage } from "./device.ts";
import type { Job, Scratch, Spot } from "./jobs.ts";
import { type Kernels, kernelsOf } from "./kernels.ts";
import { type Recorder, Recording } from "./recording.ts";
import { type Slab, Slabs } from "./slabs.ts";
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
    if (whole > 0) queue.writeBuffer(slab.buffer, offset, source, 0, whole);
    if (whole === bytes.length) return;
    const rest = new Uint8Array(4);
    rest.set(source.subarray(whole));
    queue.writeBuffer(slab.buffer, offset + whole, rest);
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

  /** The bytes of a slab from `begin` to `end`, once everything submitted before is done. */
  async download(
    slab: Slab,
    begin: number,
    end: number,
    before?: (encoder: GPUCommandEncoder) => void,
  ): Promise<Found> {
    const from = begin - (begin % 4);
    const size = Math.ceil((end - from) / 4) * 4;
    const { device } = this.device;
    const staging = device.createBuffer({ size, usage: usage.mapRead | usage.copyTarget });
    this.submit((encoder) => {
      before?.(encoder);
      encoder.copyBufferToBuffer(slab.buffer, from, staging, 0, size);
    });
    try {
      await staging.mapAsync(usage.mapRead);
    } catch (error) {
      staging.destroy();
      this.device.assertFine();
      if (slab.failure !== undefined) throw slab.failure;
      await Promise.resolve();
      this.device.fail("lost", messageOf(error));
      this.device.assertFine();
    }
    return (take) => {
      take(new Uint8Array(staging.getMappedRange(), begin - from, end - begin));
      staging.unmap();
      staging.destroy();
    };
  }

  /** Gives everything back. */
  close(): void {
    this.slabs.close();
    this.device.close();
  }
}
