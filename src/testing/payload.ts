/**
 * Contents of send buffers, fixed by a seed.
 *
 * `bits` draws any bits: NaN payloads, infinities, subnormals, both zeros, any integer. `exact` draws contents with the same
 * result in every order of folding: any integer, any extreme, and floats with representable partial sums or products. A
 * different result on exact contents is wrong under every plan.
 */
import { bytesOf, type DType, type ReduceOp } from "../api/index.ts";
import { ElementBits, type FloatFormat, floatFormat, setSmallFloat } from "./element-bits.ts";
import type { PayloadClass } from "./program.ts";

/** The use of contents. */
export interface PayloadRequest {
  readonly dtype: DType;
  readonly payload: PayloadClass;
  /** Omitted for calls that do not fold; they get any bits. */
  readonly op?: ReduceOp | undefined;
  /** Ranks that fold together. */
  readonly size: number;
  readonly seed: number;
}

/** The bytes of `count` elements that `rank` sends. */
export function payloadBytes(request: PayloadRequest, rank: number, count: number): Uint8Array {
  const { dtype, payload, op, size, seed } = request;
  const bits = new ElementBits(seed ^ Math.imul(rank + 1, 0x632be5ab));
  const format = floatFormat(dtype);
  const width = bytesOf(dtype);
  const view = new DataView(new ArrayBuffer(count * width));
  const folds = op !== undefined && op !== "min" && op !== "max";
  for (let i = 0; i < count; i++) {
    if (format === undefined) bits.set(bits.next(), bits.next());
    else if (payload === "bits" || !folds) drawAnyFloat(bits, format);
    else if (op === "prod") drawExactFactor(bits, format, rank);
    else drawExactTerm(bits, format, size, rank + i);
    bits.write(view, width, i);
  }
  return new Uint8Array(view.buffer);
}

/** Any bits; values near one and the edges of the format more often. */
function drawAnyFloat(bits: ElementBits, format: FloatFormat): void {
  const low = bits.next();
  const high = bits.next();
  const choice = bits.next() & 7;
  if (choice < 3) {
    bits.set(low, high);
    return;
  }
  const { width, fractionBits, bias, edges } = format;
  const exponent = bias + (low & 3) - 2;
  if (choice >= 5) {
    const at = 2 * ((low >>> 0) % (edges.length / 2));
    bits.set(edges[at] as number, edges[at + 1] as number);
  } else if (width === 64) {
    // The fraction is the end of `low` and `high` as one number.
    bits.set(high, (exponent << 20) | (low & 0xf_ffff));
  } else {
    bits.set((exponent << fractionBits) | (high & ((1 << fractionBits) - 1)), 0);
  }
  const sign = high & 1;
  if (width === 64) bits.high |= sign << 31;
  else bits.low |= sign << (width - 1);
}

/** Integers with a sum over all ranks below the first integer that the format cannot represent. */
function drawExactTerm(bits: ElementBits, format: FloatFormat, size: number, place: number): void {
  const most = 1 << Math.min(format.fractionBits + 1, 20);
  const share = Math.max(1, Math.floor(most / size));
  // With more ranks than the format can count, some contribute zero.
  const value = place % size < most ? bits.below(2 * share + 1) - share : 0;
  setSmallFloat(bits, format, value, 0);
}

/** Powers of two near one, few enough that every product stays within the format. */
function drawExactFactor(bits: ElementBits, format: FloatFormat, rank: number): void {
  const exponent = rank < 4 ? bits.below(3) - 1 : 0;
  setSmallFloat(bits, format, (bits.next() & 1) === 0 ? 1 : -1, exponent);
}
