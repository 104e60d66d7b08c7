/**
 * The rounding oracle: what a left fold must give, bit by bit, computed in whole numbers.
 *
 * It shares no code with the library, on purpose: a float is decoded from its bits into `units *
 * 2^exponent` with a BigInt of units, every operator is applied exactly, and one generic function
 * rounds to any binary format. Slow next to a kernel, but fast enough for properties: some 10^5
 * folds of a few float32 a second.
 *
 *     oracleFold({ dtype: "float32", op: "avg", ranks: 3, rounding: "fused", contributions })
 *
 * folds raw bits (low bits of a bigint, whatever the sign bit means) in the order given and returns
 * the bits of the result, a NaN always as the canonical one. `oracleJoin` joins two partials, as
 * the combining node of a tree does; to build such partials of an integer average, pass `finish:
 * false` and end with `oracleFinish`, which does the one division.
 */

/** Element types, spelled as in the library. */
export type OracleDType =
  | "int8"
  | "uint8"
  | "int32"
  | "uint32"
  | "int64"
  | "uint64"
  | "float16"
  | "bfloat16"
  | "float32"
  | "float64"
  | "float8e4m3"
  | "float8e5m2";

/** Operators, spelled as in the library. */
export type OracleOp =
  | "sum"
  | "prod"
  | "min"
  | "max"
  | "avg"
  | { readonly preMul: number | bigint };

/** A float taken apart: `units * 2^exponent`, a zero with its sign, an infinity, or NaN. */
export type Exact =
  | { readonly kind: "nan" }
  | { readonly kind: "infinity"; readonly negative: boolean }
  | { readonly kind: "zero"; readonly negative: boolean }
  | { readonly kind: "finite"; readonly units: bigint; readonly exponent: number };

/** A binary format with subnormals. */
export interface OracleFormat {
  /** Width of an element in bits. */
  readonly width: number;
  /** Bits of a significand, the hidden one included. */
  readonly precision: number;
  /** Exponent of the least normal value. */
  readonly minExponent: number;
  /** Bits of the largest finite value. */
  readonly maxBits: bigint;
  /** True when the magnitude after `maxBits` is infinity (e4m3 has none). */
  readonly hasInfinity: boolean;
  /** True when a conversion to it stops at the largest value and passes through float16. */
  readonly saturates: boolean;
  readonly nanBits: bigint;
}

const float = (
  width: number,
  precision: number,
  minExponent: number,
  maxBits: bigint,
  nanBits: bigint,
  more: { hasInfinity?: boolean; saturates?: boolean } = {},
): OracleFormat => ({
  width,
  precision,
  minExponent,
  maxBits,
  nanBits,
  hasInfinity: more.hasInfinity ?? true,
  saturates: more.saturates ?? false,
});

/** The six float formats. */
export const oracleFormats = {
  float16: float(16, 11, -14, 0x7bffn, 0x7fffn),
  bfloat16: float(16, 8, -126, 0x7f7fn, 0x7fffn),
  float32: float(32, 24, -126, 0x7f7f_ffffn, 0x7fff_ffffn),
  float64: float(64, 53, -1022, 0x7fef_ffff_ffff_ffffn, 0x7ff8_0000_0000_0000n),
  float8e4m3: float(8, 4, -6, 0x7en, 0x7fn, { hasInfinity: false, saturates: true }),
  float8e5m2: float(8, 3, -14, 0x7bn, 0x7fn, { saturates: true }),
} as const;

/** Dtypes that are floats. */
export type OracleFloat = keyof typeof oracleFormats;

const integers = {
  int8: { width: 8, signed: true },
  uint8: { width: 8, signed: false },
  int32: { width: 32, signed: true },
  uint32: { width: 32, signed: false },
  int64: { width: 64, signed: true },
  uint64: { width: 64, signed: false },
} as const;

