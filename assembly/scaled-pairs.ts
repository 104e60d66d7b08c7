/**
 * Averages of float16 and bfloat16 over a power of two of ranks: pairs as in pairs.ts, multiplied before they are added.
 *
 * A power of two changes no fraction, so while no product is subnormal in the format, each is a value of the format: the
 * same whether products are rounded, as in a ring, or fused with the sum; and sums of such values round as they do in
 * pairs.ts. With 2^-e as the least scalar, that asks operands other than zero to be at least 2^e times the least normal
 * value. What is smaller is strange, as is what is strange in pairs.ts: products are never larger than their operands.
 */
import { operandBytes, plain, scaledChain } from "./chain";

/** Averages of more ranks than 2^20 go the careful way. */
const mostHalvings: i32 = 20;

/** What e is for these operands; negative where a scalar is no power of two, or out of range. */
function halvings(operands: usize, end: usize): i32 {
  let most: i32 = 0;
  for (let operand = operands; operand < end; operand += operandBytes) {
    if (load<i32>(operand, 4) == plain) continue;
    const bits = load<u32>(<usize>load<u32>(operand, 8));
    const e = 127 - <i32>(bits >> 23);
    if ((bits & 0x7fffff) != 0 || e < 0 || e > mostHalvings) return -1;
    most = max(most, e);
  }
  return most;
}

/** What an operand is multiplied by. */
@inline
function scalarOf(operand: usize): v128 {
  let s = f32x4.splat(1);
  if (load<i32>(operand, 4) != plain) s = v128.load(<usize>load<u32>(operand, 8));
  return s;
}

/** The least magnitudes but for zeros, as bits without signs, less one. */
@inline
function least(seen: v128, v: v128): v128 {
  return i16x8.min_u(seen, i16x8.sub(i16x8.add(v, v), i16x8.splat(1)));
}

/** Folds scaled sums of pairs `P`; what is strange, and less than a step, the chain of `C` does. */
export function scaledPairChain<P, C>(
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
  const e = halvings(operands, end);
  const limit = i16x8.splat(<i16>c.limit(k));
  const lowest = i16x8.splat(<i16>(c.halved(e) - 1));
  let at = from;
  for (; k > 1 && e >= 0 && at + 32 <= to; at += 32) {
    let p = <usize>load<u32>(operands) + at;
    let s = scalarOf(operands);
    let x = v128.load(p);
    let y = v128.load(p, 16);
    let seen = c.sawOperand(c.sawOperand(i64x2.splat(0), x), y);
    let low = least(least(i64x2.splat(-1), x), y);
    let evenX = f32x4.mul(c.even(x), s);
    let oddX = f32x4.mul(c.odd(x), s);
    let evenY = f32x4.mul(c.even(y), s);
    let oddY = f32x4.mul(c.odd(y), s);
    for (let operand = operands + operandBytes; operand < end; operand += operandBytes) {
      p = <usize>load<u32>(operand) + at;
      s = scalarOf(operand);
      x = v128.load(p);
      y = v128.load(p, 16);
      seen = c.sawOperand(c.sawOperand(seen, x), y);
      low = least(least(low, x), y);
      evenX = c.sum(evenX, f32x4.mul(c.even(x), s));
      oddX = c.sum(oddX, f32x4.mul(c.odd(x), s));
      evenY = c.sum(evenY, f32x4.mul(c.even(y), s));
      oddY = c.sum(oddY, f32x4.mul(c.odd(y), s));
    }
    x = c.pack(evenX, oddX);
    y = c.pack(evenY, oddY);
    seen = c.sawResult(c.sawResult(seen, x), y);
    if (v128.any_true(v128.or(i16x8.ge_u(seen, limit), i16x8.lt_u(low, lowest)))) {
      scaledChain<C>(operands, k, targets, t, at, at + 32, final, divisor, spare);
      continue;
    }
    for (let target = targets; target < lastTarget; target += 4) {
      p = <usize>load<u32>(target) + at;
      v128.store(p, x);
      v128.store(p, y, 16);
    }
  }
  if (at < to) scaledChain<C>(operands, k, targets, t, at, to, final, divisor, spare);
}
