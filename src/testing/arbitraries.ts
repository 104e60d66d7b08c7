/**
 * Arbitraries of the parts that programs are made of. Functions that take constraints, as fast-check's own.
 */
import fc from "fast-check";
import {
  bytesOf,
  type DType,
  dtypeInfo,
  dtypes,
  type HostArray,
  type NamedReduceOp,
  type ReduceOp,
} from "../api/index.ts";
import { payloadBytes } from "./payload.ts";
import type { PayloadClass } from "./program.ts";

/** Least and most, both included. */
export interface SizeConstraints {
  readonly min?: number;
  readonly max?: number;
}

/** Numbers of ranks, 1 to 17 when left out, small ones more often. */
export function worldSizes({ min = 1, max = 17 }: SizeConstraints = {}): fc.Arbitrary<number> {
  const small = Math.max(min, Math.min(5, max));
  return fc.oneof(
    { weight: 3, arbitrary: fc.integer({ min, max: small }) },
    { weight: 2, arbitrary: fc.integer({ min, max }) },
  );
}

/** Seeds: of resume orders, contents, faults. */
export function seeds(): fc.Arbitrary<number> {
  return fc.integer({ min: 0, max: 0x7fffffff });
}

/** Counts of elements: none, one, primes, powers of two and their neighbours, and anything up to `max`. */
export function countsUpTo({ max = 40 }: SizeConstraints = {}): fc.Arbitrary<number> {
  const special = [0, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 64, 67].filter((count) => count <= max);
  return fc.oneof(fc.constantFrom(...special), fc.integer({ min: 0, max }));
}

/** Which dtypes. */
export interface DTypeConstraints {
  readonly kinds?: readonly ("signed" | "unsigned" | "float")[];
}

/** Element types, all twelve when left out. */
export function dtypesOf({ kinds }: DTypeConstraints = {}): fc.Arbitrary<DType> {
  const all = dtypes.filter((dtype) => kinds?.includes(dtypeInfo[dtype].kind) ?? true);
  return fc.constantFrom(...all);
}

/** What operators are for. */
export interface ReduceOpConstraints {
  /** `bits`: scalars of floats that round, too; `exact`, when left out: such that exact contents stay exact. */
  readonly payload?: PayloadClass;
}

/** Operators that are legal for a dtype, pre-multiplied sums included. */
export function reduceOps(
  dtype: DType,
  { payload = "exact" }: ReduceOpConstraints = {},
): fc.Arbitrary<ReduceOp> {
  const scalars = fc.constantFrom(...scalarsOf(dtype, payload));
  return fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom<NamedReduceOp>("sum", "prod", "min", "max", "avg") },
    { weight: 1, arbitrary: scalars.map((preMul) => ({ preMul })) },
  );
}

/** Scalars worth a try: of an integer type its limits too. */
export function scalarsOf(dtype: DType, payload: PayloadClass): readonly (number | bigint)[] {
  const { kind } = dtypeInfo[dtype];
  if (kind === "float") {
    return payload === "exact" ? [1, 2, -1, 0.5, 0] : [1 / 3, -2.5, 1e-3, 1e30, -0, 3, 1, 0.1];
  }
  const width = BigInt(8 * bytesOf(dtype));
  const most = kind === "signed" ? (1n << (width - 1n)) - 1n : (1n << width) - 1n;
  const least = kind === "signed" ? -most - 1n : 0n;
  return [2, 3, 0, 1, most, least, kind === "signed" ? -1 : 7, most / 3n];
}

/** What contents are for. */
export interface PayloadConstraints<D extends DType = DType> {
  readonly dtype: D;
  /** Ranks that send. */
  readonly size: number;
  /** Elements of each rank. */
  readonly count: number;
}

/**
 * Contents for all ranks whose reduction is exact: any order of folding gives the same bits. An average of floats is
 * exact for a power of two of ranks only.
 */
export function exactPayload<D extends DType>(
  constraints: PayloadConstraints<D> & { readonly op: ReduceOp },
): fc.Arbitrary<HostArray<D>[]> {
  return contents("exact", constraints, constraints.op);
}

/** Contents for all ranks of any bits: NaN payloads, infinities, subnormals, both zeros. */
export function bitsPayload<D extends DType>(
  constraints: PayloadConstraints<D>,
): fc.Arbitrary<HostArray<D>[]> {
  return contents("bits", constraints, undefined);
}

function contents<D extends DType>(
  payload: "exact" | "bits",
  { dtype, size, count }: PayloadConstraints<D>,
  op: ReduceOp | undefined,
): fc.Arbitrary<HostArray<D>[]> {
  return seeds().map((seed) =>
    Array.from({ length: size }, (_, rank) => {
      const bytes = payloadBytes({ dtype, payload, op, size, seed }, rank, count);
      return dtypeInfo[dtype].view(bytes.buffer, 0, count) as HostArray<D>;
    }),
  );
}

/** Row i: what rank i sends to each rank. Empty rows, empty columns and single blocks come up by themselves. */
export function countsMatrix(
  size: number,
  { max = 5 }: SizeConstraints = {},
): fc.Arbitrary<number[][]> {
  const sparse = fc.oneof(fc.constant(0), fc.integer({ min: 0, max }));
  const row = (each: fc.Arbitrary<number>): fc.Arbitrary<number[]> =>
    fc.array(each, { minLength: size, maxLength: size });
  const matrix = (each: fc.Arbitrary<number>): fc.Arbitrary<number[][]> =>
    fc.array(row(each), { minLength: size, maxLength: size });
  return fc.oneof(matrix(sparse), matrix(fc.integer({ min: 0, max })), matrix(fc.constant(0)));
}
