/**
 * float16 and bfloat16: folded as doubles, rounded to the format after every hop.
 *
 * A block of accumulators is decoded by table, folded through all its hops and encoded once.
 * Between hops a double holds a value of the format, so decoding and encoding are exact.
 */
import { type Chain, canonicalise16, chainByOne, type FoldMethods, type Hop } from "./fold.ts";
import {
  addBlock,
  addScaledToBlock,
  addTwoToBlock,
  blockElements,
  fuseIntoBlock,
  type Half,
  loadBlock,
  multiplyBlock,
  scaleIntoBlock,
  storeBlock,
} from "./half-block.ts";
import { valuesOf } from "./small-arrays.ts";
import { smallFormats } from "./small-float.ts";

/** The two 2-byte formats. */
export type HalfDType = "float16" | "bfloat16";

type HalfHop = Hop<Uint16Array>;
/** Folds one source into the decoded block. */
type BlockHop = (half: Half, source: Uint16Array, at: number, count: number) => void;
type TwoHops = typeof addTwoToBlock;

/** Sum of halves. */
export function halfSum(dtype: HalfDType): FoldMethods {
  const half = halfOf(dtype);
  const chain = chainOf(half, loadBlock, addBlock, addTwoToBlock);
  return methods(half, copy, hopOf(half, addBlock), chain);
}

/** Product of halves. */
export function halfProd(dtype: HalfDType): FoldMethods {
  const half = halfOf(dtype);
  const chain = chainOf(half, loadBlock, multiplyBlock);
  return methods(half, copy, hopOf(half, multiplyBlock), chain);
}

/**
 * Sum of halves, each multiplied by `scalar` first: rounded once in each hop when `fused`, else
 * twice.
 */
export function halfScaledSum(dtype: HalfDType, scalar: number, fused: boolean): FoldMethods {
  const half = halfOf(dtype);
  const scaled = fused ? fuseIntoBlock : addScaledToBlock;
  const start: BlockHop = (h, source, at, count) => scaleIntoBlock(h, source, at, count, scalar);
  const hop: BlockHop = (h, source, at, count) => scaled(h, source, at, count, scalar);
  const chain = chainOf(half, start, hop);
  const begin: HalfHop = (acc, accAt, source, sourceAt, count) =>
    chain(acc, accAt, [source], [sourceAt], count);
  return { ...methods(half, begin, hopOf(half, hop), chain), addPartial: hopOf(half, addBlock) };
}

/** Minimum or maximum of halves. */
export function halfExtreme(dtype: HalfDType, which: "min" | "max"): FoldMethods {
  const half = halfOf(dtype);
  const flip = which === "min" ? 0 : -1;
  const pick: HalfHop = (acc, accAt, source, sourceAt, count) =>
    pickHalves(acc, accAt, source, sourceAt, count, half.format.infinity, flip);
  return methods(half, copy, pick, chainByOne(copy, pick));
}

function methods(half: Half, begin: HalfHop, hop: HalfHop, chain: Chain<Uint16Array>): FoldMethods {
  const finish = (acc: Uint16Array, accAt: number, count: number): void =>
    canonicalise16(acc, accAt, count, half.format.infinity);
  return { begin, addContribution: hop, addPartial: hop, chain, finish };
}

function copy(
  acc: Uint16Array,
  accAt: number,
  source: Uint16Array,
  sourceAt: number,
  count: number,
): void {
  for (let i = 0; i < count; i++) acc[accAt + i] = source[sourceAt + i] as number;
}

/** One hop: the accumulator is decoded, folded with the source and encoded again. */
function hopOf(half: Half, hop: BlockHop): HalfHop {
  return (acc, accAt, source, sourceAt, count) => {
    for (let done = 0; done < count; done += blockElements) {
      const size = Math.min(blockElements, count - done);
      loadBlock(half, acc, accAt + done, size);
      hop(half, source, sourceAt + done, size);
      storeBlock(half, acc, accAt + done, size);
    }
  };
}

/** A chain: one decoding and one encoding of the accumulator for all hops. */
function chainOf(half: Half, start: BlockHop, hop: BlockHop, two?: TwoHops): Chain<Uint16Array> {
  return (acc, accAt, sources, sourceAts, count) => {
    const from = (k: number, done: number): number => (sourceAts[k] as number) + done;
    const sourceOf = (k: number): Uint16Array => sources[k] as Uint16Array;
    for (let done = 0; done < count; done += blockElements) {
      const size = Math.min(blockElements, count - done);
      start(half, sourceOf(0), from(0, done), size);
      let k = 1;
      if (two) {
        for (; k + 1 < sources.length; k += 2) {
          two(half, sourceOf(k), from(k, done), sourceOf(k + 1), from(k + 1, done), size);
        }
      }
      for (; k < sources.length; k++) hop(half, sourceOf(k), from(k, done), size);
      storeBlock(half, acc, accAt + done, size);
    }
  };
}

const known: { [D in HalfDType]?: Half } = {};

/** The format with its decoding table, 256 KiB, created on first use. */
function halfOf(dtype: HalfDType): Half {
  let half = known[dtype];
  if (half === undefined) {
    half = { format: smallFormats[dtype], decode: valuesOf(dtype) };
    known[dtype] = half;
  }
  return half;
}

/**
 * `acc = min(acc, source)` with `flip` 0, `max` with `flip` -1. `infinity` is the bits of
 * +infinity. A NaN loses to a number; the result of two NaNs is the canonical one.
 *
 * The comparison uses bits: a pattern with its magnitude inverted when negative orders like the value, with -0 below +0. The
 * NaNs lie outside both infinities. The maximum is the minimum of the complements, so one loop serves both.
 */
function pickHalves(
  acc: Uint16Array,
  accAt: number,
  source: Uint16Array,
  sourceAt: number,
  count: number,
  infinity: number,
  flip: 0 | -1,
): void {
  for (let i = 0; i < count; i++) {
    const a = acc[accAt + i] as number;
    const b = source[sourceAt + i] as number;
    if ((a & 0x7fff) > infinity) {
      acc[accAt + i] = (b & 0x7fff) > infinity ? 0x7fff : b;
    } else if ((b & 0x7fff) <= infinity) {
      const signedA = (a << 16) >> 16;
      const signedB = (b << 16) >> 16;
      const keyA = signedA ^ ((signedA >> 15) & 0x7fff) ^ flip;
      const keyB = signedB ^ ((signedB >> 15) & 0x7fff) ^ flip;
      // All ones when b comes first: no data-dependent branch.
      const takeB = (keyB - keyA) >> 31;
      acc[accAt + i] = a ^ ((a ^ b) & takeB);
    }
  }
}
