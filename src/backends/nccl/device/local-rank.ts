/** A rank of this process: its device, its memory and its streams. */
import type { Memory } from "../../../api/backend-entry.ts";
import { InvalidArgumentError } from "../../../api/index.ts";
import { runAll } from "../../../api/run-all.ts";
import { pause } from "../../../job/async.ts";
import type { PointerInfo } from "../result/cuda.ts";
import { CudaError, located, NcclError } from "../result/errors.ts";
import type { ConnectBuffers, NcclCalls } from "../result/nccl.ts";
import { DeferredFree } from "./deferred-free.ts";
import { Device } from "./device.ts";
import { DeviceMemory } from "./device-memory.ts";
import { LocalStream } from "./local-stream.ts";
import { MemoryOrder } from "./memory-order.ts";
import type { Progress } from "./progress.ts";
import type { Staging } from "./staging.ts";

/** NCCL takes the pages of a window for symmetric memory. */
const pageBytes = 4096n;

/** NCCL takes symmetric memory in such pieces. */
const symmetricBytes = 2 << 20;

/** Distance of scratch memory from any other memory, in bytes. */
const scratchBytes = 256;

/** Pause between two queries of `untilIdle`. */
const queryMs = 4;

/** One rank's part of the session. */
export class LocalRank {
  readonly worldRank: number;
  readonly device: Device;
  readonly deferredFree: DeferredFree;
  /** The stream of its memory operations, and of calls on communicators without streams of their own. */
  readonly main: LocalStream;
  readonly memoryOrder: MemoryOrder;
  /** Scratch bytes that no call reads; calls of all streams use them. */
  readonly scratch: bigint;
  /** The streams of communicators with streams of their own, until their memory is freed. */
  readonly #ownStreams = new Set<LocalStream>();
  /** Live allocations, each with its function to free it. */
  readonly #live = new Map<bigint, (ptr: bigint) => void>();
  /** Bytes of live symmetric memory, by address. */
  readonly #symmetric = new Map<bigint, number>();
  readonly #nccl: NcclCalls;
  /** Symmetric memory that cannot be freed yet: NCCL may use it on another thread, or its window is still registered. */
  readonly heldMemory = new HeldMemory((ptr) => this.#freeInOrder(ptr));
  /** Called before symmetric memory is freed. False if it must stay: until its last hold ends or, without a hold, for good. */
  beforeFree: (ptr: bigint) => boolean = () => true;
  #open = true;

  constructor(worldRank: number, device: Device, progress: Progress, nccl: NcclCalls) {
    this.#nccl = nccl;
    this.worldRank = worldRank;
    this.device = device;
    this.deferredFree = new DeferredFree({ device, progress });
    this.main = new LocalStream({ device, progress }, this.deferredFree, (bytes) =>
      this.#malloc(bytes, "staging", () => this.deferredFree.take(bytes)),
    );
    this.memoryOrder = new MemoryOrder(device);
    const cuda = device.use();
    this.scratch = cuda.malloc(scratchBytes);
    this.#live.set(this.scratch, (ptr) => device.use().free(ptr));
    try {
      cuda.set(this.scratch, 0, scratchBytes, device.stream);
    } catch (error) {
      cuda.free(this.scratch);
      throw error;
    }
  }

  get staging(): Staging {
    return this.main.staging;
  }

  /** False once its memory is released or abandoned. */
  get isOpen(): boolean {
    return this.#open;
  }

  /** True while work runs on a stream, apart from those of some devices. */
  isBusy(isApart: (device: object) => boolean): boolean {
    return this.deferredFree.busyStream(isApart) !== undefined;
  }

  /** Calls `step` once no stream is busy, apart from those of some devices, before programs submit more. */
  whenIdle(isApart: (device: object) => boolean, step: () => void): void {
    const stream = this.deferredFree.busyStream(isApart);
    if (stream === undefined) {
      step();
      return;
    }
    const again = (): void => this.whenIdle(isApart, step);
    const settled = (error: unknown): void => {
      if (error === undefined) again();
      // CUDA does not report the end: the stream is queried once more.
      else if (this.#open) setTimeout(again, 1);
    };
    stream.progress.whenDone([stream.device], undefined, { acceptsMore: false, settled });
  }

  /** Resolves once no stream is busy, by queries alone, which CUDA never blocks; keeps no process alive. */
  async untilIdle(): Promise<void> {
    while (this.#open && this.deferredFree.busyStream() !== undefined) {
      await pause(queryMs, undefined, { unref: true });
    }
  }

  /** Opens a communicator's own stream, for calls that are independent of the main stream's. */
  openStream(progress: Progress): LocalStream {
    const { cuda, index, name } = this.device;
    let device: Device | undefined;
    try {
      device = new Device(cuda, index);
      this.memoryOrder.join(device);
    } catch (error) {
      device?.release();
      throw located(error, { rank: this.worldRank, device: name });
    }
    // Memory that waits to be freed is reused in the order of the main stream alone.
    const opened = new LocalStream({ device, progress }, this.deferredFree, (bytes) =>
      this.#malloc(bytes, "staging"),
    );
    this.#ownStreams.add(opened);
    this.deferredFree.others.add(opened);
    return opened;
  }

  /** Releases a stream of `openStream` that is idle for good; CUDA frees its memory once all streams are idle. */
  closeStream(stream: LocalStream): void {
    if (!this.#ownStreams.has(stream)) return;
    this.memoryOrder.leave(stream.device);
    this.deferredFree.others.delete(stream);
    this.deferredFree.add(0, () => this.#releaseStream(stream));
  }

  #releaseStream(stream: LocalStream): void {
    if (!this.#ownStreams.delete(stream)) return;
    runAll([
      () => stream.staging.release(),
      ...stream.pool.areas.map((ptr) => () => this.#free(ptr)),
      () => stream.device.release(),
    ]);
  }

  /** Source and target of bytes that are never read. */
  get connectBuffers(): Pick<ConnectBuffers, "from" | "into"> {
    return { from: this.scratch + 64n, into: this.scratch + 128n };
  }

  /** Memory filled with zeros, on the own stream of a communicator where given; symmetric memory can be registered as a window. */
  allocate(byteLength: number, symmetric: boolean, ownStream?: LocalStream): Memory {
    try {
      const bytes = Math.max(1, byteLength);
      const ptr = symmetric ? this.#mallocSymmetric(bytes) : this.#mallocOrdinary(bytes, ownStream);
      const free = (freed: bigint): void => this.#free(freed);
      const memory = new DeviceMemory(this, ptr, byteLength, free, !symmetric);
      if (byteLength > 0) this.#clear(memory, ownStream);
      return memory;
    } catch (error) {
      throw located(error, { rank: this.worldRank, device: this.device.name });
    }
  }

  #clear(memory: DeviceMemory, ownStream: LocalStream | undefined): void {
    const { ptr, byteLength } = memory;
    try {
      if (ownStream === undefined) memory.clear();
      else ownStream.device.use().set(ptr, 0, byteLength, ownStream.device.stream);
    } catch (error) {
      this.#freeInOrder(ptr);
      throw error;
    }
  }

  /** Memory that waits to be freed is reused in the order of the main stream alone. */
  #mallocOrdinary(bytes: number, ownStream: LocalStream | undefined): bigint {
    const reuse = ownStream === undefined ? () => this.deferredFree.take(bytes) : undefined;
    return this.#malloc(bytes, "alloc", reuse);
  }

  /** Wraps memory of this device that another owner allocated. */
  adopt(ptr: bigint, byteLength: number): Memory {
    this.#assertOrdinary(ptr, byteLength);
    this.device.share();
    const last = ptr + BigInt(Math.max(1, byteLength) - 1);
    for (const address of [ptr, last]) {
      const found = this.#pointerInfo(address);
      if (isDeviceMemory(found) && found.device === this.device.index) continue;
      const what = address === ptr ? "it" : `the last of the ${byteLength} bytes there`;
      throw new InvalidArgumentError(
        {
          headline: `adopt: ptr 0x${ptr.toString(16)}: ${what} is ${memoryText(found)}, needs memory of ${this.device.name}`,
          hint: "every rank adopts memory of its own device, as long as its elements are; host memory goes through alloc(...).copyFrom(array)",
        },
        { field: "ptr", rank: this.worldRank },
      );
    }
    return this.deviceMemory(ptr, byteLength);
  }

  #pointerInfo(address: bigint): PointerInfo {
    try {
      return this.device.use().pointerInfo(address);
    } catch (error) {
      throw located(error, { rank: this.worldRank, device: this.device.name });
    }
  }

  /**
   * NCCL recognises symmetric memory by its address. Adopted as ordinary memory, it would escape the checks of symmetric
   * buffers.
   */
  #assertOrdinary(ptr: bigint, byteLength: number): void {
    const end = ptr + BigInt(Math.max(1, byteLength));
    for (const [begin, bytes] of this.#symmetric) {
      const pages = (BigInt(bytes) + pageBytes - 1n) / pageBytes;
      if (end <= begin || ptr >= begin + pages * pageBytes) continue;
      throw new InvalidArgumentError(
        {
          headline: `adopt: ptr: 0x${ptr.toString(16)} reaches into symmetric memory of this rank, ${bytes} bytes at 0x${begin.toString(16)}`,
          hint: "take a subarray of the buffer that alloc(..., { symmetric: true }) gave",
        },
        { field: "ptr", rank: this.worldRank },
      );
    }
  }

  /** Wraps memory of this device that its owner frees. */
  deviceMemory(ptr: bigint, byteLength: number): Memory {
    return new DeviceMemory(this, ptr, byteLength);
  }

  /** Frees all remaining memory; the device must be idle. */
  release(): void {
    if (!this.#open) return;
    this.#open = false;
    this.deferredFree.clear();
    try {
      runAll([
        ...[...this.#ownStreams].map((stream) => () => this.#releaseStream(stream)),
        () => this.staging.release(),
        () => this.memoryOrder.release(),
        ...[...this.#live.keys()].map((ptr) => () => this.#free(ptr)),
        () => this.device.release(),
      ]);
    } catch (error) {
      throw located(error, { rank: this.worldRank, device: this.device.name });
    }
  }

  /** Abandons all memory: freeing it would wait for work that never ends. */
  abandon(): void {
    this.#open = false;
    this.deferredFree.clear();
    this.#live.clear();
    this.#symmetric.clear();
    for (const { device } of this.#ownStreams) device.abandon();
    this.#ownStreams.clear();
    this.device.abandon();
  }

  #free(ptr: bigint): void {
    const release = this.#live.get(ptr);
    if (release === undefined || this.heldMemory.deferIfHeld(ptr)) return;
    if (this.#symmetric.has(ptr) && !this.beforeFree(ptr)) {
      this.heldMemory.deferIfHeld(ptr);
      return;
    }
    this.#live.delete(ptr);
    this.device.use();
    release(ptr);
  }

  /** Like `#free`, for memory that running work may use: CUDA would block for that work here. */
  #freeInOrder(ptr: bigint): void {
    if (this.#open) this.deferredFree.add(this.#symmetric.get(ptr) ?? 0, () => this.#free(ptr));
  }

  #malloc(bytes: number, action: "alloc" | "staging", reuse?: () => bigint | undefined): bigint {
    const cuda = this.device.use();
    const ptr = this.#allocateOrFree(action, bytes, () => cuda.malloc(bytes), reuse);
    this.#live.set(ptr, (each) => cuda.free(each));
    return ptr;
  }

  #mallocSymmetric(bytes: number): bigint {
    this.device.use();
    const ptr = this.#allocateOrFree("alloc", bytes, () => this.#nccl.memAlloc(bytes));
    this.#live.set(ptr, (each) => this.#freeSymmetric(each));
    this.#symmetric.set(ptr, bytes);
    return ptr;
  }

  /** `reuse` takes memory that waits to be given back, where all of it cannot be yet. */
  #allocateOrFree(
    action: "alloc" | "staging",
    bytes: number,
    allocate: () => bigint,
    reuse?: () => bigint | undefined,
  ): bigint {
    try {
      return allocate();
    } catch (cause) {
      if (!this.#isFull(cause, bytes)) {
        throw located(cause, { rank: this.worldRank, device: this.device.name });
      }
      if (this.deferredFree.flush()) return this.#allocateOrFree(action, bytes, allocate);
      const reused = reuse?.();
      if (reused !== undefined) return reused;
      throw this.#outOfMemory(action, bytes, cause);
    }
  }

  /** NCCL reports every error of CUDA alike: it is this one where the device has less memory than was requested. */
  #isFull(cause: unknown, bytes: number): boolean {
    if (cause instanceof CudaError) return cause.statusName === "cudaErrorMemoryAllocation";
    if (!(cause instanceof NcclError) || cause.statusName !== "ncclUnhandledCudaError")
      return false;
    try {
      const taken = Math.ceil(bytes / symmetricBytes) * symmetricBytes;
      return this.device.use().memoryInfo().freeBytes < taken;
    } catch {
      return false;
    }
  }

