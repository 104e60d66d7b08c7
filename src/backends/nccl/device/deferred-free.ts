/**
 * Memory that is to be given back. CUDA does that only when nothing runs on the device, and blocks this thread until then: work
 * that waits for another process would keep it from hearing of any deadline. So it waits for a moment in which the stream
 * is idle. Where the device has no memory to spare it is given back at once, unless another process would be waited for;
 * then the next allocation of about that size uses it again: that follows on the same stream.
 */
import type { Completion } from "../../../api/index.ts";
import { runAll } from "../common/async.ts";
import type { Device } from "./device.ts";
import type { Progress } from "./progress.ts";

/** Something that waits. */
interface PendingFree {
  readonly bytes: number;
  /** Where memory is that may be used again as it is. */
  readonly ptr: bigint | undefined;
  readonly free: () => void;
}

/** Memory that waits to be freed on one device. */
export class DeferredFree {
  readonly #device: Device;
  readonly #progress: Progress;
  #pending: PendingFree[] = [];
  #bytes = 0;
  #isWaiting = false;
  /** There is more than when it was last compared with what the device has left. */
  #hasGrown = false;

  constructor(device: Device, progress: Progress) {
    this.#device = device;
    this.#progress = progress;
  }

  /** Number of waiting bytes of the device. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Gives something back after what is on the stream by now, so many bytes of the device; at `ptr` if they may be used again. */
  add(bytes: number, free: () => void, ptr?: bigint): void {
    this.#pending.push({ bytes, ptr, free });
    this.#bytes += bytes;
    this.#hasGrown = true;
    if (!this.#isWaiting) this.#wait();
  }

  /** Gives everything back now, which waits for running work; false where there is nothing, or others would be waited for. */
  flush(): boolean {
    if (this.#pending.length === 0 || this.#waitsForPeers()) return false;
    this.#freeAll();
    return true;
  }

  /** Takes memory that waits, of at least so many bytes and not many more. */
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

  /** Everything is given back in another way, or left behind. */
  clear(): void {
    this.#pending = [];
    this.#bytes = 0;
  }

  /** Called as the work ends, before programs go on that put more on the stream. */
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
    // NCCL does not wait as CUDA does. Memory that cannot be freed belongs to a lost device: its next call fails.
    try {
      runAll([() => this.#device.use().streamSynchronize(this.#device.stream), ...steps]);
    } catch {}
  }

  /** True where this thread would wait for other processes, without deadlines, signals or news of losses. */
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
      // NCCL and others take memory of the device too.
      const { freeBytes } = cuda.memoryInfo();
      return this.#bytes > freeBytes && !this.#progress.waitsForPeers(this.#device);
    } catch {
      return true;
    }
  }
}
