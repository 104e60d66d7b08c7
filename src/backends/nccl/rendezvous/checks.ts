/** Checks of what a caller gives, before anything is sent. */
import { invalid, textOf } from "../../../api/option-kinds.ts";
import { limits, longestMs } from "./limits.ts";
import { defaultWaitMs, type JoinOptions } from "./rendezvous.ts";

/** A whole number in a range. */
export function wholeNumber(
  call: string,
  field: string,
  value: unknown,
  least: number,
  most: number,
): number {
  const isFine = Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
  if (isFine) return value as number;
  throw invalid(call, field, textOf(value), `a whole number in ${least}..${most}`);
}

/** A time to wait. */
export function milliseconds(
  call: string,
  field: string,
  value: unknown,
  fallback: number = defaultWaitMs,
): number {
  if (value === undefined) return fallback;
  const isFine = typeof value === "number" && value >= 0 && value <= longestMs;
  if (isFine) return Math.ceil(value);
  throw invalid(call, field, textOf(value), `milliseconds in 0..${longestMs}`);
}

/** Text of limited length in UTF-8. */
export function shortText(call: string, field: string, value: unknown, mostBytes: number): string {
  const bytes = typeof value === "string" ? Buffer.byteLength(value) : 0;
  if (bytes >= 1 && bytes <= mostBytes) return value as string;
  throw invalid(call, field, textOf(value), `a text of 1 to ${mostBytes} bytes`);
}

/** A value for the store. */
export function valueBytes(call: string, value: unknown): Uint8Array {
  if (!(value instanceof Uint8Array)) throw invalid(call, "value", textOf(value), "a Uint8Array");
  if (value.byteLength <= limits.valueBytes) return value;
  const needs = `at most ${limits.valueBytes}`;
  throw invalid(call, "value", `${value.byteLength} bytes`, needs);
}

/** Arguments of a join, complete. */
export interface JoinArguments {
  readonly jobId: string;
  readonly rank: number;
  readonly size: number;
  readonly generation: number;
  readonly deadlineMs: number;
  readonly signal: AbortSignal | undefined;
}

/** Checks the arguments of a join. */
export function joinArguments(options: JoinOptions): JoinArguments {
  const jobId = shortText("join", "jobId", options.jobId, limits.jobIdBytes);
  const size = wholeNumber("join", "size", options.size, 1, limits.ranks);
  const rank = wholeNumber("join", "rank", options.rank, 0, size - 1);
  const generation = wholeNumber("join", "generation", options.generation ?? 0, 0, 2 ** 31);
  const deadlineMs = milliseconds("join", "deadlineMs", options.deadlineMs);
  return { jobId, rank, size, generation, deadlineMs, signal: options.signal };
}
