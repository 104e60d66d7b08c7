/**
 * A chain of operands over a range of bytes: running values stay in registers, and go from there to every target.
 *
 * An operand is three words: the address of its first byte, how it meets the running value, and the address of its
 * scalar, once as lanes of the dtype and once as doubles. Loads may reach beyond the range by less than a vector, stores never do.
 */

/** How an operand meets the running value: as it is, as a rounded product, or by a product that is not rounded. */
export const plain: i32 = 0;
export const product: i32 = 1;
export const fused: i32 = 2;

export const operandBytes: usize = 12;

@inline
function addressOf(operand: usize): usize {
  return <usize>load<u32>(operand);
}

/** Operators, as what a chain does between two values. */
@final
export class Sum {
  @inline hop<C>(c: C, a: v128, b: v128): v128 { return c.sum(a, b); }
}

@final
export class Prod {
  @inline hop<C>(c: C, a: v128, b: v128): v128 { return c.prod(a, b); }
}

@final
export class Min {
  @inline hop<C>(c: C, a: v128, b: v128): v128 { return c.min(a, b); }
}

@final
export class Max {
  @inline hop<C>(c: C, a: v128, b: v128): v128 { return c.max(a, b); }
}

/** Folds bytes `from` to `to` of `k` operands into `t` targets. `spare` is 16 bytes for the last, incomplete unit. */
export function chain<C, O>(
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
  const c = changetype<C>(0);
  const o = changetype<O>(0);
  const unit = c.unit();
  const end = operands + <usize>k * operandBytes;
  const lastTarget = targets + ((<usize>t) << 2);
  let at = from;
  for (; at + 4 * unit <= to; at += 4 * unit) {
    let p = addressOf(operands) + at;
    let w = c.load(p);
    let x = c.load(p + unit);
    let y = c.load(p + 2 * unit);
    let z = c.load(p + 3 * unit);
    for (let operand = operands + operandBytes; operand < end; operand += operandBytes) {
      p = addressOf(operand) + at;
      w = o.hop<C>(c, w, c.load(p));
      x = o.hop<C>(c, x, c.load(p + unit));
      y = o.hop<C>(c, y, c.load(p + 2 * unit));
      z = o.hop<C>(c, z, c.load(p + 3 * unit));
    }
    if (final) {
      w = c.finish(w, divisor);
      x = c.finish(x, divisor);
      y = c.finish(y, divisor);
      z = c.finish(z, divisor);
    }
    for (let target = targets; target < lastTarget; target += 4) {
      p = addressOf(target) + at;
      c.store(p, w);
      c.store(p + unit, x);
      c.store(p + 2 * unit, y);
      c.store(p + 3 * unit, z);
    }
  }
  for (; at < to; at += unit) {
    let x = c.load(addressOf(operands) + at);
    for (let operand = operands + operandBytes; operand < end; operand += operandBytes) {
      x = o.hop<C>(c, x, c.load(addressOf(operand) + at));
    }
    if (final) x = c.finish(x, divisor);
    put<C>(c, x, targets, lastTarget, at, to, spare);
  }
}

/** The same for sums of contributions that are multiplied first. */
export function scaledChain<C>(
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
  const c = changetype<C>(0);
  const unit = c.unit();
  const end = operands + <usize>k * operandBytes;
  const lastTarget = targets + ((<usize>t) << 2);
  let at = from;
  for (; at + 2 * unit <= to; at += 2 * unit) {
    let p = addressOf(operands) + at;
    let x = begun<C>(c, operands, c.load(p));
    let y = begun<C>(c, operands, c.load(p + unit));
    for (let operand = operands + operandBytes; operand < end; operand += operandBytes) {
      p = addressOf(operand) + at;
      x = met<C>(c, operand, x, c.load(p));
      y = met<C>(c, operand, y, c.load(p + unit));
    }
    if (final) {
      x = c.finish(x, divisor);
      y = c.finish(y, divisor);
    }
    for (let target = targets; target < lastTarget; target += 4) {
      p = addressOf(target) + at;
      c.store(p, x);
      c.store(p + unit, y);
    }
  }
  for (; at < to; at += unit) {
    let x = begun<C>(c, operands, c.load(addressOf(operands) + at));
    for (let operand = operands + operandBytes; operand < end; operand += operandBytes) {
      x = met<C>(c, operand, x, c.load(addressOf(operand) + at));
    }
    if (final) x = c.finish(x, divisor);
    put<C>(c, x, targets, lastTarget, at, to, spare);
  }
}

/** What an operand begins a chain with. */
@inline
function begun<C>(c: C, operand: usize, x: v128): v128 {
  return load<i32>(operand, 4) == plain ? x : c.scale(x, v128.load(scalarOf(operand)));
}

/** The running value after an operand. */
@inline
function met<C>(c: C, operand: usize, acc: v128, x: v128): v128 {
  const how = load<i32>(operand, 4);
  if (how == plain) return c.sum(acc, x);
  const scalar = scalarOf(operand);
  const s = v128.load(scalar);
  if (how == product) return c.sum(acc, c.scale(x, s));
  return c.fuse(acc, x, s, v128.load(scalar, 16));
}

@inline
function scalarOf(operand: usize): usize {
  return <usize>load<u32>(operand, 8);
}

/** Stores the unit at `at`, or what of it lies before `to`. */
@inline
function put<C>(
  c: C,
  x: v128,
  targets: usize,
  lastTarget: usize,
  at: usize,
  to: usize,
  spare: usize,
): void {
  const unit = c.unit();
  if (at + unit <= to) {
    for (let target = targets; target < lastTarget; target += 4) c.store(addressOf(target) + at, x);
    return;
  }
  c.store(spare, x);
  for (let target = targets; target < lastTarget; target += 4) {
    memory.copy(addressOf(target) + at, spare, to - at);
  }
}
