/**
 * The exactly rounded `x * y + z` of doubles in whole numbers, for the few elements whose double-double arithmetic is
 * not provably right.
 *
 * The product of two significands is held in 128 bits, the partial beside it; what does not fit is kept as one sticky
 * bit below the last place.
 */

/** Leading bit of a significand that was moved to the top of 64 bits, but for one bit of room. */
const top: i32 = 62;

@inline
function exponentOf(bits: u64): i32 {
  return <i32>((bits >> 52) & 0x7ff);
}

/** The significand, normal or not, with its leading bit at place 52. */
@inline
function significandOf(bits: u64): u64 {
  const fraction = bits & 0x000f_ffff_ffff_ffff;
  if (exponentOf(bits) != 0) return fraction | 0x0010_0000_0000_0000;
  return fraction << (clz(fraction) - 11);
}

/** Exponent e such that the value is `significandOf * 2^e`; x not zero. */
@inline
function placeOf(bits: u64): i32 {
  const exponent = exponentOf(bits);
  if (exponent != 0) return exponent - 1075;
  return -1074 - <i32>(clz(bits & 0x000f_ffff_ffff_ffff) - 11);
}

/** `x * y + z`, rounded once, to nearest and ties to even. */
export function fma(x: f64, y: f64, z: f64): f64 {
  const product = x * y;
  // A zero product is exact, and with an infinite or NaN factor nothing is rounded at all.
  if (x == 0 || y == 0 || !isFinite(x) || !isFinite(y)) return product + z;
  if (!isFinite(z)) return z;
  const xBits = reinterpret<u64>(x);
  const yBits = reinterpret<u64>(y);
  const zBits = reinterpret<u64>(z);
  let negative = ((xBits ^ yBits) >> 63) != 0;
  // The product, exact: a leading bit at place 104 or 105 of 128; moved up to 124 or 125.
  const a = significandOf(xBits) << 10;
  const b = significandOf(yBits) << 10;
  let high = multiplyHigh(a, b);
  let low = a * b;
  let place = placeOf(xBits) + placeOf(yBits) - 20;
  if (z != 0) {
    // The partial with its leading bit at place 124 as well: 52 + 72.
    let zHigh = significandOf(zBits) << 8;
    let zLow: u64 = 0;
    const zPlace = placeOf(zBits) - 72;
    const zNegative = zBits >> 63 != 0;
    if (zPlace > place) {
      const moved = zPlace - place;
      low = shiftedLow(high, low, moved);
      high = moved < 64 ? high >> moved : 0;
      place = zPlace;
    } else if (zPlace < place) {
      const moved = place - zPlace;
      zLow = shiftedLow(zHigh, zLow, moved);
      zHigh = moved < 64 ? zHigh >> moved : 0;
    }
    if (zNegative == negative) {
      const sum = low + zLow;
      high = high + zHigh + (sum < low ? 1 : 0);
      low = sum;
    } else {
      const swap = zHigh > high || (zHigh == high && zLow > low);
      if (swap) negative = zNegative;
      const fromHigh = swap ? zHigh : high;
      const fromLow = swap ? zLow : low;
      const lessHigh = swap ? high : zHigh;
      const lessLow = swap ? low : zLow;
      high = fromHigh - lessHigh - (fromLow < lessLow ? 1 : 0);
      low = fromLow - lessLow;
      if (high == 0 && low == 0) return 0;
    }
  }
  return nearest(negative, high, low, place);
}

/** The low word of 128 bits moved right; bits that fall out leave a sticky one. */
function shiftedLow(high: u64, low: u64, by: i32): u64 {
  if (by >= 128) return (high | low) != 0 ? 1 : 0;
  if (by >= 64) {
    const rest = by - 64;
    const lost = low | (rest == 0 ? 0 : high << (64 - rest));
    return (high >> rest) | (lost != 0 ? 1 : 0);
  }
  const lost = low << (64 - by);
  return (low >> by) | (high << (64 - by)) | (lost != 0 ? 1 : 0);
}

/** The high 64 bits of a product. */
function multiplyHigh(a: u64, b: u64): u64 {
  const aLow = a & 0xffff_ffff;
  const aHigh = a >> 32;
  const bLow = b & 0xffff_ffff;
  const bHigh = b >> 32;
  const middle = aHigh * bLow + ((aLow * bLow) >> 32);
  const cross = aLow * bHigh + (middle & 0xffff_ffff);
  return aHigh * bHigh + (middle >> 32) + (cross >> 32);
}

/** The double nearest to the 128 bits times `2^place`. */
function nearest(negative: bool, high: u64, low: u64, place: i32): f64 {
  // The leading bit goes to place 62 of one word, what lies below becomes sticky.
  const length = high != 0 ? 128 - <i32>clz(high) : 64 - <i32>clz(low);
  const drop = length - 1 - top;
  const word: u64 = drop > 0 ? shiftedLow(high, low, drop) : low << -drop;
  let exponent = place + drop;
  // Bits below the last one of a double; more of them where the result is subnormal.
  let cut = 10;
  const least = -1074 - exponent;
  if (least > cut) cut = least;
  if (cut > 63) return negative ? -0.0 : 0.0;
  const half: u64 = (<u64>1) << (cut - 1);
  const rest = word & ((half << 1) - 1);
  let kept = word >> cut;
  if (rest > half || (rest == half && (kept & 1) != 0)) kept += 1;
  exponent += cut;
  const size = scaled(<f64>kept, exponent);
  return negative ? -size : size;
}

/** `x * 2^exponent` where that is exact or overflows. */
function scaled(x: f64, exponent: i32): f64 {
  let result = x;
  let left = exponent;
  while (left > 900) {
    result *= reinterpret<f64>(<u64>(900 + 1023) << 52);
    left -= 900;
  }
  if (left >= -1022) return result * reinterpret<f64>(<u64>(left + 1023) << 52);
  // The least subnormal steps: first to the least normal exponent, then on.
  result *= reinterpret<f64>(<u64>(left + 60 + 1023) << 52);
  return result * reinterpret<f64>(<u64>(-60 + 1023) << 52);
}
