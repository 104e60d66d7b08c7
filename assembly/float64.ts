/** float64: one rounding for each operator; a fused product is exact by Dekker and Knuth, or by whole numbers. */
import { fma } from "./float64-fma";

/** `2^27 + 1`: splits a double into two halves of 26 bits. */
const splitter: f64 = 134217729.0;
/** `2^-900`: below this the error of a product might not be a double. */
const safeProduct: f64 = 1.1830521861667747e-271;
/** Just more than 1, to ask whether a rest is clearly less than half a unit in the last place. */
const nudge: f64 = 1.00000095367431640625;

@final
export class Float64 {
  @inline unit(): usize { return 16; }
  @inline load(p: usize): v128 { return v128.load(p); }
  @inline store(p: usize, x: v128): void { v128.store(p, x); }
  @inline sum(a: v128, b: v128): v128 { return f64x2.add(a, b); }
  @inline prod(a: v128, b: v128): v128 { return f64x2.mul(a, b); }
  @inline min(a: v128, b: v128): v128 {
    const other = v128.bitselect(a, f64x2.min(a, b), f64x2.ne(b, b));
    return v128.bitselect(b, other, f64x2.ne(a, a));
  }
  @inline max(a: v128, b: v128): v128 {
    const other = v128.bitselect(a, f64x2.max(a, b), f64x2.ne(b, b));
    return v128.bitselect(b, other, f64x2.ne(a, a));
  }
  @inline scale(x: v128, s: v128): v128 { return f64x2.mul(x, s); }
  /**
   * The true value is `sum + tail` plus less than the last bit of `tail`. Rounding `sum + tail` is right unless that lies
   * (nearly) half way between two doubles; infinities and NaN on the way fail the comparison too.
   */
  @inline fuse(acc: v128, x: v128, s: v128, _w: v128): v128 {
    const split = f64x2.splat(splitter);
    const sSpread = f64x2.mul(s, split);
    const sHead = f64x2.sub(sSpread, f64x2.sub(sSpread, s));
    const sTail = f64x2.sub(s, sHead);
    const product = f64x2.mul(x, s);
    const spread = f64x2.mul(x, split);
    const head = f64x2.sub(spread, f64x2.sub(spread, x));
    const tail = f64x2.sub(x, head);
    let error = f64x2.sub(f64x2.mul(head, sHead), product);
    error = f64x2.add(error, f64x2.mul(head, sTail));
    error = f64x2.add(error, f64x2.mul(tail, sHead));
    error = f64x2.add(error, f64x2.mul(tail, sTail));
    const sum = f64x2.add(product, acc);
    const fromAcc = f64x2.sub(sum, product);
    const sumError = f64x2.add(
      f64x2.sub(product, f64x2.sub(sum, fromAcc)),
      f64x2.sub(acc, fromAcc),
    );
    const low = f64x2.add(sumError, error);
    const rounded = f64x2.add(sum, low);
    const rest = f64x2.sub(low, f64x2.sub(rounded, sum));
    const clear = v128.and(
      f64x2.ge(f64x2.abs(product), f64x2.splat(safeProduct)),
      f64x2.eq(f64x2.add(rounded, f64x2.mul(rest, f64x2.splat(nudge))), rounded),
    );
    if (i64x2.all_true(clear)) return rounded;
    return each(acc, x, s);
  }
  @inline finish(x: v128, _divisor: i32): v128 {
    return v128.bitselect(i64x2.splat(0x7ff8_0000_0000_0000), x, f64x2.ne(x, x));
  }
}

/** Both lanes in whole numbers. */
function each(acc: v128, x: v128, s: v128): v128 {
  const first = fma(
    f64x2.extract_lane(x, 0),
    f64x2.extract_lane(s, 0),
    f64x2.extract_lane(acc, 0),
  );
  const second = fma(
    f64x2.extract_lane(x, 1),
    f64x2.extract_lane(s, 1),
    f64x2.extract_lane(acc, 1),
  );
  return f64x2.replace_lane(f64x2.splat(first), 1, second);
}
