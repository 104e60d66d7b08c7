/**
 * Sums of 1-byte floats, sixteen values in a vector as they lie in memory: the bytes of every word, from its first to its
 * last, become four vectors of floats, whose running values stay floats until all operands are in.
 *
 * As in pairs.ts a value is moved so that its exponent and fraction stand where a float has such bits, which is the value
 * times 2^-112 (e5m2) or 2^-120 (e4m3), and a hop adds, splits by Veltkamp, and saturates. NCCL rounds to float16 on the
 * way, which changes nothing. Let p <= 4 be the bits of the format. Rounding to 11 bits matters only to a sum whose bits
 * span more, so one summand lies wholly below 2^(p - 11) of the other's leading bit: far below half of the last of p bits,
 * also where the sum is just below a power of two. Neither the sum nor what float16 makes of it comes near to half way.
 *
 * NaN and, in e5m2, infinity would pass for numbers; 16 bytes with one among the operands are summed once more, with care.
 */
import { chain, operandBytes, Sum } from "./chain";
import { clamp, split } from "./float8";

@final
export class E4M3Quads {
  /** The byte that stands last in every word. */
  @inline last(v: v128): v128 { return v128.and(i32x4.shr_s(v, 4), i32x4.splat(0x87f00000)); }
  @inline sum(a: v128, b: v128): v128 {
    return clamp(split(f32x4.add(a, b), 1048577), 448 * reinterpret<f32>((127 - 120) << 23));
  }
  @inline lastBits(x: v128): v128 {
    return v128.or(i32x4.shl(x, 4), v128.and(x, i32x4.splat(0x80000000)));
  }
  /** From which magnitude on a value is strange. */
  @inline strange(): i32 { return 0x7f; }
}

@final
export class E5M2Quads {
  @inline last(v: v128): v128 { return v128.and(i32x4.shr_s(v, 3), i32x4.splat(0x8fe00000)); }
  @inline sum(a: v128, b: v128): v128 {
    return clamp(split(f32x4.add(a, b), 2097153), 57344 * reinterpret<f32>((127 - 112) << 23));
  }
  @inline lastBits(x: v128): v128 {
    return v128.or(i32x4.shl(x, 3), v128.and(x, i32x4.splat(0x80000000)));
  }
  @inline strange(): i32 { return 0x7c; }
}

/** Folds sums of quads `Q`; what is strange, and less than a vector, the chain of `C` does. */
export function quadChain<Q, C>(
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
  const c = changetype<Q>(0);
  const end = operands + <usize>k * operandBytes;
  const lastTarget = targets + ((<usize>t) << 2);
  const limit = i8x16.splat(<i8>(c.strange() << 1));
  let at = from;
  for (; k > 1 && at + 16 <= to; at += 16) {
    let v = v128.load(<usize>load<u32>(operands) + at);
    let seen = i8x16.add(v, v);
    let w = c.last(i32x4.shl(v, 24));
    let x = c.last(i32x4.shl(v, 16));
    let y = c.last(i32x4.shl(v, 8));
    let z = c.last(v);
    for (let operand = operands + operandBytes; operand < end; operand += operandBytes) {
      v = v128.load(<usize>load<u32>(operand) + at);
      seen = i8x16.max_u(seen, i8x16.add(v, v));
      w = c.sum(w, c.last(i32x4.shl(v, 24)));
      x = c.sum(x, c.last(i32x4.shl(v, 16)));
      y = c.sum(y, c.last(i32x4.shl(v, 8)));
      z = c.sum(z, c.last(v));
    }
    if (v128.any_true(i8x16.ge_u(seen, limit))) {
      chain<C, Sum>(operands, k, targets, t, at, at + 16, final, divisor, spare);
      continue;
    }
    const even = v128.or(i32x4.shr_u(c.lastBits(w), 24), i32x4.shr_u(c.lastBits(y), 8));
    v = v128.or(even, v128.or(i32x4.shr_u(c.lastBits(x), 16), c.lastBits(z)));
    for (let target = targets; target < lastTarget; target += 4) {
      v128.store(<usize>load<u32>(target) + at, v);
    }
  }
  if (at < to) chain<C, Sum>(operands, k, targets, t, at, to, final, divisor, spare);
}
