/**
 * How gradients are grouped for communication: in buckets, last used parameters first.
 *
 * Backward meets the parameters in the reverse of their order of use, so buckets filled in that order are complete one
 * after another while it still runs. The order of use is rank 0's order of declaration, told to everybody, so all ranks
 * have the same buckets whatever order their own program declared.
 */
import type { Parameter, ParameterDType } from "../parameter-set.ts";

/** Where a parameter lies in its bucket. */
export interface Placed {
  readonly parameter: Parameter;
  /** First element in the bucket. */
  readonly begin: number;
}

/** Gradients of one dtype that travel together. */
export interface Bucket {
  readonly dtype: ParameterDType;
  readonly parameters: readonly Placed[];
  /** Elements of all its parameters. */
  readonly length: number;
}

/**
 * Divides parameters, given in their order of use, into buckets in the order in which they are issued.
 *
 * A bucket holds at most `bucketBytes`, unless a single parameter is larger. Each dtype fills buckets of its own.
 */
export function bucketsOf(inUse: readonly Parameter[], bucketBytes: number): Bucket[] {
  const buckets: Bucket[] = [];
  const open = new Map<ParameterDType, { placed: Placed[]; length: number }>();
  const close = (dtype: ParameterDType): void => {
    const filled = open.get(dtype);
    if (filled !== undefined) {
      buckets.push({ dtype, parameters: filled.placed, length: filled.length });
    }
    open.delete(dtype);
  };
  for (const parameter of inUse.toReversed()) {
    const { dtype, length } = parameter;
    const most = bucketBytes / (dtype === "float32" ? 4 : 8);
    const filled = open.get(dtype);
    if (filled !== undefined && filled.length + length > most) close(dtype);
    const bucket = open.get(dtype) ?? { placed: [], length: 0 };
    bucket.placed.push({ parameter, begin: bucket.length });
    bucket.length += length;
    open.set(dtype, bucket);
  }
  for (const dtype of [...open.keys()]) close(dtype);
  return buckets;
}
