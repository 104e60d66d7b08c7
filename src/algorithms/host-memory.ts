/** Host memory as the memory of a rank: with an address of its own, and as lanes for folds. */
import type { Memory, RankDevice } from "../api/backend-entry.ts";
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

/** A rank's device whose memory is the host's: allocated in one piece, or a program's TypedArray in place. */
export class HostDevice implements RankDevice {
  /** Such as `tcp:3`. */
  readonly name: string;
  readonly #rank: number;
  readonly #addresses: AddressSpace;

  /** The device of world rank `rank` of a backend. The ranks of one process share their addresses. */
  constructor(backend: string, rank: number, addresses: AddressSpace) {
    this.name = `${backend}:${rank}`;
    this.#rank = rank;
    this.#addresses = addresses;
  }

  /** There are no streams. */
  streamOf(): undefined {
    return undefined;
  }

  /**
   * New memory of zeros, symmetric or not.
   *
   * @throws InvalidArgumentError for more bytes than the host gives in one piece.
   */
  allocate(byteLength: number): Memory {
    const ptr = this.#addresses.reserve(byteLength);
    try {
      return this.create(ptr, byteLength);
    } catch (cause) {
      if (!(cause instanceof RangeError)) throw cause;
      throw allocationError(this.#rank, this.name, byteLength, cause);
    }
  }

  /** The memory at a new address; throws a `RangeError` for too many bytes. */
  protected create(ptr: bigint, byteLength: number): Memory {
    return allocateHost(this.name, ptr, byteLength);
  }

  /** There is no device memory of the program's own. */
  adopt(_ptr: bigint, _byteLength: number): Memory | undefined {
    return undefined;
  }

  /** The memory of a TypedArray of the program, the same object every time. */
  borrow(buffer: ArrayBufferLike): Memory {
    return this.#addresses.borrow(this.name, buffer);
  }
}

/**
 * The devices of all ranks of a world in this process, by rank: for backends on the memory of the host. Their memories are
 * `HostMemory`, at addresses that no other one of the world has. A TypedArray of several ranks is the same memory on all.
 *
 * @example
 * const devices = hostDevices("mine", size);
 */
export function hostDevices(backend: string, size: number): RankDevice[] {
  const addresses = new AddressSpace();
  return Array.from({ length: size }, (_, rank) => new HostDevice(backend, rank, addresses));
}

/** The error for more memory than the host gives in one piece. */
function allocationError(rank: number, device: string, byteLength: number, cause: unknown) {
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
  // V8 sets narrow elements of shared memory one by one. Copies of those that are set take an eighth of the time.
  const set = bytes > 2 || buffer instanceof ArrayBuffer ? count : Math.min(count, 64);
  if (array instanceof BigInt64Array || array instanceof BigUint64Array) array.fill(BigInt(value));
  else if (bits) {
    const small = dtype as Exclude<FloatDType, "float32" | "float64">;
    array.fill(numberToBits(small, Number(value)), 0, set);
  } else if (kind === "float") array.fill(Number(value));
  else array.fill(Number(BigInt.asIntN(8 * bytes, BigInt(value))), 0, set);
  for (let done = set; done < count; done *= 2) {
    array.copyWithin(done, 0, Math.min(done, count - done));
  }
}

/** FNV-1a over bytes. */
export function fingerprintOf(bytes: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ (bytes[i] as number), 0x01000193);
  return hash;
}
