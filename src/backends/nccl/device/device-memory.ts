/** Memory of one GPU; all accesses run in the order of the device's stream. */
import type { Memory } from "../../../api/backend-entry.ts";
import { bytesOf, type DType } from "../../../api/index.ts";
import { located } from "../result/errors.ts";
import type { DeferredFree } from "./deferred-free.ts";
import type { Device } from "./device.ts";
import type { MemoryOperation, MemoryOrder } from "./memory-order.ts";
import { scalarBytes } from "./nccl-types.ts";
import type { Staging } from "./staging.ts";

/** Longest pattern that is written by the host before the device doubles it. */
const patternBytes = 1 << 16;

/** Bytes on a device. */
export class DeviceMemory implements Memory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  readonly borrowed = false;
  readonly adopted: boolean;
  readonly #device: Device;
  readonly #staging: Staging;
  readonly #deferredFree: DeferredFree;
  readonly #order: MemoryOrder;
  #lastOperation: MemoryOperation | undefined;
  readonly #release: ((ptr: bigint) => void) | undefined;
  readonly #isOrdinary: boolean;
  /** The rank that owns the memory. */
  readonly #rank: number;

  /** Without `release`, the caller owns the memory. Ordinary memory may be reused for other allocations. */
  constructor(
    owner: {
      readonly worldRank: number;
      readonly device: Device;
      readonly staging: Staging;
      readonly deferredFree: DeferredFree;
      readonly memoryOrder: MemoryOrder;
    },
    ptr: bigint,
    byteLength: number,
    release?: (ptr: bigint) => void,
    isOrdinary = false,
  ) {
    this.device = owner.device.name;
    this.ptr = ptr;
    this.byteLength = byteLength;
    this.#rank = owner.worldRank;
    this.#device = owner.device;
    this.#staging = owner.staging;
    this.#deferredFree = owner.deferredFree;
    this.#order = owner.memoryOrder;
    this.#release = release;
    this.#isOrdinary = isOrdinary;
    this.adopted = release === undefined;
  }

  /** The last operations on its bytes, as far as other streams wait for them. */
  get lastOperations(): readonly (MemoryOperation | undefined)[] {
    return [this.#lastOperation, this.#order.lastBeside(this.adopted)];
  }

  /** Fills new memory with zeros. */
  clear(): void {
    const cuda = this.#device.use();
    this.#access(() => cuda.set(this.ptr, 0, this.byteLength, this.#device.stream));
  }

  /** Copies bytes to the device in stream order; the caller may change its array at once. */
  write(byteOffset: number, bytes: Uint8Array): void {
    this.#write(() => this.#staging.upload(this.ptr + BigInt(byteOffset), bytes));
  }

  /** Copies bytes to the host: their state after all earlier work, independent of later writes. */
  async read(byteOffset: number, into: Uint8Array): Promise<void> {
    if (into.length === 0) return;
    try {
      const source = this.ptr + BigInt(byteOffset);
      const arrived = this.#access(() => this.#staging.startDownload(source, into.length));
      await this.#staging.finishDownload(arrived, into);
    } catch (error) {
      throw this.#located(error);
    }
  }

  /** Sets elements to a value, rounded to the dtype: the host writes a pattern, the device doubles it. */
  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    if (count === 0) return;
    const element = scalarBytes(dtype, value);
    this.#write(() => this.#repeat(element, this.ptr + BigInt(byteOffset), count * bytesOf(dtype)));
  }

  /** Fills a range with copies of one element. */
  #repeat(element: Uint8Array, target: bigint, total: number): void {
    const cuda = this.#device.use();
    const { stream } = this.#device;
    const first = element[0] as number;
    if (element.every((byte) => byte === first)) {
      cuda.set(target, first, total, stream);
      return;
    }
    const pattern = new Uint8Array(Math.min(total, patternBytes));
    for (let at = 0; at < pattern.length; at += element.length) pattern.set(element, at);
    this.#staging.upload(target, pattern);
    for (let done = pattern.length; done < total; done *= 2) {
      cuda.copy(target + BigInt(done), target, Math.min(done, total - done), stream);
    }
  }

  /** Frees the memory after all earlier work. */
  free(): void {
    const release = this.#release;
    if (release === undefined) return;
    const { byteLength, ptr } = this;
    this.#deferredFree.add(byteLength, () => release(ptr), this.#isOrdinary ? ptr : undefined);
  }

  /** Runs `work`, which writes the memory; its errors name the rank and the device. */
  #write(work: () => void): void {
    try {
      this.#access(work);
    } catch (error) {
      throw this.#located(error);
    }
  }

  /** Runs `work`, which puts an operation on the memory on the stream. */
  #access<T>(work: () => T): T {
    const done = work();
    this.#lastOperation = this.#order.note(this.adopted);
    return done;
  }

  #located(error: unknown): unknown {
    return located(error, { rank: this.#rank, device: this.device });
  }
}
