/**
 * Elements as raw bits: reading and writing them in bytes, and what two results have to agree in.
 *
 * Nothing here comes from the library: widths and NaN patterns are written down a second time.
 */
import { decode, type OracleDType, type OracleFloat, oracleFormats } from "./rounding.ts";

/** Width of an element in bytes. */
export const widths: { readonly [D in OracleDType]: 1 | 2 | 4 | 8 } = {
  int8: 1,
  uint8: 1,
  int32: 4,
  uint32: 4,
  int64: 8,
  uint64: 8,
  float16: 2,
  bfloat16: 2,
  float32: 4,
  float64: 8,
  float8e4m3: 1,
  float8e5m2: 1,
};

/**
 * All dtypes.
 *
 * @internal
 */
export const everyDType = Object.keys(widths) as OracleDType[];

/** True for dtypes with a rounding. */
export function isFloat(dtype: OracleDType): dtype is OracleFloat {
  return dtype in oracleFormats;
}

/** Writes elements one after another, least byte first. */
export function bytesFromBits(dtype: OracleDType, bits: readonly bigint[]): Uint8Array {
  const width = widths[dtype];
  const bytes = new Uint8Array(bits.length * width);
  const view = new DataView(bytes.buffer);
  bits.forEach((value, i) => {
    const low = Number(BigInt.asUintN(32, value));
    if (width === 1) view.setUint8(i, low);
    else if (width === 2) view.setUint16(2 * i, low, true);
    else if (width === 4) view.setUint32(4 * i, low, true);
    else view.setBigUint64(8 * i, value, true);
  });
  return bytes;
}

/** Reads elements. */
export function bitsFromBytes(dtype: OracleDType, bytes: Uint8Array): bigint[] {
  const width = widths[dtype];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length / width }, (_, i) => {
    if (width === 1) return BigInt(view.getUint8(i));
    if (width === 2) return BigInt(view.getUint16(2 * i, true));
    if (width === 4) return BigInt(view.getUint32(4 * i, true));
    return view.getBigUint64(8 * i, true);
  });
}

/** Results of a reduction as they are compared: one NaN, and one zero after a minimum or maximum. */
export function comparable(
  dtype: OracleDType,
  reduction: "min" | "max" | "other",
  bytes: Uint8Array,
): Uint8Array {
  if (!isFloat(dtype)) return bytes;
  const format = oracleFormats[dtype];
  const oneZero = reduction !== "other";
  const bits = bitsFromBytes(dtype, bytes).map((value) => {
    const { kind } = decode(format, value);
    if (kind === "nan") return format.nanBits;
    return kind === "zero" && oneZero ? 0n : value;
  });
  return bytesFromBits(dtype, bits);
}

/** `undefined` when equal, else where and how two results differ first. */
export function firstDifference(
  dtype: OracleDType,
  found: Uint8Array,
  needed: Uint8Array,
): string | undefined {
  if (found.length !== needed.length) return `found ${found.length} bytes, needed ${needed.length}`;
  if (found.every((byte, i) => byte === needed[i])) return undefined;
  const left = bitsFromBytes(dtype, found);
  const right = bitsFromBytes(dtype, needed);
  const at = left.findIndex((value, i) => value !== right[i]);
  const hex = (value: bigint | undefined): string => `0x${(value ?? 0n).toString(16)}`;
  return `element ${at} of ${left.length}: found ${hex(left[at])}, needed ${hex(right[at])}`;
}
