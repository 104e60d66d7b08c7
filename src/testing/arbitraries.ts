/** Arbitraries of the parts of programs: functions of constraints, like fast-check's own. */

import fc from "fast-check";
import {
  bytesOf,
  type DType,
  dtypeInfo,
  dtypes,
  type HostArray,
  namedReduceOps,
  type ReduceOp,
} from "../api/index.ts";
import {
  assertOptions,
  type Complete,
  invalid,
  type OptionKinds,
  textOf,
} from "../api/option-kinds.ts";
import { reduceOpFault } from "../api/reduce-op.ts";
import { assertAllAmong, assertAmong, assertWhole } from "./argument-checks.ts";
import { payloadBytes } from "./payload.ts";
import { type PayloadClass, payloadClasses } from "./program.ts";

/**
 * Cases of `drawn` that shrink to each of `simpler`, simplest first. An arbitrary that favours some values shrinks among those
 * alone; this one ends at the simplest failing case.
 */
class ShrunkTo<T> extends fc.Arbitrary<T> {
  readonly #drawn: fc.Arbitrary<T>;
  readonly #simpler: (value: T) => IterableIterator<T>;

  constructor(drawn: fc.Arbitrary<T>, simpler: (value: T) => IterableIterator<T>) {
    super();
    this.#drawn = drawn;
    this.#simpler = simpler;
  }

