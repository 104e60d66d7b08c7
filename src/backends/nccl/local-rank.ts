/** A rank that lives in this process: its device, its memory, and what it lends to calls. */
import { InvalidArgumentError, type Memory } from "../../api/index.ts";
import type { Device } from "./device.ts";
import { DeviceMemory } from "./memory.ts";
import type { Progress } from "./progress.ts";
import { CudaError } from "./result/errors.ts";
import { Staging } from "./staging.ts";

/** Elements of scratch memory are this far apart from anything else. */
const scratchBytes = 256;

/** One rank's own part of the session. */
export class LocalRank {
  readonly worldRank: number;
  readonly device: Device;
  readonly progress: Progress;
  readonly staging: Staging;
  /** Some bytes that nobody looks at. */
  readonly scratch: bigint;
  readonly #live = new Set<bigint>();
  #open = true;

  constructor(worldRank: number, device: Device, progress: Progress) {
    this.worldRank = worldRank;
    this.device = device;
    this.progress = progress;
    this.staging = new Staging(device, progress);
    const cuda = device.use();
    this.scratch = cuda.malloc(scratchBytes);
    this.#live.add(this.scratch);
    cuda.set(this.scratch, 0, scratchBytes, device.stream);
  }

  /** Memory filled with zeros. */
  allocate(byteLength: number): Memory {
    const cuda = this.device.use();
    let ptr: bigint;
    try {
      ptr = cuda.malloc(Math.max(1, byteLength));
    } catch (cause) {
      if (!(cause instanceof CudaError) || cause.statusName !== "cudaErrorMemoryAllocation")
        throw cause;
      throw new InvalidArgumentError(
        {
          headline: `alloc: ${byteLength} bytes are more than ${this.device.name} has free`,
          hint: "dispose of buffers that are no longer used, or allocate less",
        },
        { field: "length", rank: this.worldRank, cause },
      );
    }
    this.#live.add(ptr);
    if (byteLength > 0) cuda.set(ptr, 0, byteLength, this.device.stream);
    return new DeviceMemory(this, ptr, byteLength, (freed) => this.#free(freed));
  }

  /** Gives back whatever is left; nothing may run on the device any more. */
  release(): void {
    if (!this.#open) return;
    this.#open = false;
    this.staging.release();
    for (const ptr of this.#live) this.device.use().free(ptr);
    this.#live.clear();
    this.device.release();
  }

  #free(ptr: bigint): void {
    if (this.#live.delete(ptr)) this.device.use().free(ptr);
  }
}
