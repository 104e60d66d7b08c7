/** A CUDA stream of a rank, with what its calls use beside their buffers: memory in stream order, and waits for their end. */
import type { DeferredFree } from "./deferred-free.ts";
import type { Device } from "./device.ts";
import type { Progress, StreamWork } from "./progress.ts";
import { Staging } from "./staging.ts";

/** A stream of a rank of this process. */
export class LocalStream {
  readonly device: Device;
  /** Waits for its work, in its order. */
  readonly progress: Progress;
  readonly staging: Staging;
  /** Memory that its calls borrow. */
  readonly pool: DeviceMemoryPool;

  /** `allocate` allocates memory of the rank, in any order with work of this stream. */
  constructor(
    { device, progress }: StreamWork,
    deferredFree: DeferredFree,
    allocate: (bytes: number) => bigint,
  ) {
    this.device = device;
    this.progress = progress;
    this.staging = new Staging(device, progress, deferredFree);
    this.pool = new DeviceMemoryPool(allocate);
  }
}

/** Sizes are multiples of it. */
const leastBytes = 512;

/**
 * Device memory borrowed by running calls, cached by size.
 *
 * All users of an area queue on the same stream, so that a call may return it while queued work still uses it. The pool grows
 * to the peak use of concurrent calls and existing recordings, for each size.
 */
class DeviceMemoryPool {
  readonly #allocate: (bytes: number) => bigint;
  readonly #spare = new Map<number, bigint[]>();
  readonly #all: bigint[] = [];

  constructor(allocate: (bytes: number) => bigint) {
    this.#allocate = allocate;
  }

  /** An area of at least `bytes` bytes, with undefined contents. */
  take(bytes: number): bigint {
    const size = pooledBytes(bytes);
    const spare = this.#spare.get(size)?.pop();
    if (spare !== undefined) return spare;
    const ptr = this.#allocate(size);
    this.#all.push(ptr);
    return ptr;
  }

  /** All areas, borrowed or not. */
  get areas(): readonly bigint[] {
    return this.#all;
  }

  /** Returns the area that `take` gave for `bytes` bytes. */
  putBack(ptr: bigint, bytes: number): void {
    const size = pooledBytes(bytes);
    const spare = this.#spare.get(size);
    if (spare === undefined) this.#spare.set(size, [ptr]);
    else spare.push(ptr);
  }
}

/** A size rounded up to an eighth of a power of two, so that similar sizes share areas at little waste. */
function pooledBytes(bytes: number): number {
  const granule = Math.max(leastBytes, 2 ** (Math.floor(Math.log2(bytes)) - 3));
  return Math.ceil(bytes / granule) * granule;
}
