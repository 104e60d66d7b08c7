/**
 * Memory between guards: a range that a call may read or write, and bytes around it that nothing may touch.
 *
 * One class for device buffers and TypedArrays, so that a program reads the same for both.
 */
import { asDType, type Communicator, type Data } from "twinccl";
import { bytesFromBits, widths } from "./element-bits.ts";
import type { OracleDType } from "./rounding-oracle.ts";

/** Where a call's buffers lie. */
export interface Placement {
  /** `apart`: two allocations; `oneBlock`: two ranges of one; `inPlace`: `recv` left out; `same`: `recv` is `send`. */
  readonly form: "apart" | "oneBlock" | "inPlace" | "same";
  /** Elements before and after each range. */
  readonly lead: number;
  readonly tail: number;
  /** TypedArrays instead of buffers. */
  readonly host: boolean;
}

/** Every byte that no call may write. */
export const guardByte = 0xa5;

/** Elements that consist of guards. */
export function guardBits(count: number): bigint[] {
  return new Array<bigint>(count).fill(0xa5a5_a5a5_a5a5_a5a5n);
}

/** A range of memory between guards. */
export class GuardedRange {
  readonly data: Data;
  readonly #whole: Data;
  readonly #start: number;
  readonly #before: Uint8Array;

  constructor(
    comm: Communicator,
    call: { readonly dtype: OracleDType; readonly placement: Placement },
    bits: readonly bigint[],
    other?: GuardedRange,
  ) {
    const { dtype, placement } = call;
    const width = widths[dtype];
    const content = bytesFromBits(dtype, bits);
    const { lead, tail, host } = placement;
    if (other !== undefined) {
      // The second half of a block that holds both ranges.
      this.#whole = other.#whole;
      this.#start = other.#start + content.length + lead * width;
      this.data = part(dtype, this.#whole, this.#start / width, bits.length);
      this.#before = other.#before;
      return;
    }
    const twice = placement.form === "oneBlock" ? 2 : 1;
    const memory = new Uint8Array((lead + twice * (lead + bits.length) + tail) * width);
    memory.fill(guardByte);
    this.#start = lead * width;
    memory.set(content, this.#start);
    this.#whole = wholeOf(comm, dtype, memory, host);
    this.#before = Uint8Array.from(memory);
    this.data = part(dtype, this.#whole, lead, bits.length);
  }

  /** The range's bytes; everything else must be as it was, but for `others`. */
  async bytes(...others: readonly GuardedRange[]): Promise<Uint8Array> {
    const now = await hostBytes(this.#whole);
    const expected = Uint8Array.from(this.#before);
    for (const { start, length } of this.#inSameMemory(others)) {
      expected.set(now.subarray(start, start + length), start);
    }
    if (Buffer.compare(now, expected) !== 0) throw new Error("bytes outside of recv were written");
    const { start, length } = this.#range();
    return now.slice(start, start + length);
  }

  /** The range is as it was at first, and so is everything else but for `others`. */
  async assertUntouched(...others: readonly GuardedRange[]): Promise<void> {
    const now = await this.bytes(...others);
    const { start, length } = this.#range();
    if (Buffer.compare(now, this.#before.subarray(start, start + length)) !== 0) {
      throw new Error("send was written");
    }
  }

  #inSameMemory(others: readonly GuardedRange[]): { start: number; length: number }[] {
    const near = others.filter((other) => other.#whole === this.#whole);
    return [this, ...near].map((range) => range.#range());
  }

  #range(): { start: number; length: number } {
    return { start: this.#start, length: lengthOf(this.data) };
  }
}

/** All of it is guards. */
export function assertGuards(bytes: Uint8Array, where: string): void {
  const at = bytes.findIndex((byte) => byte !== guardByte);
  if (at >= 0) throw new Error(`byte ${at} ${where} was written`);
}

type HostView = ArrayBufferView & { readonly length: number };

const views = {
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  float8e4m3: Uint8Array,
  float8e5m2: Uint8Array,
} as const;

/** The TypedArray of a dtype over bytes. */
export function hostView(
  dtype: OracleDType,
  memory: ArrayBufferLike,
  byteOffset: number,
  length: number,
): HostView {
  return new views[dtype](memory as ArrayBuffer, byteOffset, length);
}

function wholeOf(comm: Communicator, dtype: OracleDType, memory: Uint8Array, host: boolean): Data {
  const array = hostView(dtype, memory.buffer, 0, memory.length / widths[dtype]);
  if (host) return asDType(array as never, dtype) as Data;
  return comm.alloc(dtype, array.length).copyFrom(array as never);
}

function part(dtype: OracleDType, whole: Data, at: number, length: number): Data {
  if ("subarray" in whole && "allocation" in whole) return whole.subarray(at, at + length);
  const { array } = whole as { readonly array: HostView };
  const view = hostView(dtype, array.buffer, array.byteOffset + at * widths[dtype], length);
  const named = /float(16|8)/.test(dtype);
  return (named ? asDType(view as never, dtype) : view) as Data;
}

function lengthOf(data: Data): number {
  if ("array" in data) return data.array.byteLength;
  return data.byteLength;
}

/** A copy of the bytes behind a buffer or array. */
export async function hostBytes(data: Data): Promise<Uint8Array> {
  const view = "array" in data ? data.array : "toHost" in data ? await data.toHost() : data;
  return new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice();
}
