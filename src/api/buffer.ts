/**
 * Buffers: typed ranges of one rank's device memory.
 *
 * A buffer has a dtype and a length in elements; its bytes are in the backend's `Memory`. `subarray` shares memory with its
 * parent, as a TypedArray's does, and both end when the allocation is disposed. While an operation is pending its buffers are
 * in use: reading gives undefined contents and writing corrupts the result.
 */

import { type DType, dtypeInfo, type HostArray, isDType, noDType } from "./dtype.ts";
import {
  CommClosedError,
  type CommErrorFacts,
  InvalidArgumentError,
  UnsupportedError,
} from "./errors.ts";
import { carries, type NamedArrays } from "./host-array.ts";
import type { Memory } from "./memory.ts";
import type { Operation } from "./op.ts";
import { invalid, textOf } from "./option-kinds.ts";
import type { CollectiveName } from "./specification.ts";
import { type ArrayBytes, bytesOfArray, typedArrayClass } from "./typed-array.ts";

/** The owner of memory. */
export interface MemoryOwner {
  /** The rank that owns it, as numbered in its world. */
  readonly rank: number;
  /** The session it belongs to; a buffer of another session is refused. */
  readonly session: object;
  /** Symmetric memory, of which a communicator makes a window when it is first used for one. */
  readonly symmetric?: boolean;
}

/** One allocation, shared by a buffer and all its subarrays. */
export interface Allocation extends Required<MemoryOwner> {
  readonly memory: Memory;
  disposed: boolean;
  /** The last operation that was posted with this memory; reads wait for it. */
  lastUse: LastUse | undefined;
}

/** An allocation of memory that no buffer has yet. */
export function createAllocation(
  memory: Memory,
  { rank, session, symmetric = false }: MemoryOwner,
): Allocation {
  return { memory, rank, session, disposed: false, symmetric, lastUse: undefined };
}

/** True for memory that was disposed, or that the caller has transferred away. */
export function isReleased({ disposed, memory }: Allocation): boolean {
  return disposed || memory.detached === true;
}

/** Sessions that were closed, and their memory with them. */
const closed = new WeakSet<object>();

/** Marks a session as closed: its memory is refused from here on, whether or not the backend keeps the bytes. */
export function endMemoryOf(session: object): void {
  closed.add(session);
}

/** True once the session was closed. */
export function isMemoryOver(session: object): boolean {
  return closed.has(session);
}

let disposals = 0;

/** Number of disposals in this process so far: while it is unchanged, every live buffer is still live. */
export function disposalsSoFar(): number {
  return disposals;
}

// The functions below are set by the class: they make buffers and read fields of theirs that programs do not see.

/** A buffer of an allocation that has its bytes from `byteOffset` on. */
export let createBuffer: <D extends DType>(
  dtype: D,
  length: number,
  allocation: Allocation,
  byteOffset?: number,
) => DeviceBuffer<D>;

/** The allocation of a buffer. */
export let allocationOf: (buffer: DeviceBuffer) => Allocation;

/** The memory that holds a buffer, from its `byteOffset` on. */
export let memoryOf: (buffer: DeviceBuffer) => Memory;

/** Stores a call as the last one with a buffer. */
export let setLastCall: (buffer: DeviceBuffer, call: object) => void;

/**
 * A typed range of device memory (host memory in the simulation); made by `comm.alloc` and `comm.adopt`.
 *
 * `copyFrom`, `fill` and `subarray` take effect at once, even before an open call on the memory. Memory of an open call must
 * not be written until the call is done. `toHost` and `copyTo` wait for the last operation posted with this memory and reject
 * with its error when it failed.
 */
export class DeviceBuffer<D extends DType = DType> {
  readonly dtype: D;
  /** Length in elements. */
  readonly length: number;
  /** Start inside the memory that `alloc` gave, in bytes. */
  readonly byteOffset: number;
  // Ordinary fields, because every call reads them, and because tests compare buffers by their fields.
  private readonly allocation: Allocation;
  // biome-ignore lint/correctness/noUnusedPrivateClassMembers: `lastCallOf` reads it
  private lastCall: object | undefined = undefined;

