/**
 * Contents of send buffers, fixed by a seed.
 *
 * `bits` draws any bits: NaN payloads, infinities, subnormals, both zeros, any integer. `exact` draws contents with the same
 * result in every order of folding: any integer, any extreme, and floats with representable partial sums or products. A
 * different result on exact contents is wrong under every plan.
 */
import { bytesOf, type DType, type ReduceOp } from "../api/index.ts";
import {
  type Bits,
  dataView,
  type FloatFormat,
  floatFormat,
  halves,
  randomWords,
  smallFloat,
  writeBits,
} from "./element-bits.ts";
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
  const next = randomWords(seed ^ Math.imul(rank + 1, 0x632be5ab));
  const format = floatFormat(dtype);
  const width = bytesOf(dtype);
  const bytes = new Uint8Array(count * width);
  const view = dataView(bytes);
  const folds = op !== undefined && op !== "min" && op !== "max";
  for (let i = 0; i < count; i++) {
    let bits: Bits;
    if (format === undefined) bits = [next(), next()];
    else if (payload === "bits" || !folds) bits = anyFloat(format, next);
    else if (op === "prod") bits = exactFactor(format, rank, next);
    else bits = exactTerm(format, size, rank + i, next);
    writeBits(view, width, i, bits);
  }
  return bytes;
}

/** Any bits; values near one and the edges of the format more often. */
function anyFloat(format: FloatFormat, next: () => number): Bits {
  const low = next();
  const high = next();
  const choice = next() % 8;
  if (choice < 3) return [low, high];
  const sign = high & 1;
  if (choice >= 5) {
    const edges = edgesOf(format);
    return signed(format, sign, edges[low % edges.length] as Bits);
  }
  const exponent = format.bias + (low % 4) - 2;
  // The fraction is the end of `low` and `high` as one number.
  if (format.width === 64) {
    return signed(format, sign, [high, (exponent << 20) | (low & 0xf_ffff)]);
  }
  const { fractionBits } = format;
  const fraction = high & ((1 << fractionBits) - 1);
  return signed(format, sign, [(exponent << fractionBits) | fraction, 0]);
}

const knownEdges = new Map<FloatFormat, readonly Bits[]>();

/** Zero, the subnormal and normal numbers beside it, and the end of the finite numbers. */
function edgesOf(format: FloatFormat): readonly Bits[] {
  let edges = knownEdges.get(format);
  if (edges === undefined) {
    const { largest } = format;
    const minNormal = 1n << BigInt(format.fractionBits);
    edges = [0n, 1n, minNormal - 1n, minNormal, largest, largest - 1n, largest + 1n].map(halves);
    knownEdges.set(format, edges);
  }
  return edges;
}

/** A magnitude with a sign of 0 or 1. */
function signed({ width }: FloatFormat, sign: number, [low, high]: Bits): Bits {
  if (width === 64) return [low, (high | (sign << 31)) >>> 0];
  return [(low | (sign << (width - 1))) >>> 0, high];
}

/** Integers with a sum over all ranks below the first integer that the format cannot represent. */
function exactTerm(format: FloatFormat, size: number, place: number, next: () => number): Bits {
  const most = 1 << Math.min(format.fractionBits + 1, 20);
  const share = Math.max(1, Math.floor(most / size));
  // With more ranks than the format can count, some contribute zero.
  const value = place % size < most ? (next() % (2 * share + 1)) - share : 0;
  return smallFloat(format, value, 0);
}

/** Powers of two near one, few enough that every product stays within the format. */
function exactFactor(format: FloatFormat, rank: number, next: () => number): Bits {
  const exponent = rank < 4 ? (next() % 3) - 1 : 0;
  return smallFloat(format, (next() & 1) === 0 ? 1 : -1, exponent);
}