  override generate(random: fc.Random, biasFactor: number | undefined): fc.Value<T> {
    return new fc.Value(this.#drawn.generate(random, biasFactor).value, undefined);
  }

  override canShrinkWithoutContext(value: unknown): value is T {
    return this.#drawn.canShrinkWithoutContext(value);
  }

  override shrink(value: T): fc.Stream<fc.Value<T>> {
    return fc.stream(this.#simpler(value)).map((each) => new fc.Value(each, undefined));
  }
}

/** One of these values, simplest first; equally often, or as drawn by `drawn`. */
export function choices<T>(
  values: readonly T[],
  drawn: fc.Arbitrary<T> = fc.constantFrom(...values),
): fc.Arbitrary<T> {
  return new ShrunkTo(drawn, (value) => values.slice(0, values.indexOf(value)).values());
}

/** Least and most, both included. */
export interface SizeConstraints {
  readonly min?: number | undefined;
  readonly max?: number | undefined;
}

/** Numbers of ranks, 1 to 17 when left out, small ones more often. */
export function worldSizes(constraints: SizeConstraints = {}): fc.Arbitrary<number> {
  const { min, max } = sizesWithin("worldSizes", constraints, { min: 1, max: 17 });
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

/**
 * Counts of elements from `min` to `max`, 0 to 40 when left out: none, one, primes, powers of two and their neighbours, and
 * others. Shrinks over all of these to the least that fails.
 */
export function countsUpTo(constraints: SizeConstraints = {}): fc.Arbitrary<number> {
  const { min, max } = sizesWithin("countsUpTo", constraints, { min: 0, max: 40 });
  const specialCounts = [0, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 64, 67];
  const special = specialCounts.filter((count) => count >= min && count <= max);
  const any = fc.integer({ min, max });
  if (special.length === 0) return any;
  return new ShrunkTo(fc.oneof(fc.constantFrom(...special), any), (count) => below(count, min));
}

/** Shrinks a number towards `least`: by the whole distance, half of it, a quarter and so on, down to one. */
function* below(number: number, least: number): Generator<number> {
  for (let gap = number - least; gap >= 1; gap = Math.floor(gap / 2)) yield number - gap;
}

/** Both bounds, in order and at least the lower bound of `usual`. */
function sizesWithin(
  subject: string,
  constraints: SizeConstraints,
  usual: Complete<SizeConstraints>,
): Complete<SizeConstraints> {
  assertOptions(subject, constraints, { min: true, max: true });
  const { min = usual.min, max = usual.max } = constraints;
  assertWhole(subject, "min", min, usual.min);
  assertWhole(subject, "max", max, min);
  return { min, max };
}

/** The dtypes to draw from. */
export interface DTypeConstraints {
  readonly kinds?: readonly ("signed" | "unsigned" | "float")[] | undefined;
}

const dtypeKinds = ["signed", "unsigned", "float"];

/** Element types, all twelve when left out. Shrinks to the first of `dtypes` that fails. */
export function dtypesOf(constraints: DTypeConstraints = {}): fc.Arbitrary<DType> {
  assertOptions("dtypesOf", constraints, { kinds: "array" });
  const { kinds } = constraints;
  if (kinds !== undefined) assertAllAmong("dtypesOf", "kinds", kinds, dtypeKinds);
  const all = dtypes.filter((dtype) => kinds?.includes(dtypeInfo[dtype].kind) ?? true);
  return choices(all);
}

/** The use of operators. */
export interface ReduceOpConstraints {
  /** `bits`: scalars of floats that round, too; `exact`, when left out: such that exact contents stay exact. */
  readonly payload?: PayloadClass | undefined;
}

/** Operators that are legal for a dtype, pre-multiplied sums included. Shrinks to the named ones first. */
export function reduceOps(
  dtype: DType,
  constraints: ReduceOpConstraints = {},
): fc.Arbitrary<ReduceOp> {
  assertAmong("reduceOps", "dtype", dtype, dtypes);
  assertOptions("reduceOps", constraints, { payload: true });
  const { payload = "exact" } = constraints;
  assertAmong("reduceOps", "payload", payload, payloadClasses);
  const named: readonly ReduceOp[] = ["sum", "prod", "min", "max", "avg"];
  const scaled: readonly ReduceOp[] = scalarsOf(dtype, payload).map((preMul) => ({ preMul }));
  const drawn = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(...named) },
    { weight: 1, arbitrary: fc.constantFrom(...scaled) },
  );
  return choices([...named, ...scaled], drawn);
}

/** Scalars to try: for an integer type its limits too. */
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

/** The use of contents. */
export interface PayloadConstraints<D extends DType = DType> {
  readonly dtype: D;
  /** Ranks that send. */
  readonly size: number;
  /** Elements of each rank. */
  readonly count: number;
}

type FoldedConstraints = PayloadConstraints & { readonly op: ReduceOp };

const payloadKinds: OptionKinds<PayloadConstraints> = { dtype: true, size: true, count: true };

/**
 * Contents for all ranks with an exact reduction: any order of folding gives the same bits. An average of floats is
 * exact for a power of two of ranks only, a pre-multiplied sum of floats for a scalar of 0 or a small power of two, of any sign.
 */
export function exactPayload<D extends DType>(
  constraints: PayloadConstraints<D> & { readonly op: ReduceOp },
): fc.Arbitrary<HostArray<D>[]> {
  assertOptions<FoldedConstraints>("exactPayload", constraints, { ...payloadKinds, op: true });
  assertPayload("exactPayload", constraints);
  const { dtype, op } = constraints;
  // Without an operator contents would be any bits.
  const fault = reduceOpFault(op, dtype);
  if (fault !== undefined) {
    const needs = `one of ${namedReduceOps.join(", ")}, or { preMul } of a scalar of ${dtype}`;
    throw invalid("exactPayload", "op", textOf(op), needs);
  }
  return contents("exact", constraints, op);
}

/** Contents for all ranks of any bits: NaN payloads, infinities, subnormals, both zeros. */
export function bitsPayload<D extends DType>(
  constraints: PayloadConstraints<D>,
): fc.Arbitrary<HostArray<D>[]> {
  assertOptions<PayloadConstraints>("bitsPayload", constraints, payloadKinds);
  assertPayload("bitsPayload", constraints);
  return contents("bits", constraints, undefined);
}

function assertPayload(subject: string, { dtype, size, count }: PayloadConstraints): void {
  assertAmong(subject, "dtype", dtype, dtypes);
  assertWhole(subject, "size", size, 1);
  assertWhole(subject, "count", count, 0);
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

/**
 * Row i: what rank i sends to each rank, `min` to `max` elements, 0 to 5 when left out. With a `min` of 0 there are also empty
 * rows, empty columns and single blocks.
 */
export function countsMatrix(
  size: number,
  constraints: SizeConstraints = {},
): fc.Arbitrary<number[][]> {
  assertWhole("countsMatrix", "size", size, 0);
  const { min, max } = sizesWithin("countsMatrix", constraints, { min: 0, max: 5 });
  const sparse = fc.oneof(fc.constant(min), fc.integer({ min, max }));
  const row = (each: fc.Arbitrary<number>): fc.Arbitrary<number[]> =>
    fc.array(each, { minLength: size, maxLength: size });
  const matrix = (each: fc.Arbitrary<number>): fc.Arbitrary<number[][]> =>
    fc.array(row(each), { minLength: size, maxLength: size });
  return fc.oneof(matrix(sparse), matrix(fc.integer({ min, max })), matrix(fc.constant(min)));
}
