/**
 * Required results of reductions, written as the plainest loops: a second reading of their definition.
 *
 * For exact payloads only, where the order of folding cannot matter: integers in BigInt, floats in Number, and a sum
 * that the format cannot hold is a mistake of the payload, reported as such.
 */
import { bytesFromBits, isFloat, widths } from "./elements.ts";
import {
  decode,
  type Exact,
  type OracleDType,
  type OracleFloat,
  type OracleOp,
  oracleFormats,
} from "./rounding.ts";

/** Folds exact contributions element by element; `ops` differ in the scalar of a pre-multiplied sum only. */
export function naiveReduce(
  dtype: OracleDType,
  ops: readonly OracleOp[],
  sent: readonly (readonly bigint[])[],
): Uint8Array {
  const count = sent[0]?.length ?? 0;
  const op = ops[0] as OracleOp;
  // One rank alone: nothing is folded, so nothing but a scalar changes the bytes.
  if (sent.length === 1 && (typeof op === "string" ? op !== "avg" || !isFloat(dtype) : false)) {
    return bytesFromBits(dtype, sent[0] ?? []);
  }
  const result: bigint[] = [];
  for (let i = 0; i < count; i++) {
    const column = sent.map((bits) => bits[i] as bigint);
    result.push(isFloat(dtype) ? floatFold(dtype, ops, column) : integerFold(dtype, ops, column));
  }
  return bytesFromBits(dtype, result);
}

function integerFold(
  dtype: OracleDType,
  ops: readonly OracleOp[],
  column: readonly bigint[],
): bigint {
  const width = 8 * widths[dtype];
  const signed = dtype.startsWith("int");
  const wrap = (value: bigint): bigint =>
    signed ? BigInt.asIntN(width, value) : BigInt.asUintN(width, value);
  const values = column.map((bits, rank) => {
    const op = ops[rank] as OracleOp;
    return wrap(wrap(bits) * (typeof op === "object" ? BigInt(op.preMul) : 1n));
  });
  const op = ops[0] as OracleOp;
  if (op === "min")
    return BigInt.asUintN(
      width,
      values.reduce((a, b) => (b < a ? b : a)),
    );
  if (op === "max")
    return BigInt.asUintN(
      width,
      values.reduce((a, b) => (b > a ? b : a)),
    );
  if (op === "prod")
    return BigInt.asUintN(
      width,
      values.reduce((a, b) => a * b),
    );
  const total = wrap(values.reduce((a, b) => a + b));
  // An average is the wrapped sum, divided once towards zero.
  return BigInt.asUintN(width, op === "avg" ? total / BigInt(values.length) : total);
}

function floatFold(
  dtype: OracleFloat,
  ops: readonly OracleOp[],
  column: readonly bigint[],
): bigint {
  const op = ops[0] as OracleOp;
  const values = column.map((bits) => numberOf(decode(oracleFormats[dtype], bits)));
  if (op === "min" || op === "max") {
    const numbers = values.filter((value) => !Number.isNaN(value));
    if (numbers.length === 0) return oracleFormats[dtype].nanBits;
    const pick = op === "min" ? Math.min : Math.max;
    const found = pick(...numbers);
    // A hop of an 8-bit float ends in a conversion that stops at the largest value.
    const { saturates, maxBits, width } = oracleFormats[dtype];
    if (!saturates || Math.abs(found) !== Infinity) return bitsOfNumber(dtype, found);
    return found > 0 ? maxBits : maxBits | (1n << BigInt(width - 1));
  }
  if (op === "prod")
    return bitsOfNumber(
      dtype,
      values.reduce((a, b) => a * b),
    );
  const scaled = values.map((value, rank) => {
    const own = ops[rank] as OracleOp;
    if (typeof own === "object") return value * Number(own.preMul);
    return own === "avg" ? value / values.length : value;
  });
  return bitsOfNumber(
    dtype,
    scaled.reduce((a, b) => a + b),
  );
}

function numberOf(exact: Exact): number {
  if (exact.kind === "nan") return Number.NaN;
  if (exact.kind === "infinity") return exact.negative ? -Infinity : Infinity;
  if (exact.kind === "zero") return exact.negative ? -0 : 0;
  return Number(exact.units) * 2 ** exact.exponent;
}

/** For narrow formats: bits of every number they can hold. */
const patterns = new Map<OracleFloat, Map<number, bigint>>();

function bitsOfNumber(dtype: OracleFloat, value: number): bigint {
  const view = new DataView(new ArrayBuffer(8));
  if (dtype === "float64") {
    view.setFloat64(0, value, true);
    return view.getBigUint64(0, true);
  }
  if (dtype === "float32") {
    view.setFloat32(0, value, true);
    if (!Object.is(view.getFloat32(0, true), value)) throw inexact(dtype, value);
    return BigInt(view.getUint32(0, true));
  }
  if (Object.is(value, -0)) return 1n << BigInt(8 * widths[dtype] - 1);
  const bits = patternsOf(dtype).get(value);
  if (bits === undefined) throw inexact(dtype, value);
  return bits;
}

function patternsOf(dtype: OracleFloat): Map<number, bigint> {
  const known = patterns.get(dtype);
  if (known !== undefined) return known;
  const found = new Map<number, bigint>();
  const { width } = oracleFormats[dtype];
  for (let bits = 0; bits < 2 ** width; bits++) {
    const value = numberOf(decode(oracleFormats[dtype], BigInt(bits)));
    if (!found.has(value)) found.set(value, BigInt(bits));
  }
  patterns.set(dtype, found);
  return found;
}

function inexact(dtype: OracleDType, value: number): Error {
  return new Error(`the payload is not exact: ${dtype} cannot hold ${value}`);
}
