/**
 * Groups gradients for communication in buckets, last used parameters first.
 *
 * Backward reaches the parameters in the reverse of their order of use. So buckets filled in that order are complete one after
 * another while it still runs. The order of use is rank 0's order of declaration, sent to all ranks, so all ranks have the same
 * buckets, in any order of their own declarations.
 */
import { bytesOf } from "../../api/index.ts";
import type { Divided } from "../divided.ts";
import type { Parameter, ParameterDType } from "../parameter-set.ts";

/** The place of a parameter in its bucket. */
export interface BucketPosition {
  readonly parameter: Parameter;
  /** First element in the bucket. */
  readonly begin: number;
}

/** Gradients of one dtype that are sent together. */
export interface Bucket {
  readonly dtype: ParameterDType;
  readonly parameters: readonly BucketPosition[];
  /** Elements of all its parameters. */
  readonly length: number;
}

/**
 * Divides parameters, given in their order of use, into buckets in their order of issue, in which backward completes them.
 *
 * A bucket holds at most `bucketBytes`, unless a single parameter is larger. Each dtype fills buckets of its own, and so do
 * parameters held by equally many ranks of a divided model. So buckets of common parameters are equal on all ranks, even with
 * different other parts, and their sums round equally.
 */
export function bucketsOf(
  inUse: readonly Parameter[],
  bucketBytes: number,
  divided?: Divided,
): Bucket[] {
  const buckets: {
    dtype: ParameterDType;
    parameters: BucketPosition[];
    length: number;
    last: number;
  }[] = [];
  const open = new Map<string, (typeof buckets)[number]>();
  for (const [last, parameter] of inUse.toReversed().entries()) {
    const { name, dtype, length } = parameter;
    const most = bucketBytes / bytesOf(dtype);
    const kind = `${dtype} ${divided?.copies(name) ?? 1}`;
    let bucket = open.get(kind);
    if (bucket === undefined || (bucket.length > 0 && bucket.length + length > most)) {
      bucket = { dtype, parameters: [], length: 0, last };
      buckets.push(bucket);
      open.set(kind, bucket);
    }
    bucket.parameters.push({ parameter, begin: bucket.length });
    bucket.length += length;
    bucket.last = last;
  }
  return buckets.sort((a, b) => a.last - b.last);
}
