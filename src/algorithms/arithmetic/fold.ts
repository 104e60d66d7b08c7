/**
 * The arithmetic that all executors share: folding contributions of one dtype by one operator.
 *
 * A `Fold` works on *lanes*, the memory of a buffer as the type that keeps its bits. 64-bit integers are pairs of 32-bit words
 * (low word first), 16-bit and 8-bit floats are their bit patterns. Positions and counts are always **elements**. Every hop
 * rounds to the element type; nothing is accumulated wider.
 *
 * A *contribution* is a rank's own input. A *partial* is a value that already holds contributions.
 * The difference matters for averages and pre-multiplied sums only: a contribution is multiplied by
 * the scalar. Where the plan requires it, that product is fused with the add into a partial (one
 * rounding).
 */
import { bytesOf, type DType } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";

/**
 * Memory of a buffer as the typed array that its kernels work on; the dtype decides the class
 * (`lanesOf`). Integers of one width share one class, signed or not: they differ in comparing and
 * dividing only, never in their bits.
 */
export type Lanes = Uint8Array | Uint16Array | Int32Array | Float32Array | Float64Array;

/**
 * Rounding of `x * s + partial`: once (`fused`), or after the product too (`separate`). fp8 is
 * never fused.
 */
export type ScalarRounding = "fused" | "separate";

/** Parameters of a fold beside its dtype and operator. */
export interface FoldTerms {
  /** Factor of a contribution, rounded to the dtype; 1 where `scales` is false. */
  readonly scalar: number | bigint;
  /** True if the product is not rounded separately when it is folded into a partial. */
  readonly fused: boolean;
  /** Divisor of an integer average; 1 for everything else. */
  readonly divisor: number;
  /** Type of a running value: the element type, or float32, rounded to the element type once at the end. */
  readonly accumulator: "element" | "float32";
}

/**
 * Folds contributions of one dtype by one operator, with the same bits on every machine; the bits
 * of a NaN are defined only after `finish`. In every pass the accumulator may be the source as
 * well, at the same position.
 */
export interface Fold {
  readonly dtype: DType;
  readonly op: ReduceOp;
  /**
   * True when a single contribution needs arithmetic (average of floats, pre-multiplied sum); if
   * false, `begin` is a copy. An integer average divides in `finish`, and so begins with a copy.
   */
  readonly scales: boolean;
  /** The parameters as data, for executors with their own loops. */
  readonly terms: FoldTerms;

  /** `acc = pre(contribution)`: begins a fold. */
  begin(acc: Lanes, accAt: number, source: Lanes, sourceAt: number, count: number): void;

  /** `acc = acc ∘ pre(contribution)`: one hop of a chain. */
  addContribution(acc: Lanes, accAt: number, source: Lanes, sourceAt: number, count: number): void;

  /** `acc = acc ∘ partial`: joins two partials. */
  addPartial(acc: Lanes, accAt: number, source: Lanes, sourceAt: number, count: number): void;

  /**
   * `acc = ((pre(s0) ∘ pre(s1)) ∘ pre(s2)) …`: a whole chain, of at least one source, in as few passes as the dtype allows. It
   * has the bits of `begin` followed by `addContribution`. `acc` must not share memory with any source.
   */
  chain(
    acc: Lanes,
    accAt: number,
    sources: readonly Lanes[],
    sourceAts: readonly number[],
    count: number,
  ): void;

  /**
   * Ends a fold: divides an integer average once by the number of ranks, writes every NaN as the
   * canonical one.
   */
  finish(acc: Lanes, accAt: number, count: number): void;
}

// A kernel is fast if all its arrays have one class. So the dtype decides the class of lanes, not
// the caller's array. 64-bit integers are read as pairs of 32-bit words, so their memory needs an
// alignment of 4 bytes only.

type LaneView = (memory: ArrayBufferLike, byteOffset: number, length: number) => Lanes;

const bytes: LaneView = (memory, at, length) => new Uint8Array(memory, at, length);
const halves: LaneView = (memory, at, length) => new Uint16Array(memory, at, length);
const words: LaneView = (memory, at, length) => new Int32Array(memory, at, length);

const views = {
  int8: bytes,
  uint8: bytes,
  int32: words,
  uint32: words,
  int64: words,
  uint64: words,
  float16: halves,
  bfloat16: halves,
  float32: (memory, at, length) => new Float32Array(memory, at, length),
  float64: (memory, at, length) => new Float64Array(memory, at, length),
  float8e4m3: bytes,
  float8e5m2: bytes,
} satisfies { readonly [D in DType]: LaneView };

/** Number of lanes of one element: two 32-bit words, low word first, for 64-bit integers. */
export function lanesPerElement(dtype: DType): 1 | 2 {
  return dtype === "int64" || dtype === "uint64" ? 2 : 1;
}

/** The lanes of `byteLength` bytes of `memory` that hold elements of `dtype`. */
export function lanesOf(
  dtype: DType,
  memory: ArrayBufferLike,
  byteOffset: number,
  byteLength: number,
): Lanes {
  const laneBytes = bytesOf(dtype) / lanesPerElement(dtype);
  return views[dtype](memory, byteOffset, byteLength / laneBytes);
}