  private constructor(dtype: D, length: number, allocation: Allocation, byteOffset = 0) {
    this.dtype = dtype;
    this.length = length;
    this.allocation = allocation;
    this.byteOffset = byteOffset;
  }

  /** Length in bytes. */
  get byteLength(): number {
    return this.length * dtypeInfo[this.dtype].bytes;
  }

  /** Name of the device that holds the memory, such as `sim:3`. */
  get device(): string {
    return this.allocation.memory.device;
  }

  /** Address of the first element on its device; unique among the live allocations of a rank. */
  get ptr(): bigint {
    return this.allocation.memory.ptr + BigInt(this.byteOffset);
  }

  /** True once `dispose` was called on this buffer or on one that shares its memory. */
  get disposed(): boolean {
    return this.allocation.disposed;
  }

  /**
   * A view of elements `begin` to `end` (exclusive) in the same memory. Positions must be integers with
   * 0 ≤ begin ≤ end ≤ length; unlike a TypedArray's, they are not clamped and do not count from the end.
   */
  subarray(begin = 0, end: number = this.length): DeviceBuffer<D> {
    this.assertLive("subarray");
    const isBegin = isPosition(begin, 0, this.length);
    if (!isBegin || !isPosition(end, begin, this.length)) {
      throw new InvalidArgumentError(
        {
          headline: `subarray: found elements ${textOf(begin)}..${textOf(end)}, needs integers within 0..${this.length}`,
          hint: "positions are elements of this buffer, end exclusive",
        },
        { field: isBegin ? "end" : "begin" },
      );
    }
    const byteOffset = this.byteOffset + begin * dtypeInfo[this.dtype].bytes;
    return new DeviceBuffer(this.dtype, end - begin, this.allocation, byteOffset);
  }

  /**
   * Copies a host array of the dtype and the same length into the buffer; for float16 a `Float16Array` too, where there is
   * one. Returns the buffer.
   *
   * @throws UnsupportedError where buffers have no contents (`comm.capabilities.phantom`).
   */
  copyFrom(source: HostArray<D> | NamedArrays[D]): this {
    this.assertLive("copyFrom");
    this.assertContents("copyFrom");
    const from = this.assertHost("copyFrom", source);
    let at = 0;
    do {
      this.allocation.memory.write(this.byteOffset + at, pieceAt(from, at));
      at += pieceBytes;
    } while (at < from.byteLength);
    return this;
  }

  /**
   * Sets every element to `value`. Floats take a number and round it to the nearest; integers take a safe integer or a
   * bigint, which wraps as a TypedArray's do. Where buffers have no contents the value is checked and dropped.
   *
   * @throws InvalidArgumentError for any other value.
   */
  fill(value: number | bigint): this {
    this.assertLive("fill");
    this.assertFillable(value);
    this.allocation.memory.fill(this.byteOffset, this.length, this.dtype, value);
    return this;
  }

  /**
   * A copy of the contents in a new host array, once the operations posted with this memory are done. Of float16 it is
   * always a `Uint16Array` of bits, which `new Float16Array(array.buffer)` shows as numbers.
   *
   * @throws UnsupportedError where buffers have no contents (`comm.capabilities.phantom`). InvalidArgumentError for more
   *   elements than the runtime's arrays hold, or there is host memory for.
   */
  async toHost(): Promise<HostArray<D>> {
    this.assertContents("toHost");
    const array = this.hostArray();
    await this.readInto("toHost", array);
    return array;
  }

  /**
   * Copies the contents into a host array as `copyFrom` takes it, once pending operations are done.
   *
   * @throws UnsupportedError where buffers have no contents (`comm.capabilities.phantom`).
   */
  copyTo(target: HostArray<D> | NamedArrays[D]): Promise<void> {
    return this.readInto("copyTo", target);
  }

