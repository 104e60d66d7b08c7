/**
 * Random programs: world sizes, calls, counts that divide and counts that do not, and where buffers lie.
 *
 * Shapes are drawn first and fitted to the world size afterwards, so that shrinking may lower the size, drop calls and
 * cut counts without leaving the legal programs. Contents are a seed: they are made when a program runs.
 */
import fc from "fast-check";
import { everyDType, isFloat, widths } from "../support/element-bits.ts";
import type { Placement } from "../support/guarded-range.ts";
import type { PayloadClass } from "../support/payload.ts";
import type { ProgramCall, TestProgram } from "../support/program.ts";
import type { OracleDType, OracleOp } from "../support/rounding-oracle.ts";
import { randomWords } from "../support/seed.ts";

/** 1 to 17 ranks, small ones more often. */
const worldSizes: fc.Arbitrary<number> = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 1, max: 5 }) },
  { weight: 2, arbitrary: fc.integer({ min: 6, max: 17 }) },
);

/** None, one, primes, powers of two and their neighbours, and anything up to 70. */
const counts: fc.Arbitrary<number> = fc.oneof(
  fc.constantFrom(0, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 64, 67),
  fc.integer({ min: 0, max: 70 }),
);

const dtypes = fc.constantFrom<OracleDType>(...everyDType);
const seeds = fc.integer({ min: 0, max: 0x7fffffff });

const placements: fc.Arbitrary<Placement> = fc.record({
  form: fc.constantFrom<Placement["form"]>("apart", "oneBlock", "inPlace", "same"),
  lead: fc.nat({ max: 3 }),
  tail: fc.nat({ max: 2 }),
  host: fc.boolean(),
});

/** Operators by name, or a pre-multiplied sum whose scalar is picked when the dtype is known. */
const operators = fc.oneof(
  fc.constantFrom<OracleOp>("sum", "prod", "min", "max", "avg"),
  fc.record({ preMul: fc.nat({ max: 7 }) }),
);

/** What a call is before it is fitted to a world. */
interface Shape {
  readonly kind: ProgramCall["kind"];
  readonly dtype: OracleDType;
  readonly op: OracleOp;
  readonly scalarsDiffer: boolean;
  readonly count: number;
  readonly root: number;
  readonly placement: Placement;
  readonly give: "exchange" | "both";
  readonly recv: "allocated" | "exact" | "longer";
  readonly order: "packed" | "reversed";
  readonly seed: number;
}

const shapes: fc.Arbitrary<Shape> = fc.record({
  kind: fc.constantFrom<ProgramCall["kind"]>(
    "allReduce",
    "allReduce",
    "broadcast",
    "allToAll",
    "allToAllv",
    "barrier",
  ),
  dtype: dtypes,
  op: operators,
  scalarsDiffer: fc.boolean(),
  count: counts,
  root: fc.nat({ max: 16 }),
  placement: placements,
  give: fc.constantFrom("exchange", "both"),
  recv: fc.constantFrom("allocated", "exact", "longer"),
  order: fc.constantFrom("packed", "reversed"),
  seed: seeds,
});

/** What a program may contain. */
export interface ProgramConstraints {
  readonly payload: PayloadClass;
  readonly sizes?: fc.Arbitrary<number>;
  readonly mostCalls?: number;
}

/** Programs whose reductions all get contents of one class. */
export function programs({
  payload,
  sizes = worldSizes,
  mostCalls = 4,
}: ProgramConstraints): fc.Arbitrary<TestProgram> {
  return fc
    .record({
      size: sizes,
      issue: fc.constantFrom<TestProgram["issue"]>("each", "together"),
      shapes: fc.array(shapes, { minLength: 1, maxLength: mostCalls }),
    })
    .map(({ size, issue, shapes: drawn }) => ({
      size,
      issue,
      calls: drawn.map((shape) => fitted(shape, size, payload)),
    }));
}

function fitted(shape: Shape, size: number, payload: PayloadClass): ProgramCall {
  const { kind, dtype, count, seed, placement, give, order } = shape;
  const data = { dtype, payload, seed, placement };
  const apart = { ...data, placement: { ...placement, form: formApart(placement.form) } };
  switch (kind) {
    case "barrier":
      return { kind };
    case "broadcast":
      return { ...data, kind, count, root: shape.root % size };
    case "allToAll":
      return { ...apart, kind, count: Math.ceil(count / 4) };
    case "allToAllv": {
      // Offsets of blocks are the receiver's to choose; memory that the library allocates is packed.
      const allocated = shape.recv === "allocated" && (give === "exchange" || order === "packed");
      const recv = allocated ? "allocated" : shape.recv === "longer" ? "longer" : "exact";
      const separate = { ...placement, form: "apart" as const };
      const counts = countMatrix(size, seed);
      return { ...data, placement: separate, kind, counts, give, recv, order };
    }
    case "allReduce":
      return { ...data, kind, count, ...operatorOf(shape, size, payload) };
  }
}

function formApart(form: Placement["form"]): Placement["form"] {
  return form === "oneBlock" ? "oneBlock" : "apart";
}

/** Uneven counts with many zeros: empty rows, empty columns and single blocks come up by themselves. */
function countMatrix(size: number, seed: number): number[][] {
  const next = randomWords(seed);
  const fullness = next() % 5;
  return Array.from({ length: size }, () =>
    Array.from({ length: size }, () => (next() % 4 < fullness ? next() % 6 : 0)),
  );
}

function operatorOf(
  { op, dtype, scalarsDiffer, seed }: Shape,
  size: number,
  payload: PayloadClass,
): { readonly op: OracleOp; readonly scalars?: readonly (number | bigint)[] } {
  const exactFloat = payload === "exact" && isFloat(dtype);
  if (op === "avg" && exactFloat && !Number.isInteger(Math.log2(size))) return { op: "sum" };
  if (typeof op === "string") return { op };
  const list = scalarsFor(dtype, payload);
  const pick = (at: number): number | bigint => list[at % list.length] as number | bigint;
  // Scalars that differ by rank would need more digits than a narrow float has for its exact sums.
  const differ = scalarsDiffer && payload === "exact" && (!isFloat(dtype) || widths[dtype] >= 4);
  if (!differ) return { op: { preMul: pick(Number(op.preMul)) } };
  const scalars = Array.from({ length: size }, (_, rank) => pick(seed + 3 * rank));
  return { op: { preMul: scalars[0] as number | bigint }, scalars };
}

/** Scalars worth a try: of an integer type its limits too. */
export function scalarsFor(
  dtype: OracleDType,
  payload: PayloadClass,
): readonly (number | bigint)[] {
  if (isFloat(dtype)) {
    return payload === "exact" ? [1, 2, -1, 0.5, 0] : [1 / 3, -2.5, 1e-3, 1e30, -0, 3, 1, 0.1];
  }
  const width = BigInt(8 * widths[dtype]);
  const signed = dtype.startsWith("int");
  const most = signed ? (1n << (width - 1n)) - 1n : (1n << width) - 1n;
  const least = signed ? -most - 1n : 0n;
  return [2, 3, 0, 1, most, least, signed ? -1 : 7, most / 3n];
}
