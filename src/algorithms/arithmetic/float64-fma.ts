/**
 * The exactly rounded `x * y + z` of doubles, whatever their exponents.
 *
 * For the few elements whose double-double arithmetic is not provably right: near ties, products
 * near the ends of the exponent range, zeros, infinities, NaN. Everything else takes the loop of
 * float64-scaled.ts.
 */
const float = new Float64Array(1);
const words = new Uint32Array(float.buffer);

/** Exponent of the least subnormal double, and bits of a significand. */
const leastExponent = -1074;
const precision = 53;

/** `x * y + z` with one rounding, to nearest and ties to even. */
export function fma(x: number, y: number, z: number): number {
  const product = x * y;
  // A zero product is exact, and with an infinite or NaN factor nothing is rounded at all.
  if (x === 0 || y === 0 || !Number.isFinite(x) || !Number.isFinite(y)) return product + z;
  // Finite factors: the true product is finite too, even where the double overflowed.
  if (!Number.isFinite(z)) return z;
  // A product too small to reach the last place of z.
  if (Math.abs(product) < 2 ** -900 && Math.abs(z) > 2 ** -800) return z;
  return exact(x, y, z);
}

/** The same in whole numbers; all operands finite, x and y not zero. */
function exact(x: number, y: number, z: number): number {
  const xExponent = exponentOf(x);
  const yExponent = exponentOf(y);
  const zExponent = exponentOf(z);
  const productExponent = xExponent + yExponent;
  const exponent = Math.min(productExponent, zExponent);
  const product = significandOf(x) * significandOf(y);
  const sum =
    (product << BigInt(productExponent - exponent)) +
    (significandOf(z) << BigInt(zExponent - exponent));
  if (sum === 0n) return 0;
  return sum < 0n ? -nearestDouble(-sum, exponent) : nearestDouble(sum, exponent);
}

/** Exponent e of a finite double that is `significandOf * 2^e`. */
function exponentOf(x: number): number {
  float[0] = x;
  const biased = ((words[1] as number) >>> 20) & 0x7ff;
  return Math.max(biased, 1) - 1023 - 52;
}

/** The signed whole significand of a finite double. */
function significandOf(x: number): bigint {
  float[0] = x;
  const high = words[1] as number;
  const biased = (high >>> 20) & 0x7ff;
  const fraction = (BigInt(high & 0xfffff) << 32n) | BigInt(words[0] as number);
  const size = biased === 0 ? fraction : fraction | (1n << 52n);
  return high >>> 31 === 0 ? size : -size;
}

/** The double nearest to `size * 2^exponent`, for a positive size. */
function nearestDouble(size: bigint, exponent: number): number {
  const length = bitLength(size);
  // Cut to 53 bits, or to whole steps of the least subnormal.
  const drop = Math.max(length - precision, leastExponent - exponent);
  if (drop <= 0) return Number(size) * 2 ** exponent;
  const dropped = BigInt(drop);
  const half = 1n << (dropped - 1n);
  let kept = size >> dropped;
  const rest = size - (kept << dropped);
  if (rest > half || (rest === half && (kept & 1n) === 1n)) kept += 1n;
  const last = exponent + drop;
  // 2^last alone may lie beyond the range of doubles although the product does not.
  return last > 970 ? Number(kept) * 2 ** 970 * 2 ** (last - 970) : Number(kept) * 2 ** last;
}

function bitLength(size: bigint): number {
  return size.toString(2).length;
}