  /**
   * Gives the memory back, unless it was adopted. Every buffer that shares it is unusable from here on. A submitted call goes on,
   * and the memory is freed behind it; a call that still waits for other ranks fails with a `CommClosedError`. Idempotent.
   */
  dispose(): void {
    if (this.allocation.disposed) return;
    this.allocation.disposed = true;
    disposals++;
    freeBehindUse(this.allocation);
  }

  /** Same as `dispose`, for `using`. */
  [Symbol.dispose](): void {
    this.dispose();
  }

  private async readInto(action: string, target: HostArray<D> | NamedArrays[D]): Promise<void> {
    this.assertLive(action);
    this.assertContents(action);
    this.assertHost(action, target);
    const last = this.allocation.lastUse?.op;
    if (last !== undefined) await last;
    this.assertLive(action);
    const { memory } = this.allocation;
    const into = bytesOfArray(target);
    if (into.byteLength <= pieceBytes) {
      await memory.read(this.byteOffset, pieceAt(into, 0));
      return;
    }
    // All begin at once: what is written meanwhile is in none of them.
    const reads: (void | Promise<void>)[] = [];
    for (let at = 0; at < into.byteLength; at += pieceBytes) {
      reads.push(memory.read(this.byteOffset + at, pieceAt(into, at)));
    }
    await Promise.all(reads);
  }

  private hostArray(): HostArray<D> {
    const { bytes, view, host } = dtypeInfo[this.dtype];
    try {
      return view(new ArrayBuffer(this.length * bytes), 0, this.length) as HostArray<D>;
    } catch (cause) {
      throw new InvalidArgumentError(
        {
          headline: `toHost: this runtime makes no ${host} of ${this.length} elements: ${String(cause)}`,
          hint: "read it in parts: buffer.subarray(begin, end).toHost()",
        },
        { field: "length", rank: this.allocation.rank, cause },
      );
    }
  }

  private assertLive(action: string): void {
    const { disposed, rank, session, memory } = this.allocation;
    if (disposed) {
      throw new CommClosedError(
        {
          headline: `${action}: the buffer was disposed, needs a live one`,
          hint: "dispose a buffer after its last use; its subarrays share its memory",
        },
        { rank },
      );
    }
    if (!isMemoryOver(session)) return;
    throw new CommClosedError(
      {
        headline: `${action}: the world on ${memory.device} was closed, and its memory with it`,
        hint: "copy what is needed to the host before it is closed",
      },
      { rank, device: memory.device },
    );
  }

  private assertContents(action: string): void {
    if (this.allocation.memory.phantom !== true) return;
    throw new UnsupportedError(
      {
        headline: `${action}: the buffer has a size and no contents: this world keeps phantom data`,
        hint: "leave it out where comm.capabilities.phantom is set, or open the world without phantom: predict --job takes --contents",
      },
      { rank: this.allocation.rank, field: "phantom" },
    );
  }

  /** The bytes of an array of the buffer's dtype and length. */
  private assertHost(action: string, array: HostArray<D> | NamedArrays[D]): ArrayBytes {
    const needed = dtypeInfo[this.dtype].host;
    const found = typedArrayClass(array);
    if (!carries(found, this.dtype)) {
      const why = dtypeInfo[this.dtype].bits ? ` (${this.dtype} travels as its bits)` : "";
      throw new InvalidArgumentError(
        {
          headline: `${action}: found ${found ?? textOf(array)}, ${this.dtype} needs ${needed}${why}`,
          hint: Array.isArray(array) ? `write ${needed}.from(array)` : undefined,
        },
        { field: "dtype", rank: this.allocation.rank },
      );
    }
    const bytes = bytesOfArray(array);
    if (bytes.length === this.length) return bytes;
    throw new InvalidArgumentError(
      {
        headline: `${action}: found ${bytes.length} elements, needs exactly ${this.length}`,
        hint: "take a subarray of the longer side",
      },
      { field: "length", rank: this.allocation.rank },
    );
  }

