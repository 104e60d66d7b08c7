/**
 * Sums of float16 and bfloat16, eight values in a vector as they lie in memory: the even and the odd ones each become four
 * floats, whose running values stay floats, rounded to the format after every hop, until all operands are in.
 *
 * Between bits and floats. A bfloat16 is the upper half of a float. A float16 is moved so that its exponent and fraction
 * end up where a float has the lower bits of the exponent and the upper ones of the fraction: that float is the value times
 * 2^-112, for subnormals too, which become subnormal floats. Sums and the rounding below only ever multiply the value by a
 * power of two, so nothing undoes that factor before the bits move back.
 *
 * One hop. The float sum of two values of a format with p bits, rounded once more to p bits, is the sum rounded once, since
 * 24 >= 2p + 2 (Figueroa 1995). For p = 24 - c the second rounding is Veltkamp's splitting with q = s (2^c + 1):
 * q - (q - s) is s rounded to nearest (Boldo 2006). Halves go to even: let s = x ulp with x odd of p + 1 bits. Then q has
 * 25 bits, so it is x (2^c + 1) + d with d = 1 or -1, such that its half is even: x + d is a multiple of 4, because 2^c is.
 * q - s is x 2^c + d, which has 25 bits at least and loses d again, as x 2^c is a multiple of 4. What remains is x + d, and
 * half of that is even. A sum of no more than p bits stays as it is, since q is exact; among them are all sums below twice
 * the least normal value, which are whole numbers of least steps: subnormal sums need no care. Zeros keep their signs.
 *
 * What is strange. q overflows from just below 2^(128 - c) on, and for infinity: q - (q - s) is NaN then, and so is all
 * that follows, as with a NaN among the operands. In bfloat16 that is all that can go wrong, and it shows in the result.
 * In float16, whose largest values are far from any overflow of floats, the moved bits of infinity and NaN would pass for
 * numbers, and sums would leave the format unseen. There operands must be smaller than a power of two that is 2^15 / k at
 * most, or 16: the j-th running value is j times that at most, which the format can represent, and rounding is
 * monotonous. Beyond j = 2^11 it stays below 2^15, because there less than 16 is less than half of a step.
 * 64 bytes of which anything was strange are summed once more, with care.
 */
import { chain, operandBytes, Sum } from "./chain";

/** Bytes of every operand that are summed at once: a line of the cache. */
const step: usize = 64;

/** The larger magnitudes of eight values and of those before, as bits without their signs. */
@inline
function largest(seen: v128, values: v128): v128 {
  return i16x8.max_u(seen, i16x8.add(values, values));
}

/** Veltkamp's splitting; `spread` is 2^c + 1. */
@inline
function nearest(s: v128, spread: f32): v128 {
  const q = f32x4.mul(s, f32x4.splat(spread));
  return f32x4.sub(q, f32x4.sub(q, s));
}

@final
export class Float16Pairs {
  @inline even(v: v128): v128 { return moved(i32x4.dot_i16x8_s(v, i32x4.splat(1 << 13))); }
  @inline odd(v: v128): v128 { return moved(i32x4.shr_s(v, 3)); }
  @inline sum(a: v128, b: v128): v128 { return nearest(f32x4.add(a, b), 8193); }
  @inline pack(even: v128, odd: v128): v128 {
    const evenBits = v128.and(i32x4.shr_u(even, 13), i32x4.splat(0x7fff));
    const oddBits = v128.and(i32x4.shl(odd, 3), i32x4.splat(0x7fff0000));
    const evenSigns = i32x4.shr_u(v128.and(even, i32x4.splat(0x80000000)), 16);
    const oddSigns = v128.and(odd, i32x4.splat(0x80000000));
    return v128.or(v128.or(evenBits, oddBits), v128.or(evenSigns, oddSigns));
  }
  @inline sawOperand(seen: v128, v: v128): v128 { return largest(seen, v); }
  @inline sawResult(seen: v128, _v: v128): v128 { return seen; }
  /** From which magnitude on, as bits without a sign, something is strange in a sum of so many. */
  @inline limit(k: i32): i32 {
    const exponent = max(15 - (32 - clz(k - 1)), 4);
    return (exponent + 15) << 11;
  }
  /** The least normal value times 2^e, as bits without a sign. */
  @inline halved(e: i32): i32 { return (1 + e) << 11; }
}

