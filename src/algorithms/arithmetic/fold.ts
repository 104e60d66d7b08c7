/**
 * The arithmetic that all executors share: folding contributions of one dtype by one operator.
 *
 * A `Fold` works on *lanes*, the memory of a buffer as the type that keeps its bits. 64-bit integers are pairs of 32-bit words
 * (low word first), 16-bit and 8-bit floats are their bit patterns. Positions and counts are always **elements**. Every hop
 * rounds to the element type. Only the fold of NCCL's symmetric kernels accumulates in float32 (`FoldTerms.accumulator`).
 *
 * A *contribution* is a rank's own input. A *partial* is a value that already holds contributions.
 * The difference matters for averages and pre-multiplied sums only: a contribution is multiplied by
 * the scalar. Where the plan requires it, that product is fused with the add into a partial (one
 * rounding).
 *
 * The file has all that the kernels of the dtypes share: lanes, chains of sources, and canonical NaNs.
 */
import { bytesOf, type DType, dtypes, isDType } from "../../api/dtype.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";

/**
 * Memory of a buffer as the typed array that its kernels work on; the dtype decides the class
 * (`lanesOf`). Integers of one width share one class, signed or not: they differ in comparing and
 * dividing only, never in their bits.
 */
export type Lanes = Uint8Array | Uint16Array | Int32Array | Float32Array | Float64Array;

/**
 * Rounding of `x * s + partial`: once (`fused`), or after the product too (`separate`). 1-byte
 * floats are never fused.
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
  if (!isDType(dtype)) {
    throw invalid("lanesOf", "dtype", textOf(dtype), `one of ${dtypes.join(", ")}`);
  }
  const most = memory?.byteLength;
  if (typeof most !== "number" || ArrayBuffer.isView(memory)) {
    const needed = "an ArrayBuffer or a SharedArrayBuffer";
    throw invalid("lanesOf", "memory", textOf(memory), needed);
  }
  const elementBytes = bytesOf(dtype);
  const laneBytes = elementBytes / lanesPerElement(dtype);
  assertMultiple("byteOffset", byteOffset, laneBytes, most);
  assertMultiple("byteLength", byteLength, elementBytes, most - byteOffset);
  return views[dtype](memory, byteOffset, byteLength / laneBytes);
}

function assertMultiple(field: string, found: number, unit: number, most: number): void {
  const is = Number.isSafeInteger(found) && found >= 0 && found <= most && found % unit === 0;
  if (!is) throw invalid("lanesOf", field, textOf(found), `a multiple of ${unit} in 0..${most}`);
}

// Chains: a whole left fold over many sources, cut into blocks that stay in the innermost cache.
//
// No code here changes a value. The order of the sources is the order of the fold. Blocks decide the time at which an element is
// computed, never the order of its contributions.

/** The methods of a `Fold`, without its data. */
export type FoldMethods = Omit<Fold, "dtype" | "op" | "scales" | "terms">;

/** One pass over one source: `begin`, `addContribution` or `addPartial` of a `Fold`. */
export type Hop<L extends Lanes> = (
  acc: L,
  accAt: number,
  source: L,
  sourceAt: number,
  count: number,
) => void;

/** A whole chain, as `Fold.chain`. */
export type Chain<L extends Lanes> = (
  acc: L,
  accAt: number,
  sources: readonly L[],
  sourceAts: readonly number[],
  count: number,
) => void;

/**
 * The passes of a chain of plain sums, one for each number of sources.
 *
 * They get views of exactly one block: V8 reads `a[i]` much faster than `a[at + i]`.
 */
export interface ChainPasses<L extends Lanes> {
  /** `acc = a ∘ b`. */
  readonly two: (acc: L, a: L, b: L) => void;
  /** `acc = ((a ∘ b) ∘ c) ∘ d`. */
  readonly four: (acc: L, a: L, b: L, c: L, d: L) => void;
  /** `acc = (((acc ∘ a) ∘ b) ∘ c) ∘ d`. */
  readonly fourMore: (acc: L, a: L, b: L, c: L, d: L) => void;
}

/**
 * Elements of a block: at most 32 KiB of accumulator, and few views.
 */
const blockElements = 4096;

/** Below this number of elements, views cost more than they save. */
const fewElements = 96;

/** A chain that takes one source in each pass. */
export function chainByOne<L extends Lanes>(begin: Hop<L>, add: Hop<L>): Chain<L> {
  return (acc, accAt, sources, sourceAts, count) => {
    for (let done = 0; done < count; done += blockElements) {
      const size = Math.min(blockElements, count - done);
      begin(acc, accAt + done, sources[0] as L, (sourceAts[0] as number) + done, size);
      for (let next = 1; next < sources.length; next++) {
        add(acc, accAt + done, sources[next] as L, (sourceAts[next] as number) + done, size);
      }
    }
  };
}

/**
 * A chain that takes up to four sources in each pass: fewer trips of the accumulator through
 * memory. `width` is the number of lanes of an element.
 */
