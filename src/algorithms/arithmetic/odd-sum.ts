/**
 * The sum of two doubles rounded to odd, for a fused multiply-add in a narrower format.
 *
 * A product of two floats of at most 24 bits is exact in a double; its sum with a third one may be
 * inexact. Rounding that sum to odd (an inexact sum takes the neighbour with last bit 1) keeps
 * the information that bits were dropped. So the next rounding, to a format at least two bits
 * shorter, gives the rounded exact sum.
 */
const float = new Float64Array(1);
const words = new Int32Array(float.buffer);

/** `a + b` rounded to odd. */
export function oddSum(a: number, b: number): number {
  const sum = a + b;
  const fromB = sum - a;
  const error = a - (sum - fromB) + (b - fromB);
  // Exact, infinite or NaN: no bits were dropped.
  if (!(Math.abs(error) > 0)) return sum;
  float[0] = sum;
  const low = words[0] as number;
  if ((low & 1) === 1) return sum;
  const outward = sum > 0 === error > 0;
  words[0] = outward ? low + 1 : low - 1;
  if (!outward && low === 0) words[1] = (words[1] as number) - 1;
  return float[0] as number;
}
