/**
 * What every executor knows about arithmetic: how contributions of one dtype are folded by one
 * operator.
 *
 * A `Fold` works on *lanes*, the memory of a buffer seen as the type that keeps its bits: 64-bit
 * integers are pairs of 32-bit words (low word first), 16-bit and 8-bit floats are their bit
 * patterns. Positions and counts are always **elements**. Every hop rounds to the element type;
 * nothing is accumulated wider.
 *
 * A *contribution* is a rank's own untouched input. A *partial* is a value that already holds
 * contributions. The difference matters for averages and pre-multiplied sums only: a contribution
 * is multiplied by the scalar, and that product is fused with the add that folds it into a partial
 * (one rounding) where the plan says so.
 */
import { bytesOf, type DType } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";

/**
 * Memory of a buffer as its kernel sees it; which class it is follows from the dtype (`lanesOf`).
 * Integers of one width share one class, signed or not: they differ in comparing and dividing only,
 * never in their bits.
 */
export type Lanes = Uint8Array | Uint16Array | Int32Array | Float32Array | Float64Array;

/**
 * Whether `x * s + partial` is rounded once (`fused`) or after the product too (`separate`). fp8 is
 * never fused.
 */
export type ScalarRounding = "fused" | "separate";

/** What a fold computes, beside its dtype and operator. */
export interface FoldTerms {
  /** Rounded to the dtype: what a contribution is multiplied by; 1 where `scales` is false. */
  readonly scalar: number | bigint;
  /** The product is not rounded by itself when it is folded into a partial. */
  readonly fused: boolean;
  /** What an integer average is divided by in the end; 1 for everything else. */
  readonly divisor: number;
  /** What holds a running value: the element type, or float32, rounded to the element type once in the end. */
  readonly accumulator: "element" | "float32";
}

/**
 * Folds contributions of one dtype by one operator, with the same bits on every machine. Only which
 * NaN a NaN is stays open until `finish`. In every pass an accumulator may be the source as well,
 * at the same place.
 */
export interface Fold {
  readonly dtype: DType;
  readonly op: ReduceOp;
  /**
   * True when a lone contribution already needs arithmetic (average of floats, pre-multiplied sum);
   * false: `begin` is a copy. An integer average divides at its end, in `finish`, and so begins
   * with a copy.
   */
  readonly scales: boolean;
  /** The same as data, for executors that have loops of their own. */
  readonly terms: FoldTerms;

  /** `acc = pre(contribution)`: begins a fold. */
  begin(acc: Lanes, accAt: number, source: Lanes, sourceAt: number, count: number): void;

  /** `acc = acc ∘ pre(contribution)`: one hop of a chain. */
  addContribution(acc: Lanes, accAt: number, source: Lanes, sourceAt: number, count: number): void;

  /** `acc = acc ∘ partial`: joins two partials. */
  addPartial(acc: Lanes, accAt: number, source: Lanes, sourceAt: number, count: number): void;

  /**
   * `acc = ((pre(s0) ∘ pre(s1)) ∘ pre(s2)) …`: a whole chain, of at least one source, in as few
   * passes as the dtype allows; same bits as `begin` followed by `addContribution`. `acc` must not
   * share memory with any source.
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

// Lanes: the memory of a buffer as the typed array its kernels work on, one class for each dtype.
//
// Kernels are fast as long as each of them only ever sees one class of array; that is why the class
// follows from the dtype and not from what the caller holds. 64-bit integers are read as pairs of
// 32-bit words, so their memory needs an alignment of 4 bytes only.

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

/** How many lanes one element takes: two 32-bit words, low word first, for 64-bit integers. */
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
