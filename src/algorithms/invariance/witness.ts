/**
 * Contributions for which two folds give different bits, as evidence that a reader can try.
 *
 * Two different orders of a sum differ in some three ranks: one order joins two of them before the third one, the other order
 * does not. A large number, its negative and 1, with zeros elsewhere, show that: 1 is lost or not. For a product these are two
 * large factors, which overflow together, and a small one. Fused products are shown by few more values, at two or three ranks.
 */

import { bytesOf, type DType, dtypeInfo } from "../../api/dtype.ts";
import type { ReduceOp } from "../../api/reduce-op.ts";
import { type Lanes, lanesOf, type ScalarRounding } from "../arithmetic/fold.ts";
import { foldFor } from "../arithmetic/fold-for.ts";
import { scalarBits } from "../arithmetic/scalar.ts";
import { type FoldOrder, ranksOf } from "../nccl/fold-order.ts";
import { scales } from "./fold-class.ts";
import { foldInOrder } from "./fold-in-order.ts";

/** A fold of one element. */
export interface ElementFold {
  readonly order: FoldOrder;
  readonly rounding: ScalarRounding;
}

/** Contributions by rank, and the bits of both results. */
export interface Witness {
  readonly contributions: readonly number[];
  readonly results: readonly [string, string];
}

/** Significand bits after the first, and powers of two: two `huge` overflow, `least` is subnormal. */
const formats: Partial<Record<DType, { digits: number; huge: number; least: number }>> = {
  float16: { digits: 10, huge: 2 ** 10, least: 2 ** -24 },
  bfloat16: { digits: 7, huge: 2 ** 100, least: 2 ** -133 },
  float32: { digits: 23, huge: 2 ** 100, least: 2 ** -149 },
  float64: { digits: 52, huge: 2 ** 600, least: 2 ** -1074 },
  float8e4m3: { digits: 3, huge: 2 ** 6, least: 2 ** -9 },
  float8e5m2: { digits: 2, huge: 2 ** 10, least: 2 ** -16 },
};

/** Ranks that the first trials give values to; each later round takes twice as many. */
const firstRanks = 8;

/** Hops of all trials, at most: a few seconds. */
const mostHops = 2 ** 25;

/**
 * Contributions of `present` ranks that tell two folds apart; ranks beyond contribute the neutral element. `undefined` where those
 * that are tried do not.
 */
export function witnessOf(
  call: { readonly dtype: DType; readonly op: ReduceOp; readonly present: number },
  folds: readonly [ElementFold, ElementFold],
): Witness | undefined {
  const format = formats[call.dtype];
  if (format === undefined || dtypeInfo[call.dtype].kind !== "float") return undefined;
  const trial = new Trial(call, folds);
  const ranks = ranksOf(folds[0].order).length;
  const values = valuesToTry({ ...call, ranks }, format);
  for (let first = firstRanks; ; first *= 2) {
    for (const each of values) {
      const found = trial.tryPlaces(each, Math.min(first, call.present));
      if (found !== undefined) return found;
    }
    if (first >= call.present || trial.isSpent) return undefined;
  }
}

function valuesToTry(
  call: { readonly dtype: DType; readonly op: ReduceOp; readonly ranks: number },
  { digits, huge, least }: { digits: number; huge: number; least: number },
): number[][] {
  if (call.op === "prod") return [[huge, huge, 1 / huge]];
  const large = 2 ** (digits + 2);
  const triple = [large, -large, 1];
  if (!scales(call)) return [triple];
  const step = 2 ** -digits;
  const palette = [1, 1 + step, 1 + 2 * step, 3, large, -1, -1 - step];
  const few = [1, 1 + step, 3, -large];
  const triples = few.flatMap((a) => few.flatMap((b) => few.map((c) => [a, b, c])));
  // A power of two as the scalar rounds subnormal products only.
  const half = (call.ranks * least) / 2;
  const tiny = [least, 2 * least, 3 * least, half, 2 * half, 3 * half];
  return [triple, ...pairsOf(palette), ...pairsOf(tiny), ...triples];
}

function pairsOf(values: readonly number[]): number[][] {
  return values.flatMap((a) => values.map((b) => [a, b]));
}

class Trial {
  readonly #dtype: DType;
  readonly #present: number;
  readonly #neutral: number;
  readonly #memory: readonly Lanes[];
  readonly #run: readonly (() => string)[];
  readonly #hops: number;
  #left = mostHops;

  constructor(
    {
      dtype,
      op,
      present,
    }: { readonly dtype: DType; readonly op: ReduceOp; readonly present: number },
    folds: readonly [ElementFold, ElementFold],
  ) {
    this.#dtype = dtype;
    this.#present = present;
    this.#neutral = op === "prod" ? 1 : 0;
    const ranks = Math.max(...folds.map(({ order }) => ranksOf(order).length));
    const bytes = bytesOf(dtype);
    const lanes = (): Lanes => lanesOf(dtype, new ArrayBuffer(bytes), 0, bytes);
    this.#memory = Array.from({ length: ranks }, lanes);
    this.#hops = 2 * ranks;
    const result = lanes();
    this.#run = folds.map(({ order, rounding }) => {
      const fold = foldFor(dtype, op, ranksOf(order).length, rounding);
      const one = { sources: this.#memory, at: 0, count: 1, make: lanes };
      return () => {
        foldInOrder(fold, order, one, result);
        fold.finish(result, 0, 1);
        return hex(result);
      };
    });
  }

  /** True after the last trial. */
  get isSpent(): boolean {
    return this.#left <= 0;
  }

  /** Puts values at all choices of the first `ranks` ranks. */
  tryPlaces(values: readonly number[], ranks: number): Witness | undefined {
    const contributions = new Array<number>(this.#present).fill(this.#neutral);
    const place = (at: number): Witness | undefined => {
      if (at === values.length) return this.#compare(contributions);
      for (let rank = 0; rank < ranks && !this.isSpent; rank++) {
        if (contributions[rank] !== this.#neutral) continue;
        contributions[rank] = values[at] as number;
        const found = place(at + 1);
        contributions[rank] = this.#neutral;
        if (found !== undefined) return found;
      }
      return undefined;
    };
    return place(0);
  }

  #compare(contributions: readonly number[]): Witness | undefined {
    this.#left -= this.#hops;
    this.#memory.forEach((lanes, rank) => {
      write(this.#dtype, lanes, contributions[rank] ?? this.#neutral);
    });
    const [first, second] = this.#run.map((run) => run()) as [string, string];
    if (first === second) return undefined;
    return { contributions: [...contributions], results: [first, second] };
  }
}

function write(dtype: DType, lanes: Lanes, value: number): void {
  lanes[0] = dtype === "float32" || dtype === "float64" ? value : Number(scalarBits(dtype, value));
}

function hex({ buffer }: Lanes): string {
  const bytes = [...new Uint8Array(buffer)].reverse();
  return `0x${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
