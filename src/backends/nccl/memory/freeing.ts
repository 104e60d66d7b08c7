/**
 * Memory that is to be given back. CUDA does that only when nothing runs on the device, and blocks this thread until then: work
 * that waits for another process would keep it from hearing of any deadline. So it waits for a moment in which the stream
 * is idle, as long as the device has memory to spare.
 */
import type { Waiting } from "../../../api/index.ts";
import type { Device } from "../device/device.ts";
import { inTurn } from "../device/give-back.ts";
import type { Progress } from "../device/progress.ts";

/** What waits to be given back on one device. */
export class Freeing {
  readonly #device: Device;
  readonly #progress: Progress;
  #steps: (() => void)[] = [];
  #bytes = 0;
  #isWaiting = false;
  /** There is more than when it was last compared with what the device has left. */
  #hasGrown = false;

  constructor(device: Device, progress: Progress) {
    this.#device = device;
    this.#progress = progress;
  }

  /** Gives something back after what is on the stream by now, so many bytes of the device. */
  add(bytes: number, giveBack: () => void): void {
    this.#steps.push(giveBack);
    this.#bytes += bytes;
    this.#hasGrown = true;
    if (!this.#isWaiting) this.#wait();
  }

  /** Gives everything back now, which waits for running work; false where there was nothing. */
  now(): boolean {
    const steps = this.#steps;
    if (steps.length === 0) return false;
    this.forget();
    // NCCL does not wait as CUDA does. What cannot be given back belongs to a device that is lost, which its next call tells.
    try {
      inTurn([() => this.#device.use().streamSynchronize(this.#device.stream), ...steps]);
    } catch {}
    return true;
  }

  /** Everything is given back in another way, or left behind. */
  forget(): void {
    this.#steps = [];
    this.#bytes = 0;
  }

  /** Told as the work ends, before programs go on that put more on the stream. */
  #wait(): void {
    this.#isWaiting = true;
    const waiting: Waiting = {
      takesMore: false,
      settled: (error) => {
        this.#isWaiting = false;
        if (this.#steps.length === 0) return;
        if (error !== undefined || this.#isTime()) this.now();
        else this.#wait();
      },
    };
    this.#progress.whenDone([this.#device], undefined, waiting);
  }

  #isTime(): boolean {
    try {
      const cuda = this.#device.use();
      if (cuda.streamDone(this.#device.stream)) return true;
      if (!this.#hasGrown) return false;
      this.#hasGrown = false;
      // NCCL and others take memory of the device too.
      return this.#bytes > cuda.memoryInfo().freeBytes;
    } catch {
      return true;
    }
  }
}
