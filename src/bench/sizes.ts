/** Sizes of messages: their notation (`8`, `1K`, `16M`), and the sizes of a sweep. */
import { bytesOf, type DType } from "../api/dtype.ts";
import { assertOptions, invalid, textOf } from "../api/option-kinds.ts";
import type { MeasuredCollective, Skew } from "./collectives.ts";

const unit: Readonly<Record<string, number>> = { "": 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30 };

/** Most sizes of one sweep: more are an error that would run for hours. */
const maxSizes = 4096;

/** A sweep over sizes in bytes, from `min` to at most `max`. */
export interface SizeSweep {
  readonly min: number;
  readonly max: number;
  /** Factor between sizes; without it, `step` is added. */
  readonly factor?: number | undefined;
  /** Bytes added from one size to the next. */
  readonly step?: number | undefined;
}

/** Bytes of a size such as `8`, `1K`, `16M` or `1GiB` (powers of 1024); `undefined` for another text. */
export function parseSize(text: string): number | undefined {
  if (typeof text !== "string") throw invalid("parseSize", "text", textOf(text), "a string");
  const match = /^(\d+(?:\.\d+)?)([KMG]?)(?:i?B)?$/i.exec(text.trim());
  if (match === null) return undefined;
  const bytes = Number(match[1]) * (unit[(match[2] ?? "").toUpperCase()] ?? Number.NaN);
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

/** A readable size: `16 MiB`, `8 B`. */
export function sizeText(bytes: number): string {
  if (typeof bytes !== "number") throw invalid("sizeText", "bytes", textOf(bytes), "a number");
  for (const [prefix, size] of [["Gi", 2 ** 30] as const, ["Mi", 2 ** 20], ["Ki", 2 ** 10]]) {
    if (bytes >= Number(size) && bytes % Number(size) === 0)
      return `${bytes / Number(size)} ${prefix}B`;
  }
  return `${bytes} B`;
}

/**
 * The sizes of a sweep, least first.
 *
 * @throws InvalidArgumentError for a sweep that never ends or holds no size.
 */
export function sweepSizes(sweep: SizeSweep): number[] {
  const kinds = { min: true, max: true, factor: true, step: true } as const;
  assertOptions<SizeSweep>("bench", sweep, kinds, { path: "sizes" });
  const { min, max, factor, step = 0 } = sweep;
  check("min", Number.isSafeInteger(min) && min >= 0, min, "bytes of at least 0");
  check("max", Number.isSafeInteger(max) && max >= min, max, `bytes of at least ${min}`);
  if (min === max) return [min];
  if (factor !== undefined) {
    check("factor", Number.isFinite(factor) && factor >= 1.01, factor, "a number above 1");
    check("min", min >= 1, min, "bytes of at least 1, to be multiplied");
  } else {
    const isStep = Number.isSafeInteger(step) && step >= 1;
    check("step", isStep, sweep.step, "a step of whole bytes, or a factor");
  }
  const steps = factor === undefined ? Math.floor((max - min) / step) : 0;
  check("step", steps < maxSizes, step, `steps that make at most ${maxSizes} sizes`);
  const sizes: number[] = [];
  for (let size = min; size <= max; ) {
    sizes.push(size);
    // A factor close to 1 must still increase the size.
    size = factor === undefined ? size + step : Math.max(size + 1, Math.floor(size * factor));
  }
  return sizes;
}

/** Calls of a collective for the requested sizes. */
interface SizedCalls {
  readonly collective: MeasuredCollective;
  readonly dtypes: readonly DType[];
  readonly ranks: number;
  readonly skew: Skew;
}

/**
 * By dtype, the possible sizes of a sweep: one for each number of elements. A size below one element (of every rank's block,
 * where there are blocks) has no call, unless it is 0.
 *
 * @throws InvalidArgumentError when no dtype has any.
 */
export function callSizes(
  sweep: SizeSweep,
  { collective, dtypes, ranks, skew }: SizedCalls,
): readonly (readonly number[])[] {
  if (!collective.moves) return dtypes.map(() => [0]);
  const sizes = sweepSizes(sweep);
  const elementsIn = (elements: number): number =>
    collective.shape(elements, ranks, skew).sizeElements;
  const found = dtypes.map((dtype) => {
    const seen = new Set<number>();
    return sizes.filter((bytes) => {
      const elements = elementsIn(Math.floor(bytes / bytesOf(dtype)));
      if (seen.has(elements) || (elements === 0 && bytes > 0)) return false;
      seen.add(elements);
      return true;
    });
  });
  const least = (elementsIn(1) > 0 ? 1 : ranks) * Math.min(...dtypes.map(bytesOf));
  const isEmpty = found.length > 0 && found.every((each) => each.length === 0);
  check("max", !isEmpty, sweep.max, `bytes of at least ${least}`);
  return found;
}

function check(field: string, isValid: boolean, found: unknown, needs: string): void {
  if (isValid) return;
  throw invalid("sizes", field, textOf(found), needs);
}