/** One fold to predict. */
export interface OracleCall {
  readonly dtype: OracleDType;
  readonly op: OracleOp;
  /**
   * Ranks of the communicator: what an average divides by, whatever the number of contributions.
   */
  readonly ranks: number;
  readonly rounding: "fused" | "separate";
  /** A partial that the contributions are folded into; left out: the first of them becomes one. */
  readonly begin?: bigint;
  /** Raw bits, in fold order; at least one. */
  readonly contributions: readonly bigint[];
  /** False leaves an integer average undivided: a partial. */
  readonly finish?: boolean;
}

/** Bits of `((pre(c0) ∘ pre(c1)) ∘ pre(c2)) …`, rounded to the dtype after every hop. */
export function oracleFold(call: OracleCall): bigint {
  const { dtype, op, contributions } = call;
  if (!(dtype in oracleFormats)) return integerFold(call);
  const format = oracleFormats[dtype as OracleFloat];
  const rest = [...contributions];
  if (op !== "avg" && typeof op === "string") {
    const first = call.begin ?? (rest.shift() as bigint);
    return canonical(
      format,
      rest.reduce((acc, bits) => plainHop(format, op, acc, bits), first),
    );
  }
  const name = dtype as OracleFloat;
  const scalar = op === "avg" ? averageOf(name, call.ranks) : preMulOf(name, op);
  const scaled = (bits: bigint): bigint => roundTo(format, multiply(decode(format, bits), scalar));
  let acc = call.begin ?? scaled(rest.shift() as bigint);
  for (const bits of rest) {
    const product = multiply(decode(format, bits), scalar);
    const once = call.rounding === "fused" && !format.saturates;
    const addend = once ? product : decode(format, scaled(bits));
    acc = roundTo(format, add(addend, decode(format, acc)));
  }
  return canonical(format, acc);
}

/**
 * Bits of `left ∘ right` where both already hold contributions: no scalar is applied.
 */
export function oracleJoin(call: {
  readonly dtype: OracleDType;
  readonly op: OracleOp;
  readonly left: bigint;
  readonly right: bigint;
}): bigint {
  const { dtype, op, left, right } = call;
  const plain = typeof op === "string" && op !== "avg" ? op : "sum";
  const ranks = 1;
  const contributions = [left, right];
  return oracleFold({ dtype, op: plain, ranks, rounding: "separate", contributions });
}

/**
 * Ends a fold of partials: divides an integer average, makes a NaN canonical.
 */
export function oracleFinish(call: {
  readonly dtype: OracleDType;
  readonly op: OracleOp;
  readonly ranks: number;
  readonly bits: bigint;
}): bigint {
  const { dtype, op, ranks, bits } = call;
  if (dtype in oracleFormats) return canonical(oracleFormats[dtype as OracleFloat], bits);
  return oracleFold({
    dtype,
    op: op === "avg" ? op : "sum",
    ranks,
    rounding: "fused",
    contributions: [bits],
  });
}

/** Bits of the scalar of an average or of a pre-multiplied sum. */
export function oracleScalar(
  dtype: OracleFloat,
  op: "avg" | { readonly preMul: number | bigint },
  ranks: number,
): bigint {
  const format = oracleFormats[dtype];
  if (op !== "avg") {
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, Number(op.preMul));
    return roundTo(format, decode(oracleFormats.float64, view.getBigUint64(0)));
  }
  // 1/n to 200 bits and a sticky one: no format here comes near to seeing the difference.
  const units =
    ((1n << 200n) / BigInt(ranks)) * 2n + ((1n << 200n) % BigInt(ranks) === 0n ? 0n : 1n);
  const exact: Exact = { kind: "finite", units, exponent: -201 };
  if (dtype === "float64") return roundTo(format, exact);
  const single = oracleFormats.float32;
  return roundTo(format, decode(single, roundTo(single, exact)));
}

const averages = new Map<OracleFloat, Map<number, Exact>>();

/** The scalar of an average, computed once. */
function averageOf(dtype: OracleFloat, ranks: number): Exact {
  const known = averages.get(dtype) ?? new Map<number, Exact>();
  averages.set(dtype, known);
  const scalar =
    known.get(ranks) ?? decode(oracleFormats[dtype], oracleScalar(dtype, "avg", ranks));
  known.set(ranks, scalar);
  return scalar;
}

const factors = new WeakMap<object, Map<OracleFloat, Exact>>();

