/**
 * Deferred frees of device memory. `cudaFree` blocks this thread until the device is idle. If device work waits for another
 * process, a blocked thread would miss deadlines. Frees are therefore deferred until the rank's streams are idle. If the device
 * is short of memory, they happen at once, unless they would wait for another process. In that case the next allocation of
 * similar size reuses the memory, in order on the main stream.
 */
import type { Completion } from "../../../api/backend-entry.ts";
import { runAll } from "../../../api/run-all.ts";
import type { StreamWork } from "./progress.ts";

/** One deferred free. */
interface PendingFree {
  readonly bytes: number;
  /** Address of memory that can be reused without a free. */
  readonly ptr: bigint | undefined;
  readonly free: () => void;
}

/** Memory of one device with a deferred free. */
export class DeferredFree {
  readonly #main: StreamWork;
  /** Further streams whose work may use the memory. */
  readonly others = new Set<StreamWork>();
  #pending: PendingFree[] = [];
  #bytes = 0;
  #isWaiting = false;
  /** True if `#bytes` has grown since its last comparison with the device's free memory. */
  #hasGrown = false;

  constructor(main: StreamWork) {
    this.#main = main;
  }

  /** Number of waiting bytes of the device. */
  get bytes(): number {
    return this.#bytes;
  }

  /** A stream on which work runs, apart from those of some devices. */
  busyStream(isApart: (device: object) => boolean = () => false): StreamWork | undefined {
    return this.#busyAmong(this.#streams().filter(({ device }) => !isApart(device)));
  }

  /**
   * Defers `free` until the present work of the streams is done. `bytes` counts device memory; `ptr` is set if it can be reused.
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

  /** Reuses deferred memory of at least `bytes` bytes, and not many more, in the order of the main stream. */
  take(bytes: number): bigint | undefined {
    if (this.#busyAmong(this.others) !== undefined) return undefined;
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

  /** Runs at the end of the work of one busy stream, before programs continue and submit more. */
  #wait(): void {
    this.#isWaiting = true;
    const stream = this.#busyAmong(this.others) ?? this.#main;
    const completion: Completion = {
      acceptsMore: false,
      settled: (error) => {
        this.#isWaiting = false;
        if (this.#pending.length === 0) return;
        // The waits of a stream that is released fail without a fault of the device.
        const isLost = error !== undefined && (stream === this.#main || this.others.has(stream));
        if (isLost || this.#isDue()) this.#freeAll();
        else this.#wait();
      },
    };
    stream.progress.whenDone([stream.device], undefined, completion);
  }

  #freeAll(): void {
    const steps = this.#pending.map(({ free }) => free);
    this.clear();
    const idle = this.#streams().map(
      ({ device }) =>
        () =>
          device.use().streamSynchronize(device.stream),
    );
    // NCCL's frees do not wait for the device. Memory that cannot be freed belongs to a lost device; the next call on it fails.
    try {
      runAll([...idle, ...steps]);
    } catch {}
  }

  /** True if a free would block this thread on other processes, without deadlines, signals or reports of lost ranks. */
  #waitsForPeers(): boolean {
    const waits = (stream: StreamWork): boolean =>
      isBusy(stream) && stream.progress.waitsForPeers(stream.device);
    try {
      return this.#streams().some(waits);
    } catch {
      return false;
    }
  }

  #isDue(): boolean {
    try {
      if (this.busyStream() === undefined) return true;
      if (!this.#hasGrown) return false;
      this.#hasGrown = false;
      // NCCL and other programs allocate device memory too.
      const { freeBytes } = this.#main.device.use().memoryInfo();
      return this.#bytes > freeBytes && !this.#waitsForPeers();
    } catch {
      return true;
    }
  }

  #streams(): readonly StreamWork[] {
    return [this.#main, ...this.others];
  }

  #busyAmong(streams: Iterable<StreamWork>): StreamWork | undefined {
    for (const stream of streams) if (isBusy(stream)) return stream;
    return undefined;
  }
}

/** False also for a stream that cannot be queried: a free reports the fault. */
function isBusy({ device }: StreamWork): boolean {
  try {
    return !device.use().streamDone(device.stream);
  } catch {
    return false;
  }
}
