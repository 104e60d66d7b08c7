/** Indexes that callers give: a fraction would silently mean something else in packed integers. */
import { InvalidArgumentError } from "../api/errors.ts";
import { textOf } from "../api/option-kinds.ts";

/** Throws, naming the helper and the field, unless `value` is an integer from 0 up to `end`, exclusive. */
export function assertIndex(helper: string, field: string, value: unknown, end?: number): void {
  const isIndex = Number.isSafeInteger(value) && (value as number) >= 0;
  if (isIndex && (end === undefined || (value as number) < end)) return;
  const needed = end === undefined ? "an integer of at least 0" : `an integer in 0..${end - 1}`;
  throw new InvalidArgumentError(
    { headline: `${helper}: ${field}: found ${textOf(value)}, needs ${needed}` },
    { field },
  );
}