/** The scalar of a pre-multiplied sum, computed once for all elements of a call. */
function preMulOf(dtype: OracleFloat, op: { readonly preMul: number | bigint }): Exact {
  const known = factors.get(op) ?? new Map<OracleFloat, Exact>();
  factors.set(op, known);
  const scalar = known.get(dtype) ?? decode(oracleFormats[dtype], oracleScalar(dtype, op, 1));
  known.set(dtype, scalar);
  return scalar;
}

/** Values of narrow formats by their bits. */
const decoded = new Map<OracleFormat, Exact[]>();

/** The value of raw bits. */
export function decode(format: OracleFormat, bits: bigint): Exact {
  if (format.width > 16) return decodedBits(format, bits);
  let known = decoded.get(format);
  if (known === undefined) {
    known = new Array<Exact>(2 ** format.width);
    decoded.set(format, known);
  }
  const index = Number(BigInt.asUintN(format.width, bits));
  const value = known[index] ?? decodedBits(format, bits);
  known[index] = value;
  return value;
}

function decodedBits(format: OracleFormat, bits: bigint): Exact {
  const negative = BigInt.asIntN(format.width, bits) < 0n ? 1n : 0n;
  const magnitude = BigInt.asUintN(format.width - 1, bits);
  if (magnitude > format.maxBits) {
    const infinite = format.hasInfinity && magnitude === format.maxBits + 1n;
    return infinite ? { kind: "infinity", negative: negative === 1n } : { kind: "nan" };
  }
  if (magnitude === 0n) return { kind: "zero", negative: negative === 1n };
  const fractionBits = BigInt(format.precision - 1);
  const stored = Number(magnitude >> fractionBits);
  const fraction = BigInt.asUintN(format.precision - 1, magnitude);
  const units = stored === 0 ? fraction : fraction | (1n << fractionBits);
  const exponent = format.minExponent - (format.precision - 1) + Math.max(stored - 1, 0);
  return { kind: "finite", units: negative === 1n ? -units : units, exponent };
}

/**
 * Bits of the nearest value of `format`, ties to even; 1-byte formats by way of float16,
 * saturating.
 *
 * @internal
 */
export function roundTo(format: OracleFormat, exact: Exact): bigint {
  if (!format.saturates) return roundOnce(format, exact);
  const half = decode(oracleFormats.float16, roundOnce(oracleFormats.float16, exact));
  return roundOnce(format, half);
}

function roundOnce(format: OracleFormat, exact: Exact): bigint {
  const overflow = format.saturates ? format.maxBits : format.maxBits + 1n;
  const signBit = 1n << BigInt(format.width - 1);
  if (exact.kind === "nan") return format.nanBits;
  if (exact.kind === "infinity") return exact.negative ? signBit | overflow : overflow;
  if (exact.kind === "zero") return exact.negative ? signBit : 0n;
  const negative = exact.units < 0n;
  const size = negative ? -exact.units : exact.units;
  const leading = exact.exponent + bitLength(size) - 1;
  const lowestStep = format.minExponent - (format.precision - 1);
  // Exponent of one unit in the last place of the result.
  const step = Math.max(leading - (format.precision - 1), lowestStep);
  const kept = shiftToNearestEven(size, step - exact.exponent);
  // A significand that rounded up to the next power of two carries into the exponent by itself.
  const magnitude = kept + (BigInt(step - lowestStep) << BigInt(format.precision - 1));
  const bits = magnitude > format.maxBits ? overflow : magnitude;
  return negative ? signBit | bits : bits;
}

/** `size / 2^places`, to the nearest whole number, ties to even. */
function shiftToNearestEven(size: bigint, places: number): bigint {
  if (places <= 0) return size << BigInt(-places);
  const down = BigInt(places);
  const floor = size >> down;
  const twiceRest = (size - (floor << down)) << 1n;
  const one = 1n << down;
  const up = twiceRest > one || (twiceRest === one && (floor & 1n) === 1n);
  return up ? floor + 1n : floor;
}

