/**
 * Products of 64-bit integers held as pairs of 32-bit words: the low 64 bits, signed or not.
 *
 * `Math.imul` gives the low word of a product of two words. The high one is put together from
 * products of 16-bit halves; of the cross terms only low words count.
 */

/** The high word of the unsigned product of two words. */
function highProduct(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  // Each term fits a double: 32 bits, and less than 2^34 in the sum.
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const cross = aLow * bHigh + (middle & 0xffff);
  return (aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(cross / 0x10000)) | 0;
}

/** `acc = acc * source`. */
export function multiplyWords(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const a = acc[to + i] as number;
    const b = source[from + i] as number;
    const cross =
      (Math.imul(a, source[from + i + 1] as number) + Math.imul(acc[to + i + 1] as number, b)) | 0;
    acc[to + i] = Math.imul(a, b);
    acc[to + i + 1] = highProduct(a, b) + cross;
  }
}

/** `acc = source * scalar`. */
export function scaleWords(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  scalarLow: number,
  scalarHigh: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const a = source[from + i] as number;
    const high = source[from + i + 1] as number;
    const cross = (Math.imul(a, scalarHigh) + Math.imul(high, scalarLow)) | 0;
    acc[to + i] = Math.imul(a, scalarLow);
    acc[to + i + 1] = highProduct(a, scalarLow) + cross;
  }
}

/** `acc = acc + source * scalar`. */
export function addScaledWords(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
  scalarLow: number,
  scalarHigh: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const a = source[from + i] as number;
    const high = source[from + i + 1] as number;
    const cross = (Math.imul(a, scalarHigh) + Math.imul(high, scalarLow)) | 0;
    const productHigh = (highProduct(a, scalarLow) + cross) | 0;
    const low = ((acc[to + i] as number) >>> 0) + (Math.imul(a, scalarLow) >>> 0);
    const sumHigh = ((acc[to + i + 1] as number) + productHigh) | 0;
    acc[to + i] = low;
    acc[to + i + 1] = sumHigh + ((low * 2 ** -32) | 0);
  }
}
