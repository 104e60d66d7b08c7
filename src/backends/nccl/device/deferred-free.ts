/**
 * Deferred frees of device memory. `cudaFree` blocks this thread until the device is idle. If device work waits for another
 * process, a blocked thread would miss deadlines. Frees are therefore deferred until the stream is idle. If the device is short
 * of memory, they happen at once, unless they would wait for another process. In that case the next allocation of similar size
 * reuses the memory, in order on the same stream.
 */
import type { Completion } from "../../../api/backend-entry.ts";
import { runAll } from "../common/async.ts";
import type { Device } from "./device.ts";
import type { Progress } from "./progress.ts";

/** One deferred free. */
interface PendingFree {
  readonly bytes: number;
  /** Address of memory that can be reused without a free. */
  readonly ptr: bigint | undefined;
  readonly free: () => void;
}

/** Memory of one device with a deferred free. */
export class DeferredFree {
  readonly #device: Device;
  readonly #progress: Progress;
  #pending: PendingFree[] = [];
  #bytes = 0;
  #isWaiting = false;
  /** True if `#bytes` has grown since its last comparison with the device's free memory. */
  #hasGrown = false;

  constructor(device: Device, progress: Progress) {
    this.#device = device;
    this.#progress = progress;
  }

  /** Number of waiting bytes of the device. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Defers `free` until the present work of the stream is done. `bytes` counts device memory; `ptr` is set if it can be reused.
   */
  add(bytes: number, free: () => void, ptr?: bigint): void {
    this.#pending.push({ bytes, ptr, free });
    this.#bytes += bytes;
    this.#hasGrown = true;
    if (!this.#isWaiting) this.#wait();
  }

  /**
   * Frees everything now, which waits for running work. False without deferred frees, or if that would wait for other
   * processes.
   */
  flush(): boolean {
    if (this.#pending.length === 0 || this.#waitsForPeers()) return false;
    this.#freeAll();
    return true;
  }

  /** Reuses deferred memory of at least `bytes` bytes, and not many more. */
  take(bytes: number): bigint | undefined {
    let found: PendingFree | undefined;
    for (const each of this.#pending) {
      const fits = each.ptr !== undefined && each.bytes >= bytes && each.bytes <= 2 * bytes;
      if (fits && (found === undefined || each.bytes < found.bytes)) found = each;
    }
    if (found === undefined) return undefined;
    this.#pending = this.#pending.filter((each) => each !== found);
    this.#bytes -= found.bytes;
    return found.ptr;
  }

  /** Drops all deferred frees: the memory is freed in another way, or abandoned. */
  clear(): void {
    this.#pending = [];
    this.#bytes = 0;
  }

  /** Runs at the end of the work, before programs continue and submit more. */
  #wait(): void {
    this.#isWaiting = true;
    const waiting: Completion = {
      acceptsMore: false,
      settled: (error) => {
        this.#isWaiting = false;
        if (this.#pending.length === 0) return;
        if (error !== undefined || this.#isDue()) this.#freeAll();
        else this.#wait();
      },
    };
    this.#progress.whenDone([this.#device], undefined, waiting);
  }

  #freeAll(): void {
    const steps = this.#pending.map(({ free }) => free);
    this.clear();
    // NCCL's frees do not wait for the device. Memory that cannot be freed belongs to a lost device; the next call on it fails.
    try {
      runAll([() => this.#device.use().streamSynchronize(this.#device.stream), ...steps]);
    } catch {}
  }

  /** True if a free would block this thread on other processes, without deadlines, signals or reports of lost ranks. */
  #waitsForPeers(): boolean {
    try {
      const isDone = this.#device.use().streamDone(this.#device.stream);
      return !isDone && this.#progress.waitsForPeers(this.#device);
    } catch {
      return false;
    }
  }

  #isDue(): boolean {
    try {
      const cuda = this.#device.use();
      if (cuda.streamDone(this.#device.stream)) return true;
      if (!this.#hasGrown) return false;
      this.#hasGrown = false;
      // NCCL and other programs allocate device memory too.
      const { freeBytes } = cuda.memoryInfo();
      return this.#bytes > freeBytes && !this.#progress.waitsForPeers(this.#device);
    } catch {
      return true;
    }
  }
}