export function chainByFour<L extends Lanes>(
  begin: Hop<L>,
  add: Hop<L>,
  passes: ChainPasses<L>,
  width = 1,
): Chain<L> {
  const byOne = chainByOne(begin, add);
  return (acc, accAt, sources, sourceAts, count) => {
    if (count < fewElements) {
      byOne(acc, accAt, sources, sourceAts, count);
      return;
    }
    for (let done = 0; done < count; done += blockElements) {
      const size = Math.min(blockElements, count - done);
      const at = accAt + done;
      const block = acc.subarray(at * width, (at + size) * width) as L;
      const view = (number: number): L => {
        const from = ((sourceAts[number] as number) + done) * width;
        return (sources[number] as L).subarray(from, from + size * width) as L;
      };
      let next = sources.length >= 4 ? 4 : Math.min(2, sources.length);
      if (next === 4) passes.four(block, view(0), view(1), view(2), view(3));
      else if (next === 2) passes.two(block, view(0), view(1));
      else begin(acc, at, sources[0] as L, (sourceAts[0] as number) + done, size);
      for (; next + 4 <= sources.length; next += 4) {
        passes.fourMore(block, view(next), view(next + 1), view(next + 2), view(next + 3));
      }
      for (; next < sources.length; next++) {
        add(acc, at, sources[next] as L, (sourceAts[next] as number) + done, size);
      }
    }
  };
}

// The canonical NaN of each float dtype, the only one that a reduction writes.
//
// GPUs canonicalise the NaNs of 4-, 2- and 1-byte arithmetic to these patterns. float64 keeps a payload there, without a claim
// about it, so it gets a fixed pattern as well.

/** Dtypes that have a NaN. */
export type FloatDType = Extract<DType, `${string}float${string}`>;

/** Bits of the canonical NaN. */
export const canonicalNaN: { readonly [D in FloatDType]: bigint } = {
  float16: 0x7fffn,
  bfloat16: 0x7fffn,
  float32: 0x7fff_ffffn,
  float64: 0x7ff8_0000_0000_0000n,
  float8e4m3: 0x7fn,
  float8e5m2: 0x7fn,
};

// JavaScript numbers need not keep the bits of a NaN, but `set` between arrays of one class copies
// bytes. So these single elements are written through their words and copied later.
const float32NaN = new Float32Array(new Uint32Array([0x7fff_ffff]).buffer);
const float64NaN = new Float64Array(new Uint32Array([0, 0x7ff8_0000]).buffer);

/**
 * Writes every NaN among `count` elements from `at` on as the canonical one; integers have none.
 */
export function canonicalise(dtype: DType, lanes: Lanes, at: number, count: number): void {
  if (dtype === "float32") canonicalise32(lanes as Float32Array, at, count);
  else if (dtype === "float64") canonicalise64(lanes as Float64Array, at, count);
  else if (dtype === "float16") canonicalise16(lanes as Uint16Array, at, count, 0x7c00);
  else if (dtype === "bfloat16") canonicalise16(lanes as Uint16Array, at, count, 0x7f80);
  else if (dtype === "float8e4m3") canonicalise8(lanes as Uint8Array, at, count, 0x7e);
  else if (dtype === "float8e5m2") canonicalise8(lanes as Uint8Array, at, count, 0x7c);
}

/** Writes the NaNs of `count` float32 lanes canonically. */
export function canonicalise32(lanes: Float32Array, at: number, count: number): void {
  const end = at + count;
  let i = at;
  // A sum is NaN when any of its terms is: one comparison clears four elements.
  for (; i + 4 <= end; i += 4) {
    const low = (lanes[i] as number) + (lanes[i + 1] as number);
    const sum = low + (lanes[i + 2] as number) + (lanes[i + 3] as number);
    if (!Number.isNaN(sum)) continue;
    for (let j = i; j < i + 4; j++) if (Number.isNaN(lanes[j])) lanes.set(float32NaN, j);
  }
  for (; i < end; i++) if (Number.isNaN(lanes[i])) lanes.set(float32NaN, i);
}

/** Writes the NaNs of `count` float64 lanes canonically. */
export function canonicalise64(lanes: Float64Array, at: number, count: number): void {
  const end = at + count;
  let i = at;
  for (; i + 4 <= end; i += 4) {
    const low = (lanes[i] as number) + (lanes[i + 1] as number);
    const sum = low + (lanes[i + 2] as number) + (lanes[i + 3] as number);
    if (!Number.isNaN(sum)) continue;
    for (let j = i; j < i + 4; j++) if (Number.isNaN(lanes[j])) lanes.set(float64NaN, j);
  }
  for (; i < end; i++) if (Number.isNaN(lanes[i])) lanes.set(float64NaN, i);
}

/** Writes the NaNs of `count` 2-byte lanes canonically; they are the magnitudes above `last`. */
export function canonicalise16(lanes: Uint16Array, at: number, count: number, last: number): void {
  for (let i = at; i < at + count; i++) {
    if (((lanes[i] as number) & 0x7fff) > last) lanes[i] = 0x7fff;
  }
}

/** Writes the NaNs of `count` 1-byte lanes canonically; they are the magnitudes above `last`. */
export function canonicalise8(lanes: Uint8Array, at: number, count: number, last: number): void {
  for (let i = at; i < at + count; i++) {
    if (((lanes[i] as number) & 0x7f) > last) lanes[i] = 0x7f;
  }
}
