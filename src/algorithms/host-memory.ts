/** Host memory as the memory of a rank: with an address of its own, and as lanes for folds. */
import type { Memory } from "../api/backend-entry.ts";
import { bytesOf, type DType, dtypeInfo, InvalidArgumentError } from "../api/index.ts";
import { type FloatDType, type Lanes, lanesOf, numberToBits } from "./arithmetic/index.ts";

/** Bytes of host memory that a rank owns or was lent. */
export class HostMemory implements Memory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  /** True when the caller owns it, so that several ranks may have been lent the same memory. */
  readonly borrowed: boolean;
  #buffer: ArrayBufferLike | undefined;
  readonly #lanes = new Map<DType, Lanes>();

  constructor(device: string, ptr: bigint, buffer: ArrayBufferLike, borrowed: boolean) {
    this.device = device;
    this.ptr = ptr;
    this.byteLength = buffer.byteLength;
    this.borrowed = borrowed;
    this.#buffer = buffer;
  }

  get detached(): boolean {
    return this.borrowed && this.#buffer?.byteLength !== this.byteLength;
  }

  /** The memory itself; for executors. */
  get buffer(): ArrayBufferLike {
    return this.#buffer ?? new ArrayBuffer(0);
  }

  /** The whole memory as lanes of a dtype, made once. Bytes beyond the last whole element are left out. */
  lanes(dtype: DType): Lanes {
    let lanes = this.#lanes.get(dtype);
    if (lanes === undefined) {
      const bytes = bytesOf(dtype);
      lanes = lanesOf(dtype, this.buffer, 0, Math.floor(this.byteLength / bytes) * bytes);
      this.#lanes.set(dtype, lanes);
    }
    return lanes;
  }

  /** Copies bytes in. */
  write(byteOffset: number, bytes: Uint8Array): void {
    new Uint8Array(this.buffer, byteOffset, bytes.length).set(bytes);
  }

  /** Copies bytes out. */
  read(byteOffset: number, into: Uint8Array): void {
    into.set(new Uint8Array(this.buffer, byteOffset, into.length));
  }

  /** Sets elements to a value, rounded to the dtype. */
  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void {
    fillElements(this.buffer, byteOffset, count, dtype, value);
  }

  /** FNV-1a over the bytes of a range. */
  fingerprint(byteOffset: number, byteLength: number): number {
    return fingerprintOf(new Uint8Array(this.buffer, byteOffset, byteLength));
  }

  /** Releases the memory. */
  free(): void {
    this.#buffer = undefined;
    this.#lanes.clear();
  }
}

/**
 * Host memory of a rank's own.
 *
 * @throws RangeError for more bytes than one byte array covers, since executors view it as one, or than are free.
 */
export function allocateHost(device: string, ptr: bigint, byteLength: number): HostMemory {
  return new HostMemory(device, ptr, new Uint8Array(byteLength).buffer, false);
}

/** Addresses are multiples of this, as CUDA's are. */
const alignment = 256n;

/** The addresses of a world's memories, and the host memory that its ranks were lent. */
export class AddressSpace {
  readonly #borrowed = new WeakMap<ArrayBufferLike, HostMemory>();
  #next = 0x1000_0000n;

  reserve(byteLength: number): bigint {
    const address = this.#next;
    this.#next += ((BigInt(byteLength) + alignment) / alignment) * alignment;
    return address;
  }

  /** The memory of an array of the caller, the same object every time. */
  borrow(device: string, buffer: ArrayBufferLike): HostMemory {
    let memory = this.#borrowed.get(buffer);
    if (memory === undefined) {
      memory = new HostMemory(device, this.reserve(buffer.byteLength), buffer, true);
      this.#borrowed.set(buffer, memory);
    }
    return memory;
  }
}

/** The error for more memory than the host gives in one piece. */
export function allocationError(rank: number, device: string, byteLength: number, cause: unknown) {
  return new InvalidArgumentError(
    {
      headline: `alloc: ${byteLength} bytes are more than this host gives in one piece`,
      hint: `dispose buffers after their last use: ${(cause as Error).message}`,
    },
    { field: "length", rank, device, cause },
  );
}

/** Sets elements of host memory to a value, rounded to the dtype. */
export function fillElements(
  buffer: ArrayBufferLike,
  byteOffset: number,
  count: number,
  dtype: DType,
  value: number | bigint,
): void {
  const { view, kind, bytes, bits } = dtypeInfo[dtype];
  const array = view(buffer, byteOffset, count);
  if (array instanceof BigInt64Array || array instanceof BigUint64Array) array.fill(BigInt(value));
  else if (bits)
    array.fill(numberToBits(dtype as Exclude<FloatDType, "float32" | "float64">, Number(value)));
  else if (kind === "float") array.fill(Number(value));
  else array.fill(Number(BigInt.asIntN(8 * bytes, BigInt(value))));
}

/** FNV-1a over bytes. */
export function fingerprintOf(bytes: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ (bytes[i] as number), 0x01000193);
  return hash;
}
