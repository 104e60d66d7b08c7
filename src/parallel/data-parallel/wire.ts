/**
 * The sum of one bucket of gradients over all ranks: in full, in 16-bit floats, or of its largest elements only.
 *
 * Gradients are host memory; messages are in the backend's. So every exchange owns buffers of the communicator. It copies the
 * bucket into them when it is issued, and out of them when it is collected.
 */
import type { CommOp, Communicator, DeviceBuffer } from "../../api/index.ts";
import { invalid } from "../../api/option-kinds.ts";
import { releaseAfter } from "../call-guard.ts";
import { type ParameterArray, type ParameterDType, zerosOf } from "../parameter-set.ts";
import type { State, StateTensor } from "../state.ts";
import type { Bucket } from "./buckets.ts";

/** The format of gradients in messages: `"full"`, a 16-bit float, or the given share of largest elements with error feedback. */
export type Wire = "full" | HalfDType | { readonly topK: number };

/** The calls that sum one bucket; used once a step. */
export interface BucketExchange {
  /** Unsent gradients, if any, which are added to the next ones. Live memory. */
  readonly residual: ParameterArray | undefined;
  /** The calls of the last `post`. */
  readonly op: CommOp | undefined;
  /** Posts the calls; `gradients` may be changed afterwards. */
  post(gradients: ParameterArray): CommOp;
  /** Writes the sum over all ranks. */
  collect(gradients: ParameterArray): Promise<void>;
  /** Commits the step: its unsent gradients become the residual. */
  commit(): void;
  /** Frees the buffers once their calls are done. */
  dispose(): void;
}

/** A bucket, its memory, and its sum. */
export interface ActiveBucket {
  readonly bucket: Bucket;
  readonly staging: ParameterArray;
  readonly exchange: BucketExchange;
}

/** The exchange of a bucket with a number of elements; `scale` multiplies values before their rounding to 16 bits. */
export function exchangeOf(
  comm: Communicator,
  wire: Wire,
  scale: number,
  dtype: ParameterDType,
  length: number,
): BucketExchange {
  if (wire === "full") return new FullExchange(comm, dtype, length);
  if (typeof wire === "string") return new HalfExchange(comm, wire, scale, length);
  return new TopExchange(comm, wire.topK, dtype, length);
}

/** An in-place all-reduce of the unchanged gradients. */
class FullExchange implements BucketExchange {
  readonly residual = undefined;
  readonly #comm: Communicator;
  readonly #buffer: DeviceBuffer<ParameterDType>;
  op: CommOp | undefined;

  constructor(comm: Communicator, dtype: ParameterDType, length: number) {
    this.#comm = comm;
    this.#buffer = comm.alloc(dtype, length);
  }

  post(gradients: ParameterArray): CommOp {
    this.#buffer.copyFrom(gradients);
    this.op = this.#comm.allReduce({ send: this.#buffer, op: "sum" });
    return this.op;
  }

  async collect(gradients: ParameterArray): Promise<void> {
    await this.op;
    await this.#buffer.copyTo(gradients);
  }

  commit(): void {}

  dispose(): void {
    releaseAfter(this.op, () => this.#buffer.dispose());
  }
}

/** An in-place all-reduce of the gradients, rounded to 16 bits; every hop rounds again. */
class HalfExchange implements BucketExchange {
  readonly residual = undefined;
  readonly #comm: Communicator;
  readonly #dtype: HalfDType;
  readonly #scale: number;
  readonly #bits: Uint16Array;
  readonly #buffer: DeviceBuffer<HalfDType>;
  op: CommOp | undefined;

  constructor(comm: Communicator, dtype: HalfDType, scale: number, length: number) {
    this.#comm = comm;
    this.#dtype = dtype;
    this.#scale = scale;
    this.#bits = new Uint16Array(length);
    this.#buffer = comm.alloc(dtype, length);
  }

  post(gradients: ParameterArray): CommOp {
    for (let at = 0; at < gradients.length; at++) {
      this.#bits[at] = halfBits(this.#dtype, (gradients[at] as number) * this.#scale);
    }
    this.#buffer.copyFrom(this.#bits);
    this.op = this.#comm.allReduce({ send: this.#buffer, op: "sum" });
    return this.op;
  }