  private assertFillable(value: number | bigint): void {
    const { kind } = dtypeInfo[this.dtype];
    const fits =
      kind === "float"
        ? typeof value === "number"
        : typeof value === "bigint" || Number.isSafeInteger(value);
    if (fits) return;
    throw new InvalidArgumentError(
      {
        headline: `fill: found ${textOf(value)}, ${this.dtype} needs ${
          kind === "float" ? "a number" : "an integer or a bigint"
        }`,
      },
      { field: "value", rank: this.allocation.rank },
    );
  }

  static {
    createBuffer = (dtype, length, allocation, byteOffset) =>
      new DeviceBuffer(dtype, length, allocation, byteOffset);
    allocationOf = (buffer) => buffer.allocation;
    memoryOf = (buffer) => buffer.allocation.memory;
    setLastCall = (buffer, call) => {
      buffer.lastCall = call;
    };
    // Node.js calls the method for `console.log`. It is not part of the public type.
    Object.defineProperty(DeviceBuffer.prototype, Symbol.for("nodejs.util.inspect.custom"), {
      value(this: DeviceBuffer): string {
        const { dtype, length, device, disposed } = this;
        return `DeviceBuffer ${dtype}[${length}] on ${device}${disposed ? ", disposed" : ""}`;
      },
    });
  }
}

/** The last call with a buffer as its first one, by which repeated calls are recognised; `undefined` for other data. */
export function lastCallOf(data: unknown): object | undefined {
  // A plain function, because every repeated call runs it: V8 inlines no function of a variable.
  return (data as DeviceBuffer | null | undefined)?.["lastCall"];
}

/** A buffer over memory that no other buffer has, from its start. */
export function bufferOver<D extends DType>(
  dtype: D,
  length: number,
  memory: Memory,
  owner: MemoryOwner,
): DeviceBuffer<D> {
  return createBuffer(dtype, length, createAllocation(memory, owner));
}

/** Refuses a length that is no count of elements. */
export function assertShape(action: string, dtype: unknown, length: unknown): void {
  if (!isDType(dtype)) throw noDType(action, dtype);
  const most = Math.floor(Number.MAX_SAFE_INTEGER / dtypeInfo[dtype].bytes);
  const isCount = typeof length === "number" && Number.isInteger(length) && length >= 0;
  if (isCount && length <= most) return;
  const needed = isCount
    ? `at most ${most}: a buffer has at most 2^53 - 1 bytes, and ${dtype} takes ${dtypeInfo[dtype].bytes}`
    : "an integer of at least 0";
  throw new InvalidArgumentError(
    { headline: `${action}: found length ${textOf(length)}, needs ${needed}` },
    { field: "length" },
  );
}

/** Refuses what is no address of elements of a dtype. */
export function assertAddress(ptr: unknown, dtype: DType, facts: CommErrorFacts): void {
  const fault = (found: string, needed: string): InvalidArgumentError =>
    invalid("adopt", "ptr", found, needed, undefined, facts);
  if (typeof ptr !== "bigint") throw fault(textOf(ptr), "an address, as a bigint");
  if (ptr <= 0n || ptr >= 1n << 64n) throw fault(String(ptr), "an address of device memory");
  const { bytes } = dtypeInfo[dtype];
  if (ptr % BigInt(bytes) === 0n) return;
  throw fault(`0x${ptr.toString(16)}`, `a multiple of ${bytes}, the bytes of ${dtype}`);
}

