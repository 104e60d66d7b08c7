/**
 * The numbers that a benchmark sends, chosen so that the right result is known without rounding.
 *
 * As in nccl-tests, every partial sum or product is exact in the dtype, in any order and bracketing. One plain loop over the
 * ranks therefore gives the only right answer. A lost, doubled or misplaced contribution changes it. Nothing here uses the
 * arithmetic that is under test.
 */
import { type DType, dtypeInfo, type NamedReduceOp } from "../api/index.ts";

/** The inputs of one reduction and their expected fold. */
export interface ReducedValues {
  /** Element `index` of the input of `rank`. */
  readonly input: (rank: number, index: number) => number;
  /** The right fold over all ranks, before it is written in the dtype. */
  readonly expected: (index: number) => number;
}

/** Whole numbers from 0 up to this one are exact in the dtype. */
const maxExact: Readonly<Record<DType, number>> = {
  int8: 127,
  uint8: 255,
  int32: 2 ** 31 - 1,
  uint32: 2 ** 31 - 1,
  int64: 2 ** 31 - 1,
  uint64: 2 ** 31 - 1,
  float16: 2 ** 11,
  bfloat16: 2 ** 8,
  float32: 2 ** 24,
  float64: 2 ** 31 - 1,
  float8e4m3: 2 ** 4,
  float8e5m2: 2 ** 3,
};

/** Ranks that contribute a factor other than ±1 to an element of a product: 2^±6 fits every dtype. */
const factorsOfProduct = 6;

/** 32 mixed bits for an element of a rank. */
export function mixedBits(seed: number, rank: number, index: number): number {
  let bits = Math.imul(rank + 1, 0x9e3779b1) ^ Math.imul(seed + 1, 0x27d4eb2f) ^ index;
  bits = Math.imul(bits ^ (bits >>> 15), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

/** Inputs and right results of a reduction; `scalar` is the factor of an average of floats, in the dtype. */
export function reducedValues(
  dtype: DType,
  op: NamedReduceOp,
  ranks: number,
  seed: number,
  scalar: number,
): ReducedValues {
  if (op === "prod") return products(dtype, ranks, seed);
  if (op === "min" || op === "max") return extremes(dtype, op, ranks, seed);
  if (op === "avg" && dtypeInfo[dtype].kind === "float") return averages(ranks, seed, scalar);
  const sums = boundedSums(dtype, ranks, seed);
  if (op === "sum") return sums;
  // NCCL sums integers and divides once, toward zero; adding 0 keeps the result from being -0.
  return { ...sums, expected: (index) => Math.trunc(sums.expected(index) / ranks) + 0 };
}

/** Small integers with absolute values that add up to no more than the dtype counts exactly. */
function boundedSums(dtype: DType, ranks: number, seed: number): ReducedValues {
  const exact = maxExact[dtype];
  const most = Math.max(1, Math.min(1000, Math.floor(exact / ranks)));
  // In a narrow type only some ranks contribute to an element, other ones to the next element.
  const contributors = Math.min(ranks, exact);
  const least = dtypeInfo[dtype].kind === "unsigned" ? 0 : -most;
  const input = (rank: number, index: number): number =>
    contributors < ranks && ringDistance(rank, index, ranks) >= contributors
      ? 0
      : randomBetween(mixedBits(seed, rank, index), least, most);
  const expected = (index: number): number => {
    let sum = 0;
    for (let rank = 0; rank < ranks; rank++) sum += input(rank, index);
    return sum;
  };
  return { input, expected };
}

/** Powers of two with signs; few of them differ from ±1, so that the product stays in range. */
function products(dtype: DType, ranks: number, seed: number): ReducedValues {
  const { kind } = dtypeInfo[dtype];
  const input = (rank: number, index: number): number => {
    const bits = mixedBits(seed, rank, index);
    const sign = kind !== "unsigned" && (bits & 1) === 1 ? -1 : 1;
    if ((bits & 2) === 0 || ringDistance(rank, index, ranks) >= factorsOfProduct) return sign;
    return kind === "float" && (bits & 4) === 0 ? sign / 2 : sign * 2;
  };
  const expected = (index: number): number => {
    let product = 1;
    for (let rank = 0; rank < ranks; rank++) product *= input(rank, index);
    return product;
  };
  return { input, expected };
}

function extremes(dtype: DType, op: "min" | "max", ranks: number, seed: number): ReducedValues {
  const most = Math.min(maxExact[dtype], 30_000);
  const least = dtypeInfo[dtype].kind === "unsigned" ? 0 : -most;
  const input = (rank: number, index: number): number =>
    randomBetween(mixedBits(seed, rank, index), least, most);
  const expected = (index: number): number => {
    let found = input(0, index);
    for (let rank = 1; rank < ranks; rank++) {
      const value = input(rank, index);
      if (op === "min" ? value < found : value > found) found = value;
    }
    return found;
  };
  return { input, expected };
}

/**
 * Averages of floats multiply every contribution by 1/n, rounded to the dtype. Only sums of one power of two times that scalar
 * are exact. Three ranks therefore contribute +x, +x and -x, and the others zero; the three ranks change with the element.
 */
function averages(ranks: number, seed: number, scalar: number): ReducedValues {
  const input = (rank: number, index: number): number => {
    const place = ringDistance(rank, index, ranks);
    if (place > 2) return 0;
    const size = 1 << (mixedBits(seed, 0, index) % 3);
    return place === 2 ? -size : size;
  };
  const expected = (index: number): number => {
    let sum = 0;
    for (let rank = 0; rank < ranks; rank++) sum += input(rank, index);
    return sum * scalar;
  };
  return { input, expected };
}

/** The distance of a rank, going round, from the rank that an element starts with. */
function ringDistance(rank: number, index: number, ranks: number): number {
  const place = rank - (index % ranks);
  return place < 0 ? place + ranks : place;
}

/** A whole number from `least` to `most`, which are less than 2^16 apart. */
function randomBetween(bits: number, least: number, most: number): number {
  return least + (((bits >>> 16) * (most - least + 1)) >>> 16);
}
