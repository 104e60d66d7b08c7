/**
 * Contents of send buffers, as raw bits that a seed fixes.
 *
 * `bits` is anything an element can hold. `exact` is whatever gives the same result in every order of folding:
 * any integer, any extreme, and floats whose every partial sum or product is representable. A result that differs
 * on exact payloads is wrong whatever the plan; on arbitrary bits the plan's own order decides.
 */
import { isFloat, widths } from "./element-bits.ts";
import {
  type OracleDType,
  type OracleFloat,
  type OracleOp,
  oracleFormats,
  roundTo,
} from "./rounding-oracle.ts";
import { randomWords } from "./seed.ts";

/** Which contents. */
export type PayloadClass = "exact" | "bits";

/** What the contents are for. */
export interface PayloadKey {
  readonly dtype: OracleDType;
  readonly payload: PayloadClass;
  readonly seed: number;
  readonly ranks: number;
  /** `copy` for collectives that do not fold: always arbitrary bits. */
  readonly op: OracleOp | "copy";
}

/** The elements that `rank` sends. */
export function payloadBits(key: PayloadKey, rank: number, count: number): bigint[] {
  const { dtype, payload, op, seed } = key;
  const next = randomWords(seed ^ Math.imul(rank + 1, 0x632be5ab));
  const extreme = op === "min" || op === "max" || op === "copy";
  if (payload === "bits" || extreme || !isFloat(dtype)) {
    return Array.from({ length: count }, () => anyBits(dtype, next));
  }
  if (op === "prod") return Array.from({ length: count }, () => exactFactor(dtype, rank, next));
  return Array.from({ length: count }, (_, i) => exactTerm(dtype, key.ranks, rank + i, next));
}

function anyBits(dtype: OracleDType, next: () => number): bigint {
  const width = 8 * widths[dtype];
  const wild = BigInt.asUintN(width, (BigInt(next()) << 32n) | BigInt(next()));
  if (!isFloat(dtype)) return wild;
  const choice = next() % 8;
  if (choice < 3) return wild;
  if (choice < 5) return nearOne(dtype, wild);
  const { mostBits, nanBits, precision, hasInfinity } = oracleFormats[dtype];
  const least = 1n << BigInt(precision - 1);
  const sign = BigInt(next() & 1) << BigInt(width - 1);
  const sizes = [0n, 1n, least - 1n, least, mostBits, mostBits - 1n, nanBits, mostBits + 1n];
  const size = sizes[next() % (hasInfinity ? 8 : 7)] as bigint;
  return sign | size;
}

/** Any sign and fraction, exponents about that of one: sums of these round, cancel and tie. */
function nearOne(dtype: OracleFloat, wild: bigint): bigint {
  const { width, precision, leastExponent } = oracleFormats[dtype];
  const fractionBits = BigInt(precision - 1);
  const exponent = BigInt(1 - leastExponent) + ((wild >> 3n) & 3n) - 2n;
  const sign = (wild & 1n) << BigInt(width - 1);
  return sign | (exponent << fractionBits) | BigInt.asUintN(precision - 1, wild >> 7n);
}

/** Whole numbers whose sum over all ranks stays below the first whole number that is lost. */
function exactTerm(dtype: OracleFloat, ranks: number, place: number, next: () => number): bigint {
  const format = oracleFormats[dtype];
  const most = Math.min(2 ** format.precision, 2 ** 20);
  const share = Math.max(1, Math.floor(most / ranks));
  const takesPart = place % ranks < most;
  const value = takesPart ? (next() % (2 * share + 1)) - share : 0;
  if (value === 0) return 0n;
  return roundTo(format, { kind: "finite", units: BigInt(value), exponent: 0 });
}

/** Powers of two near one, so few of them that no product leaves the format. */
function exactFactor(dtype: OracleFloat, rank: number, next: () => number): bigint {
  const exponent = rank < 4 ? (next() % 3) - 1 : 0;
  const units = (next() & 1) === 0 ? 1n : -1n;
  return roundTo(oracleFormats[dtype], { kind: "finite", units, exponent });
}
