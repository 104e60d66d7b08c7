/**
 * The naive oracle of a measured call: the inputs, the only right outputs, and the number of wrong elements.
 *
 * It evaluates the formula of the inputs again for every rank, in one plain loop. It shares no code with the checked folds,
 * programs and executors.
 */
import { bytesOfView } from "../api/bits.ts";
import type { DType, HostArray, NamedReduceOp } from "../api/index.ts";
import {
  type Arrival,
  type CallShape,
  type MeasuredCollective,
  recvLength,
} from "./collectives.ts";
import { averageFactor, bitsOfArray, encodeBits, encodeNumbers, hostArray } from "./encode.ts";
import { type ReducedValues, reducedValues } from "./values.ts";

/** Inputs and right results of one configuration. */
export class Oracle {
  readonly #row: MeasuredCollective;
  readonly #shape: CallShape;
  readonly #dtype: DType;
  readonly #seed: number;
  readonly #values: ReducedValues;
  readonly #inputs = new Map<number, HostArray>();
  /** The last expected output, which most collectives share among all ranks. */
  #expected: { readonly key: string; readonly array: HostArray } | undefined;

  constructor(
    row: MeasuredCollective,
    shape: CallShape,
    dtype: DType,
    op: NamedReduceOp,
    seed: number,
  ) {
    const scalar = averageFactor(dtype, shape.ranks);
    this.#row = row;
    this.#shape = shape;
    this.#dtype = dtype;
    this.#seed = seed;
    this.#values = reducedValues(dtype, op, shape.ranks, seed, scalar);
  }

  /** The input of a rank. Small ones are kept, because they are used again. */
  input(rank: number): HostArray {
    const known = this.#inputs.get(rank);
    if (known !== undefined) return known;
    const length = this.#row.sendLength(this.#shape, rank);
    const array = hostArray(this.#dtype, length);
    if (this.#row.reduces) {
      encodeNumbers(this.#dtype, array, 0, length, (index) => this.#values.input(rank, index));
    } else encodeBits(array, 0, length, { seed: this.#seed, rank, index: 0 });
    if (array.byteLength <= maxKept) this.#inputs.set(rank, array);
    return array;
  }

  /** The right output of a rank. */
  expected(rank: number): HostArray {
    const arrivals = this.#row.arrives(this.#shape, rank);
    const key = JSON.stringify(arrivals);
    if (this.#expected?.key === key) return this.#expected.array;
    const array = hostArray(this.#dtype, recvLength(this.#row, this.#shape, rank));
    for (const arrival of arrivals) this.#write(array, arrival);
    this.#expected = { key, array };
    return array;
  }

  /** Elements of a rank's result that differ from the expected bits. */
  wrong(rank: number, result: HostArray): number {
    return countDifferent(this.expected(rank), result);
  }

  #write(array: HostArray, { at, length, from, index }: Arrival): void {
    const end = at + length;
    if (from === "fold") {
      encodeNumbers(this.#dtype, array, at, end, (step) => this.#values.expected(index + step));
    } else encodeBits(array, at, end, { seed: this.#seed, rank: from, index });
  }
}

/** Largest cached input in bytes; caching larger ones would double the memory of a benchmark. */
const maxKept = 2 ** 24;

/** Number of elements with different bits; missing elements differ. */
function countDifferent(expected: HostArray, found: HostArray): number {
  if (expected.length !== found.length) return Math.max(expected.length, found.length);
  const a = bytesOfView(expected);
  if (Buffer.compare(a, bytesOfView(found)) === 0) return 0;
  const left = bitsOfArray(expected);
  const right = bitsOfArray(found);
  let different = 0;
  for (let at = 0; at < left.length; at++) if (left[at] !== right[at]) different++;
  return different;
}
