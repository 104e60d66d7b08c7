/**
 * Contributions that try arithmetic hard: any bits, special values, and values near each other, with sums that cancel, tie
 * and carry. As bytes, little endian.
 */
import { bytesOf, type DType } from "../../src/api/dtype.ts";
import { randomWords, specialBits } from "../unit/algorithms/arithmetic/lane-bits.ts";

/** Bits of an exponent and a fraction. */
const formats: Partial<Record<DType, readonly [number, number]>> = {
  float16: [5, 10],
  bfloat16: [8, 7],
  float32: [8, 23],
  float64: [11, 52],
  float8e4m3: [4, 3],
  float8e5m2: [5, 2],
};

/** `count` elements of a dtype. */
export function wildBytes(dtype: DType, count: number, seed: number): Uint8Array<ArrayBuffer> {
  const width = bytesOf(dtype);
  const view = new DataView(new ArrayBuffer(count * width));
  const next = randomWords(seed);
  const special = specialBits(dtype);
  for (let i = 0; i < count; i++) {
    const kind = next() % 8;
    const any = (BigInt(next()) << 32n) | BigInt(next());
    const bits =
      kind < 3 ? any : kind < 5 ? (special[next() % special.length] as bigint) : near(dtype, any);
    const low = BigInt.asUintN(8 * width, bits);
    if (width === 1) view.setUint8(i, Number(low));
    else if (width === 2) view.setUint16(2 * i, Number(low), true);
    else if (width === 4) view.setUint32(4 * i, Number(low), true);
    else view.setBigUint64(8 * i, low, true);
  }
  return new Uint8Array(view.buffer);
}

/** A float with an exponent within a few of 1, with few bits set in its fraction. */
function near(dtype: DType, any: bigint): bigint {
  const format = formats[dtype];
  if (format === undefined) return any % 7n;
  const [exponentBits, fractionBits] = format;
  const middle = (1n << BigInt(exponentBits - 1)) - 1n;
  const exponent = middle + (any % 5n) - 2n;
  const ones = (1n << BigInt(fractionBits)) - 1n;
  const shapes = [0n, 1n, ones, ones - 1n, any & ones & (any >> 7n)];
  const fraction = (shapes[Number((any >> 3n) % 5n)] as bigint) & ones;
  const sign = (any >> 60n) & 1n;
  return (((sign << BigInt(exponentBits)) | exponent) << BigInt(fractionBits)) | fraction;
}