function bitLength(size: bigint): number {
  if (size <= 0xffff_ffffn) return 32 - Math.clz32(Number(size));
  const digits = size.toString(16);
  return 4 * (digits.length - 1) + (32 - Math.clz32(Number.parseInt(digits[0] as string, 16)));
}

function isNegative(exact: Exact): boolean {
  if (exact.kind === "finite") return exact.units < 0n;
  return exact.kind !== "nan" && exact.negative;
}

function multiply(a: Exact, b: Exact): Exact {
  if (a.kind === "nan" || b.kind === "nan") return { kind: "nan" };
  const negative = isNegative(a) !== isNegative(b);
  if (a.kind === "infinity" || b.kind === "infinity") {
    if (a.kind === "zero" || b.kind === "zero") return { kind: "nan" };
    return { kind: "infinity", negative };
  }
  if (a.kind === "zero" || b.kind === "zero") return { kind: "zero", negative };
  return { kind: "finite", units: a.units * b.units, exponent: a.exponent + b.exponent };
}

function add(a: Exact, b: Exact): Exact {
  if (a.kind === "nan" || b.kind === "nan") return { kind: "nan" };
  if (a.kind === "infinity") {
    return b.kind === "infinity" && a.negative !== b.negative ? { kind: "nan" } : a;
  }
  if (b.kind === "infinity") return b;
  if (a.kind === "zero") {
    // Two zeros of one sign keep it, otherwise the sum is +0.
    return b.kind === "zero" ? { kind: "zero", negative: a.negative && b.negative } : b;
  }
  if (b.kind === "zero") return a;
  const exponent = Math.min(a.exponent, b.exponent);
  const units =
    (a.units << BigInt(a.exponent - exponent)) + (b.units << BigInt(b.exponent - exponent));
  return units === 0n ? { kind: "zero", negative: false } : { kind: "finite", units, exponent };
}

/** True when a lies below b, -0 below +0. Neither is NaN. */
function below(a: Exact, b: Exact): boolean {
  const difference = add(a, negated(b));
  if (difference.kind === "zero") return isNegative(a) && !isNegative(b);
  // Equal infinities: inf - inf is NaN and neither lies below.
  return difference.kind !== "nan" && isNegative(difference);
}

function negated(exact: Exact): Exact {
  if (exact.kind === "nan") return exact;
  if (exact.kind === "finite") return { ...exact, units: -exact.units };
  return { ...exact, negative: !exact.negative };
}

function plainHop(
  format: OracleFormat,
  op: "sum" | "prod" | "min" | "max",
  left: bigint,
  right: bigint,
): bigint {
  const a = decode(format, left);
  const b = decode(format, right);
  if (op === "sum") return roundTo(format, add(a, b));
  if (op === "prod") return roundTo(format, multiply(a, b));
  // A NaN loses to a number.
  if (a.kind === "nan") return roundTo(format, b);
  if (b.kind === "nan") return roundTo(format, a);
  const least = below(a, b) ? a : b;
  const most = least === a ? b : a;
  return roundTo(format, op === "min" ? least : most);
}

function canonical(format: OracleFormat, bits: bigint): bigint {
  return decode(format, bits).kind === "nan" ? format.nanBits : BigInt.asUintN(format.width, bits);
}

function integerFold(call: OracleCall): bigint {
  const { dtype, op, ranks, begin, contributions, finish = true } = call;
  const { width, signed } = integers[dtype as keyof typeof integers];
  const wrap = signed ? BigInt.asIntN : BigInt.asUintN;
  const scalar = typeof op === "object" ? BigInt(op.preMul) : 1n;
  const rest = contributions.map((bits) => wrap(width, wrap(width, bits) * scalar));
  const first = begin === undefined ? (rest.shift() as bigint) : wrap(width, begin);
  const folded = rest.reduce((acc, x) => {
    if (op === "prod") return wrap(width, acc * x);
    if (op === "min") return x < acc ? x : acc;
    if (op === "max") return x > acc ? x : acc;
    return wrap(width, acc + x);
  }, first);
  // BigInt division truncates toward zero.
  const result = op === "avg" && finish ? folded / BigInt(ranks) : folded;
  return BigInt.asUintN(width, result);
}
