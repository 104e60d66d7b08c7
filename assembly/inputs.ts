/**
 * Inputs of recorded calls, by the rule of `src/golden/inputs.ts`: a module of its own, with its own memory.
 *
 * An element is a hash, of a float with another exponent. It is made in steps over a few thousand words, which the
 * processor's cache holds.
 */

/** The number that is hashed for an element is so much more than for the one before. */
const stride: i32 = 0x85ebca6b;

/** Bytes of the words, at address 0; behind them the lower words of elements of two, and then these elements. */
const room: usize = 16_384;

/**
 * Makes up to 4096 elements, and returns their address; `at` is hashed for the first. With `kept`, its bits of a word stay, and
 * `least + (word >>> dropped) % exponents` comes to `place`: `x / exponents` is `x * factor >>> shift` for all such `x`.
 */
export function fill(
  count: i32,
  bytes: i32,
  at: i32,
  kept: i32,
  dropped: i32,
  exponents: i32,
  factor: i32,
  shift: i32,
  least: i32,
  place: i32,
): usize {
  const end = <usize>count * 4;
  hash(end, at);
  if (bytes == 8) hashAgain(end);
  if (kept != 0) form(end, kept, dropped, exponents, factor, shift, least, place);
  if (bytes == 8) return interleave(end);
  if (bytes < 4) narrow16(end / 2);
  if (bytes == 1) narrow8(end / 4);
  return 0;
}

/** `mix32` of `src/api/bits.ts`. */
@inline
function mixed(words: v128): v128 {
  let x = v128.xor(words, i32x4.shr_u(words, 16));
  x = i32x4.mul(x, i32x4.splat(0x7feb352d));
  x = i32x4.mul(v128.xor(x, i32x4.shr_u(x, 15)), i32x4.splat(0x846ca68b));
  return v128.xor(x, i32x4.shr_u(x, 16));
}

function hash(end: usize, at: i32): void {
  const step = i32x4.splat(8 * stride);
  let a = i32x4.add(i32x4.splat(at), i32x4(0, stride, 2 * stride, 3 * stride));
  let b = i32x4.add(a, i32x4.splat(4 * stride));
  for (let to: usize = 0; to < end; to += 32) {
    v128.store(to, mixed(a));
    v128.store(to, mixed(b), 16);
    a = i32x4.add(a, step);
    b = i32x4.add(b, step);
  }
}

function hashAgain(end: usize): void {
  for (let to: usize = 0; to < end; to += 16) {
    v128.store(to, mixed(v128.xor(v128.load(to), i32x4.splat(0xdeadbeef))), room);
  }
}

/** The factors have 15 bits, and what they meet 12: the dot product multiplies these faster. */
function form(
  end: usize,
  kept: i32,
  dropped: i32,
  exponents: i32,
  factor: i32,
  shift: i32,
  least: i32,
  place: i32,
): void {
  const keep = i32x4.splat(kept);
  const divisor = i32x4.splat(exponents);
  const multiplier = i32x4.splat(factor);
  const base = i32x4.splat(least << place);
  for (let to: usize = 0; to < end; to += 16) {
    const word = v128.load(to);
    const upper = i32x4.shr_u(word, dropped);
    const quotient = i32x4.shr_u(i32x4.dot_i16x8_s(upper, multiplier), shift);
    const rest = i32x4.sub(upper, i32x4.dot_i16x8_s(quotient, divisor));
    const exponent = i32x4.add(i32x4.shl(rest, place), base);
    v128.store(to, v128.or(v128.and(word, keep), exponent));
  }
}

function interleave(end: usize): usize {
  for (let from: usize = 0; from < end; from += 16) {
    const high = v128.load(from);
    const low = v128.load(from, room);
    v128.store(2 * from, v128.shuffle<i32>(low, high, 0, 4, 1, 5), 2 * room);
    v128.store(2 * from, v128.shuffle<i32>(low, high, 2, 6, 3, 7), 2 * room + 16);
  }
  return 2 * room;
}

/** Words become their lower halves. */
function narrow16(end: usize): void {
  for (let to: usize = 0; to < end; to += 16) {
    const a = v128.load(2 * to);
    const b = v128.load(2 * to, 16);
    v128.store(to, v128.shuffle<i16>(a, b, 0, 2, 4, 6, 8, 10, 12, 14));
  }
}

/** Halves become their lower bytes. */
function narrow8(end: usize): void {
  for (let to: usize = 0; to < end; to += 16) {
    const a = v128.load(2 * to);
    const b = v128.load(2 * to, 16);
    v128.store(to, v128.shuffle<i8>(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
  }
}