  #freeSymmetric(ptr: bigint): void {
    this.#nccl.memFree(ptr);
    this.#symmetric.delete(ptr);
  }

  #outOfMemory(action: string, bytes: number, cause: unknown): InvalidArgumentError {
    const waiting = this.deferredFree.bytes;
    const also = `: ${waiting} bytes that were disposed wait for calls that are under way`;
    return new InvalidArgumentError(
      {
        headline: `${action}: ${bytes} bytes are more than ${this.device.name} has free${waiting > 0 ? also : ""}`,
        hint:
          waiting > 0
            ? "await the calls that were made on this rank: then the memory is given back"
            : "dispose of buffers that are no longer used, or allocate less",
      },
      { field: "length", rank: this.worldRank, cause },
    );
  }
}

/** Memory that kernels of a device work on; managed memory lives on the device that it was made for. */
function isDeviceMemory({ kind }: PointerInfo): boolean {
  return kind === "device" || kind === "managed";
}

function memoryText(found: PointerInfo): string {
  if (isDeviceMemory(found)) return `memory of cuda:${found.device}`;
  return found.kind === "host" ? "page-locked memory of the host" : "no memory that CUDA knows";
}

/** Held addresses, with the number of their holds. Held memory is not freed, because NCCL may use it. */
class HeldMemory {
  readonly #holds = new Map<bigint, number>();
  /** Addresses to free when their last hold ends. */
  readonly #due = new Set<bigint>();
  readonly #free: (ptr: bigint) => void;

  /** `free` receives due addresses at the end of their last hold. */
  constructor(free: (ptr: bigint) => void) {
    this.#free = free;
  }

  hold(ptr: bigint): void {
    this.#holds.set(ptr, (this.#holds.get(ptr) ?? 0) + 1);
  }

  release(ptr: bigint): void {
    const left = (this.#holds.get(ptr) ?? 0) - 1;
    if (left > 0) {
      this.#holds.set(ptr, left);
      return;
    }
    this.#holds.delete(ptr);
    if (this.#due.delete(ptr)) this.#free(ptr);
  }

  /** Defers the free of held memory; true if it is held. */
  deferIfHeld(ptr: bigint): boolean {
    const isHeld = this.#holds.has(ptr);
    if (isHeld) this.#due.add(ptr);
    return isHeld;
  }
}

/** One local rank of one communicator. */
export interface LocalMember {
  /** Rank in the communicator. */
  readonly rank: number;
  readonly local: LocalRank;
  /** The stream of its calls. */
  readonly stream: LocalStream;
  readonly handle: bigint;
}