  async collect(gradients: ParameterArray): Promise<void> {
    await this.op;
    await this.#buffer.copyTo(this.#bits);
    for (let at = 0; at < gradients.length; at++) {
      gradients[at] = halfValue(this.#dtype, this.#bits[at] as number) / this.#scale;
    }
  }

  commit(): void {}

  dispose(): void {
    releaseAfter(this.op, () => this.#buffer.dispose());
  }
}

/** The least number of elements that is such a share of all; the product may be rounded beyond it, as that of 0.07 and 100. */
function countOf(share: number, length: number): number {
  const count = Math.ceil(length * share);
  return (count - 1) / length >= share ? count - 1 : count;
}

/**
 * All-gathers of each rank's largest elements and their places, summed in the order of ranks. A rank adds unsent gradients to
 * its next ones, so none is lost.
 */
class TopExchange implements BucketExchange {
  readonly residual: ParameterArray;
  readonly #comm: Communicator;
  /** The rank's contribution: gradient and residual; after posting, the unsent part. */
  readonly #contribution: ParameterArray;
  readonly #values: readonly [DeviceBuffer<ParameterDType>, DeviceBuffer<ParameterDType>];
  readonly #places: readonly [DeviceBuffer<"uint32">, DeviceBuffer<"uint32">];
  op: CommOp | undefined;

  constructor(comm: Communicator, share: number, dtype: ParameterDType, length: number) {
    const count = countOf(share, length);
    this.#comm = comm;
    this.residual = zerosOf(dtype, length);
    this.#contribution = zerosOf(dtype, length);
    this.#values = [comm.alloc(dtype, count), comm.alloc(dtype, count * comm.size)];
    this.#places = [comm.alloc("uint32", count), comm.alloc("uint32", count * comm.size)];
  }

  post(gradients: ParameterArray): CommOp {
    const contribution = this.#contribution;
    for (let at = 0; at < contribution.length; at++) {
      contribution[at] = (gradients[at] as number) + (this.residual[at] as number);
    }
    const places = largestIndexes(contribution, this.#places[0].length);
    const values = zerosOf(this.#values[0].dtype, places.length);
    for (let at = 0; at < places.length; at++) {
      const place = places[at] as number;
      values[at] = contribution[place] as number;
      contribution[place] = 0;
    }
    this.#values[0].copyFrom(values);
    this.#places[0].copyFrom(places);
    this.op = this.#comm.group(() => {
      this.#comm.allGather({ send: this.#places[0], recv: this.#places[1] });
      this.#comm.allGather({ send: this.#values[0], recv: this.#values[1] });
    });
    return this.op;
  }

  async collect(gradients: ParameterArray): Promise<void> {
    await this.op;
    const places = await this.#places[1].toHost();
    const values = await this.#values[1].toHost();
    gradients.fill(0);
    // A place occurs at most once per rank, and ranks follow one another, so every rank adds in the same order.
    for (let at = 0; at < places.length; at++) {
      const place = places[at] as number;
      gradients[place] = (gradients[place] as number) + (values[at] as number);
    }
  }

  commit(): void {
    this.residual.set(this.#contribution);
  }

  dispose(): void {
    releaseAfter(this.op, () => {
      for (const buffer of [...this.#values, ...this.#places]) buffer.dispose();
    });
  }
}

// 16-bit floats for the wire: rounding to nearest, ties to even, and back.
//
// bfloat16 is the upper half of a float32. Rounding twice from float64 would be wrong near ties. So the value is first rounded
// to odd in float32: truncated, with the last bit set when it was inexact.

/** The short formats of gradients in messages. */
export type HalfDType = "float16" | "bfloat16";

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

/** The bits of float32 next to `x` towards zero, with the last bit set when `x` lies beyond it. */
function roundToOddBits(x: number): number {
  float[0] = x;
  const near = float[0] as number;
  let bits = word[0] as number;
  if (near === x || Number.isNaN(x)) return bits;
  // Never for zero: a magnitude that rounds to zero is not larger than its source.
  if (Math.abs(near) > Math.abs(x)) bits -= 1;
  return bits | 1;
}

/**
 * The bits of `x` rounded to a 16-bit float; a NaN becomes the quiet one, a value beyond the range infinity.
 *
 * @internal
 */
export function halfBits(dtype: HalfDType, x: number): number {
  const bits = roundToOddBits(x);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return dtype === "float16" ? 0x7e00 : 0x7fc0;
  if (dtype === "bfloat16") return sign | roundShift(magnitude, 16);
  if (magnitude >= 0x47800000) return sign | 0x7c00;
  // Normal: rebias the exponent from 127 to 15 and drop 13 bits; the carry of rounding also gives infinity.
  if (magnitude >= 0x38800000) return sign | roundShift(magnitude - 0x38000000, 13);
  // Subnormal: whole multiples of 2^-24; the hidden bit moves to its place.
  const shift = 126 - (magnitude >>> 23);
  if (shift > 25) return sign | 0;
  return sign | roundShift((magnitude & 0x7fffff) | 0x800000, shift);
}

/**
 * The value of a 16-bit float.
 *
 * @internal
 */
export function halfValue(dtype: HalfDType, bits: number): number {
  if (dtype === "bfloat16") {
    word[0] = bits << 16;
    return float[0] as number;
  }
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** `value` without its last `shift` bits, rounded to nearest, ties to even. */
function roundShift(value: number, shift: number): number {
  const kept = value >>> shift;
  const lost = value - kept * 2 ** shift;
  const half = 2 ** (shift - 1);
  return kept + (lost > half || (lost === half && (kept & 1) === 1) ? 1 : 0);
}

// The k elements of the largest magnitude, found without sorting all of them.

/**
 * Indexes of the `k` elements of the largest magnitude, ascending. Of equal magnitudes the lower indexes are taken; a NaN
 * counts as infinitely large, so that it is always sent.
 *
 * @internal
 */
export function largestIndexes(values: Float32Array | Float64Array, k: number): Uint32Array {
  const magnitudes = Float64Array.from(values, magnitude);
  const least = k === 0 ? Number.POSITIVE_INFINITY : nthLargest(magnitudes, k);
  const chosen = new Uint32Array(k);
  let above = 0;
  for (const value of values) if (magnitude(value) > least) above++;
  // All elements above the k-th are taken, then its equals from the left.
  let equals = k - above;
  let count = 0;
  for (let at = 0; at < values.length && count < k; at++) {
    const size = magnitude(values[at] as number);
    if (size < least || (size === least && equals === 0)) continue;
    if (size === least) equals--;
    chosen[count++] = at;
  }
  return chosen;
}

function magnitude(value: number): number {
  return Number.isNaN(value) ? Number.POSITIVE_INFINITY : Math.abs(value);
}

/** The n-th largest value, n from 1; reorders the values (Hoare's selection, pivot in the middle). */
function nthLargest(values: Float64Array, n: number): number {
  const target = n - 1;
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const pivot = values[(low + high) >>> 1] as number;
    let left = low;
    let right = high;
    while (left <= right) {
      while ((values[left] as number) > pivot) left++;
      while ((values[right] as number) < pivot) right--;
      if (left > right) break;
      const swapped = values[left] as number;
      values[left++] = values[right] as number;
      values[right--] = swapped;
    }
    if (target <= right) high = right;
    else if (target >= left) low = left;
    else break;
  }
  return values[target] as number;
}

// Gradients that ranks have not sent so far (`topK`), as state: by parameter, so that buckets may be cut differently later.

/** The residuals of all parameters; empty for formats without residuals. */
export function residualState(buckets: readonly ActiveBucket[]): Record<string, StateTensor> {
  return Object.fromEntries(
    residualsOf(buckets).map(({ name, dtype, shape, data }) => [name, { dtype, shape, data }]),
  );
}

/**
 * Takes over residuals; parameters that the state has none of start without.
 *
 * @throws InvalidArgumentError, before any change, for one of another dtype or shape, or one that would be lost here.
 */
export function restoreResiduals(buckets: readonly ActiveBucket[], state: State): void {
  const ownByName = new Map(residualsOf(buckets).map((each) => [each.name, each]));
  for (const [name, found] of Object.entries(state.tensors)) {
    const own = ownByName.get(name);
    const needs = own === undefined ? "none" : text(own);
    const isOwed = found.data.some((each) => Number(each) !== 0);
    if (text(found) === needs || (own === undefined && !isOwed)) continue;
    throw invalid(
      "restore",
      `residual of "${name}"`,
      text(found),
      needs,
      own === undefined
        ? "it would be lost: create the trainer with the parameter and a topK, as the saved one was"
        : "it is owed to the parameter as it was",
      { field: name },
    );
  }
  const found = new Map(Object.entries(state.tensors));
  for (const [name, { data }] of ownByName) {
    const contribution = found.get(name);
    if (contribution === undefined) data.fill(0);
    else data.set(contribution.data as ParameterArray);
  }
}

function text({ dtype, shape, data }: StateTensor): string {
  return `${dtype} [${shape.join(", ")}] of ${data.length}`;
}

/** The state of one of `size` ranks, from those of another number of ranks, without losing unsent gradients. */
export function sumOfResiduals(states: readonly State[], rank: number, size: number): State {
  const [first] = states;
  const sums = new Map<string, StateTensor>();
  for (const { tensors } of states.filter((_, at) => at % size === rank)) {
    for (const [name, tensor] of Object.entries(tensors)) {
      const { dtype, shape, data } = tensor;
      const before = sums.get(name);
      if (before !== undefined && text(before) !== text(tensor)) {
        const residual = `residual of "${name}"`;
        throw invalid("reshard", residual, text(tensor), text(before), undefined, { field: name });
      }
      const sum = (before?.data ?? data.slice().fill(0 as never)) as ParameterArray;
      for (let at = 0; at < sum.length; at++) {
        sum[at] = (sum[at] as number) + ((data as ParameterArray)[at] as number);
      }
      sums.set(name, { dtype, shape, data: sum });
    }
  }
  return { values: first?.values ?? {}, tensors: Object.fromEntries(sums) };
}

function residualsOf(buckets: readonly ActiveBucket[]): (StateTensor & {
  readonly name: string;
  readonly data: ParameterArray;
})[] {
  return buckets.flatMap(({ bucket, exchange }) =>
    exchange.residual === undefined
      ? []
      : bucket.parameters.map(({ parameter: { name, dtype, shape, length }, begin }) => {
          const data = (exchange.residual as ParameterArray).subarray(begin, begin + length);
          return { name, dtype, shape, data };
        }),
  );
}