/** Sign, exponent and fraction in their places; four copies of the sign stood before the exponent. */
@inline
function moved(x: v128): v128 {
  return v128.and(x, i32x4.splat(0x8fffe000));
}

@final
export class BFloat16Pairs {
  @inline even(v: v128): v128 { return i32x4.shl(v, 16); }
  @inline odd(v: v128): v128 { return v128.and(v, i32x4.splat(0xffff0000)); }
  @inline sum(a: v128, b: v128): v128 { return nearest(f32x4.add(a, b), 65537); }
  @inline pack(even: v128, odd: v128): v128 { return v128.or(i32x4.shr_u(even, 16), odd); }
  @inline sawOperand(seen: v128, _v: v128): v128 { return seen; }
  @inline sawResult(seen: v128, v: v128): v128 { return largest(seen, v); }
  @inline limit(_k: i32): i32 { return 0xff00; }
  @inline halved(e: i32): i32 { return (1 + e) << 8; }
}

/** Folds sums of pairs `P`; what is strange, and less than a step, the chain of `C` does. */
export function pairChain<P, C>(
  operands: usize,
  k: i32,
  targets: usize,
  t: i32,
  from: usize,
  to: usize,
  final: bool,
  divisor: i32,
  spare: usize,
): void {
  const c = changetype<P>(0);
  const end = operands + <usize>k * operandBytes;
  const lastTarget = targets + ((<usize>t) << 2);
  const limit = i16x8.splat(<i16>c.limit(k));
  let at = from;
  for (; k > 1 && at + step <= to; at += step) {
    let p = <usize>load<u32>(operands) + at;
    let w = v128.load(p);
    let x = v128.load(p, 16);
    let y = v128.load(p, 32);
    let z = v128.load(p, 48);
    let seen = saw4<P>(c, i64x2.splat(0), w, x, y, z);
    let evenW = c.even(w);
    let oddW = c.odd(w);
    let evenX = c.even(x);
    let oddX = c.odd(x);
    let evenY = c.even(y);
    let oddY = c.odd(y);
    let evenZ = c.even(z);
    let oddZ = c.odd(z);
    for (let operand = operands + operandBytes; operand < end; operand += operandBytes) {
      p = <usize>load<u32>(operand) + at;
      w = v128.load(p);
      x = v128.load(p, 16);
      y = v128.load(p, 32);
      z = v128.load(p, 48);
      seen = saw4<P>(c, seen, w, x, y, z);
      evenW = c.sum(evenW, c.even(w));
      oddW = c.sum(oddW, c.odd(w));
      evenX = c.sum(evenX, c.even(x));
      oddX = c.sum(oddX, c.odd(x));
      evenY = c.sum(evenY, c.even(y));
      oddY = c.sum(oddY, c.odd(y));
      evenZ = c.sum(evenZ, c.even(z));
      oddZ = c.sum(oddZ, c.odd(z));
    }
    w = c.pack(evenW, oddW);
    x = c.pack(evenX, oddX);
    y = c.pack(evenY, oddY);
    z = c.pack(evenZ, oddZ);
    seen = c.sawResult(c.sawResult(c.sawResult(c.sawResult(seen, w), x), y), z);
    if (v128.any_true(i16x8.ge_u(seen, limit))) {
      chain<C, Sum>(operands, k, targets, t, at, at + step, final, divisor, spare);
      continue;
    }
    for (let target = targets; target < lastTarget; target += 4) {
      p = <usize>load<u32>(target) + at;
      v128.store(p, w);
      v128.store(p, x, 16);
      v128.store(p, y, 32);
      v128.store(p, z, 48);
    }
  }
  if (at < to) chain<C, Sum>(operands, k, targets, t, at, to, final, divisor, spare);
}

@inline
function saw4<P>(c: P, seen: v128, w: v128, x: v128, y: v128, z: v128): v128 {
  return c.sawOperand(c.sawOperand(c.sawOperand(c.sawOperand(seen, w), x), y), z);
}
