/**
 * The fold of the symmetric kernels: a float32 accumulator, and one rounding to the element type at the end.
 *
 * A running value is wider than the element, so only whole chains exist: the methods that would store a partial in an
 * element throw. 1-byte floats are converted directly from float32, not through float16, and saturate.
 */
import { type DType, dtypeInfo } from "../../api/dtype.ts";
import { invariant } from "../../api/invariant.ts";
import { canonicalise, type Fold, type Lanes } from "../arithmetic/fold.ts";
import { foldFor } from "../arithmetic/fold-for.ts";
import { valuesOf } from "../arithmetic/small-arrays.ts";
import {
  nearest,
  type SmallFloat,
  type SmallFormat,
  smallFormats,
} from "../arithmetic/small-float.ts";

/** Elements that are accumulated together. */
const blockElements = 4096;

const block = new Float32Array(blockElements);
const folds = new Map<DType, Fold>();

/** The sum of the symmetric kernels for a float of up to 4 bytes. float32 rounds at every hop in any case. */
export function symmetricFold(dtype: DType): Fold {
  let fold = folds.get(dtype);
  if (fold === undefined) {
    fold = dtype === "float32" ? foldFor(dtype, "sum", 1, "fused") : narrowFold(dtype);
    folds.set(dtype, fold);
  }
  return fold;
}

function narrowFold(dtype: DType): Fold {
  invariant(isSmall(dtype), `symmetric kernels do not sum ${dtype}`);
  const decode = valuesOf(dtype);
  const encode = encoder(dtype);
  const refuse = (): never => {
    throw new Error(`twinccl broke its own rule: a symmetric sum of ${dtype} has no partials`);
  };
  return Object.freeze({
    dtype,
    op: "sum" as const,
    scales: false,
    terms: Object.freeze({ scalar: 1, fused: false, divisor: 1, accumulator: "float32" as const }),
    begin: (acc: Lanes, accAt: number, source: Lanes, sourceAt: number, count: number) =>
      acc.set(source.subarray(sourceAt, sourceAt + count), accAt),
    addContribution: refuse,
    addPartial: refuse,
    chain: (
      acc: Lanes,
      accAt: number,
      sources: readonly Lanes[],
      sourceAts: readonly number[],
      count: number,
    ) => {
      for (let done = 0; done < count; done += blockElements) {
        const size = Math.min(blockElements, count - done);
        sources.forEach((source, number) => {
          const at = (sourceAts[number] as number) + done;
          accumulate(source, at, size, decode, number === 0);
        });
        encode(acc, accAt + done, size);
      }
    },
    finish: (acc: Lanes, accAt: number, count: number) => canonicalise(dtype, acc, accAt, count),
  });
}

function isSmall(dtype: DType): dtype is SmallFloat {
  return dtypeInfo[dtype].kind === "float" && dtypeInfo[dtype].bytes < 4;
}

function accumulate(
  source: Lanes,
  at: number,
  count: number,
  decode: Float32Array,
  first: boolean,
): void {
  if (first) {
    for (let i = 0; i < count; i++) block[i] = decode[source[at + i] as number] as number;
    return;
  }
  for (let i = 0; i < count; i++) {
    block[i] = (block[i] as number) + (decode[source[at + i] as number] as number);
  }
}

const float = new Float32Array(1);
const word = new Int32Array(float.buffer);

/** Rounds the block to the format, to nearest and ties to even. */
function encoder(dtype: SmallFloat): (acc: Lanes, at: number, count: number) => void {
  const format = smallFormats[dtype];
  const saturates = format.bytes === 1;
  const signBit = 8 * format.bytes - 1;
  const magnitudes = (1 << signBit) - 1;
  return (acc, at, count) => {
    for (let i = 0; i < count; i++) {
      const x = block[i] as number;
      if (Number.isNaN(x)) {
        acc[at + i] = magnitudes;
        continue;
      }
      float[0] = (saturates ? saturated(format, x) : nearest(format, x)) * format.scale;
      const bits = word[0] as number;
      acc[at + i] = ((bits >>> format.shift) & magnitudes) | ((bits >>> 31) << signBit);
    }
  };
}

function saturated(format: SmallFormat, x: number): number {
  return Math.max(-format.most, Math.min(format.most, nearest(format, x)));
}