/** Bytes that two buffers have in common. Memory that was adopted may be that of another buffer. */
export function overlapBytes(a: DeviceBuffer, b: DeviceBuffer): number {
  const [one, other] = [memoryOf(a), memoryOf(b)];
  if (one !== other) {
    if (one.adopted !== true && other.adopted !== true) return 0;
    return one.device === other.device ? commonBytes(a, b) : 0;
  }
  const begin = Math.max(a.byteOffset, b.byteOffset);
  const end = Math.min(a.byteOffset + a.byteLength, b.byteOffset + b.byteLength);
  return Math.max(0, end - begin);
}

/** Bytes at the same addresses. */
function commonBytes(a: DeviceBuffer, b: DeviceBuffer): number {
  const end = (buffer: DeviceBuffer): bigint => buffer.ptr + BigInt(buffer.byteLength);
  const begin = a.ptr > b.ptr ? a.ptr : b.ptr;
  const common = (end(a) < end(b) ? end(a) : end(b)) - begin;
  return common > 0n ? Number(common) : 0;
}

function isPosition(value: number, least: number, most: number): boolean {
  return Number.isInteger(value) && least <= value && value <= most;
}

/** Arrays are copied in pieces: one may have more bytes than the runtime's arrays of bytes (on Node.js 20, 4 GiB). */
const pieceBytes = 2 ** 30;

/** The bytes of a host array from one on, a piece at most. */
function pieceAt({ buffer, byteOffset, byteLength }: ArrayBytes, at: number): Uint8Array {
  return new Uint8Array(buffer, byteOffset + at, Math.min(pieceBytes, byteLength - at));
}

// The last use of memory.
//
// Memory lives long and operations are new, and the garbage collector has to note each long-lived object that points to a new
// one. So the memory points to one object for all calls of a batch, and the operation changes in there.

/** Readers take the operation at once: later it may be another one. */
export class LastUse {
  op: Operation;
  /** The number of its batch; -1 for a call that no batch has. */
  readonly key: number;

  constructor(op: Operation, key = -1) {
    this.op = op;
    this.key = key;
  }
}

/** Frees memory behind the last call with it. A session that queues work orders the free itself, and gets it at once. */
function freeBehindUse(allocation: Allocation): void {
  const { memory, session } = allocation;
  const op = allocation.lastUse?.op;
  // As `isQueueing`, whose file imports this one.
  const queues = "submit" in session;
  if (op?.pending === true && !queues) op.whenSettled(() => memory.free());
  else memory.free();
}

// Symmetric memory.
//
// Kernels for symmetric memory let ranks reach into each other's buffers. They exist for some collectives, and run if both
// buffers of the call are symmetric. Every other call treats a symmetric buffer as ordinary memory.

/** Bytes from the start of the symmetric memory to each buffer of a call. */
export interface SymmetricPlace {
  readonly send: number;
  readonly recv: number;
  /** True for a call in place, whose buffers overlap. */
  readonly inPlace?: boolean;
}

/** The part of a call that fixes its memory. */
export interface PlacedCall {
  readonly collective: CollectiveName;
  readonly send: DeviceBuffer | undefined;
  readonly recv: DeviceBuffer | undefined;
}

/** The buffers that ranks reach in each other's memory: these must start at the same place of it on every rank. */
type Reached = { readonly [B in "send" | "recv"]: boolean };

/** Of each collective that has kernels for symmetric memory. */
export const reachedBuffers: { readonly [C in CollectiveName]?: Reached } = {
  allReduce: { send: true, recv: true },
  reduceScatter: { send: true, recv: false },
  allGather: { send: false, recv: true },
};

/** Where the buffers of a call lie in symmetric memory; `undefined` for a call that does not use it. */
export function symmetricPlace({ collective, send, recv }: PlacedCall): SymmetricPlace | undefined {
  if (send === undefined || recv === undefined) return undefined;
  if (!allocationOf(send).symmetric || !allocationOf(recv).symmetric) return undefined;
  if (reachedBuffers[collective] === undefined) return undefined;
  return {
    ...{ send: send.byteOffset, recv: recv.byteOffset },
    inPlace: overlapBytes(send, recv) > 0,
  };
}
