/**
 * The grouping of gradients for communication: in buckets, last used parameters first.
 *
 * Backward meets the parameters in the reverse of their order of use, so buckets filled in that order are complete one
 * after another while it still runs. The order of use is rank 0's order of declaration, sent to all ranks, so all ranks
 * have the same buckets whatever order their own program declared.
 */
import { bytesOf } from "../../api/index.ts";
import type { Divided } from "../divided.ts";
import type { Parameter, ParameterDType } from "../parameter-set.ts";

/** Where a parameter lies in its bucket. */
export interface BucketPosition {
  readonly parameter: Parameter;
  /** First element in the bucket. */
  readonly begin: number;
}

/** Gradients of one dtype that travel together. */
export interface Bucket {
  readonly dtype: ParameterDType;
  readonly parameters: readonly BucketPosition[];
  /** Elements of all its parameters. */
  readonly length: number;
}

/**
 * Divides parameters, given in their order of use, into buckets in the order in which they are issued: that in which
 * backward completes them.
 *
 * A bucket holds at most `bucketBytes`, unless a single parameter is larger. Each dtype fills buckets of its own, and so do
 * parameters that as many ranks of a divided model have: buckets of what all of them have are then alike on all of them,
 * however unlike their parts are, so its sums round alike.
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
