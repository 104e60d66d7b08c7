/**
 * Minimum and maximum of halves, decided on their bits.
 *
 * A pattern with its magnitude inverted when negative orders like the value, -0 below +0, and the
 * NaNs lie outside both infinities. The maximum is the minimum of the complements, so one loop
 * serves both.
 */

/**
 * `acc = min(acc, source)` with `flip` 0, `max` with `flip` -1. `infinity` is the bits of
 * +infinity. A NaN loses to a number; the result of two NaNs is the canonical one.
 */
export function pickHalves(
  acc: Uint16Array,
  accAt: number,
  source: Uint16Array,
  sourceAt: number,
  count: number,
  infinity: number,
  flip: 0 | -1,
): void {
  for (let i = 0; i < count; i++) {
    const a = acc[accAt + i] as number;
    const b = source[sourceAt + i] as number;
    if ((a & 0x7fff) > infinity) {
      acc[accAt + i] = (b & 0x7fff) > infinity ? 0x7fff : b;
    } else if ((b & 0x7fff) <= infinity) {
      const signedA = (a << 16) >> 16;
      const signedB = (b << 16) >> 16;
      const keyA = signedA ^ ((signedA >> 15) & 0x7fff) ^ flip;
      const keyB = signedB ^ ((signedB >> 15) & 0x7fff) ^ flip;
      // All ones when b comes first: no branch that data could mislead.
      const takeB = (keyB - keyA) >> 31;
      acc[accAt + i] = a ^ ((a ^ b) & takeB);
    }
  }
}
