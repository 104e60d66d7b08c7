/**
 * Sums of 64-bit integers held as pairs of 32-bit words.
 *
 * The unsigned low words are added as doubles, which hold the sum of thousands of them exactly;
 * what lies above 32 bits is the carry. Wrapping sums may be taken in any order, so the high words
 * go two by two.
 */

/** `2^-32`: moves the carry of a sum of low words down to the units. */
const carryPlace = 2 ** -32;

/** `acc = acc + source`. */
export function addPairs(
  acc: Int32Array,
  accAt: number,
  source: Int32Array,
  sourceAt: number,
  count: number,
): void {
  const to = 2 * accAt;
  const from = 2 * sourceAt;
  for (let i = 0; i < 2 * count; i += 2) {
    const low = ((acc[to + i] as number) >>> 0) + ((source[from + i] as number) >>> 0);
    const high = (acc[to + i + 1] as number) + (source[from + i + 1] as number);
    acc[to + i] = low;
    acc[to + i + 1] = (high | 0) + ((low * carryPlace) | 0);
  }
}

/** `acc = s0 + s1`. */
export function addTwoPairs(acc: Int32Array, a: Int32Array, b: Int32Array): void {
  for (let i = 0; i < acc.length; i += 2) {
    const low = ((a[i] as number) >>> 0) + ((b[i] as number) >>> 0);
    const high = ((a[i + 1] as number) + (b[i + 1] as number)) | 0;
    acc[i] = low;
    acc[i + 1] = high + ((low * carryPlace) | 0);
  }
}

/** `acc = s0 + s1 + s2 + s3`. */
export function addFourPairs(
  acc: Int32Array,
  a: Int32Array,
  b: Int32Array,
  c: Int32Array,
  d: Int32Array,
): void {
  for (let i = 0; i < acc.length; i += 2) {
    const abLow = ((a[i] as number) >>> 0) + ((b[i] as number) >>> 0);
    const abHigh = ((a[i + 1] as number) + (b[i + 1] as number)) | 0;
    const cdLow = ((c[i] as number) >>> 0) + ((d[i] as number) >>> 0);
    const cdHigh = ((c[i + 1] as number) + (d[i + 1] as number)) | 0;
    const low = abLow + cdLow;
    const high = (abHigh + cdHigh) | 0;
    acc[i] = low;
    acc[i + 1] = high + ((low * carryPlace) | 0);
  }
}

/** `acc = acc + s0 + s1 + s2 + s3`. */
export function addFourMorePairs(
  acc: Int32Array,
  a: Int32Array,
  b: Int32Array,
  c: Int32Array,
  d: Int32Array,
): void {
  for (let i = 0; i < acc.length; i += 2) {
    const abLow = ((a[i] as number) >>> 0) + ((b[i] as number) >>> 0);
    const abHigh = ((a[i + 1] as number) + (b[i + 1] as number)) | 0;
    const cdLow = ((c[i] as number) >>> 0) + ((d[i] as number) >>> 0);
    const cdHigh = ((c[i + 1] as number) + (d[i + 1] as number)) | 0;
    const low = ((acc[i] as number) >>> 0) + abLow + cdLow;
    const high = ((((acc[i + 1] as number) + abHigh) | 0) + cdHigh) | 0;
    acc[i] = low;
    acc[i + 1] = high + ((low * carryPlace) | 0);
  }
}
