/** Checks of the arguments of exported functions: a wrong one is refused by field, before anything reads it. */
import { type SpecifiedCollective, specifications } from "../api/collectives/index.ts";
import { countText } from "../api/error-text.ts";
import { invalid, textOf } from "../api/option-kinds.ts";

/** Refuses an argument, unless it is what it must be. */
export function assertArgument(
  is: boolean,
  subject: string,
  field: string,
  found: unknown,
  needed: string,
): void {
  if (!is) throw invalid(subject, field, textOf(found), needed);
}

/** Needs an integer in `least..most`. */
export function assertInteger(
  subject: string,
  field: string,
  found: unknown,
  least: number,
  most: number,
): void {
  const is = Number.isSafeInteger(found) && (found as number) >= least && (found as number) <= most;
  if (!is) throw invalid(subject, field, textOf(found), `an integer in ${least}..${most}`);
}

/** Needs a number of at least 0. */
export function assertAmount(subject: string, field: string, found: unknown): void {
  const is = Number.isFinite(found) && (found as number) >= 0;
  assertArgument(is, subject, field, found, "a number of at least 0");
}

/** Needs a number above 0. */
export function assertPositive(subject: string, field: string, found: unknown): void {
  const is = Number.isFinite(found) && (found as number) > 0;
  assertArgument(is, subject, field, found, "a number above 0");
}

/** Needs lengths: so many, or any number of them. */
export function assertCounts(
  subject: string,
  field: string,
  found: unknown,
  length?: number,
): void {
  const isWrong = (each: unknown): boolean =>
    !(Number.isSafeInteger(each) && (each as number) >= 0);
  const hasLength = Array.isArray(found) && (length === undefined || found.length === length);
  // Holes of an array are read by a search alone.
  if (hasLength && found.findIndex(isWrong) < 0) return;
  const some = length === undefined ? "integers" : countText(length, "integer");
  throw invalid(subject, field, textOf(found), `an array of ${some} of at least 0`);
}

/** Lanes of ranks and channels: lane l = rank · channels + channel begins at `starts[l]` and ends at `starts[l + 1]`. */
interface Lanes {
  readonly ranks: number;
  readonly channels: number;
  readonly starts: Int32Array;
}

/** Needs at least one rank and channel, and the beginning of each lane; `field` holds the lanes. */
export function assertLanes(
  subject: string,
  field: string,
  { ranks, channels, starts }: Lanes,
): void {
  assertInteger(subject, `${field}.ranks`, ranks, 1, Number.MAX_SAFE_INTEGER);
  assertInteger(subject, `${field}.channels`, channels, 1, Number.MAX_SAFE_INTEGER);
  if (starts.length === ranks * channels + 1) return;
  const needed = `one for each of ${ranks * channels} lanes and the end`;
  throw invalid(subject, `${field}.starts`, countText(starts.length, "number"), needed);
}

const collectives = `one of ${Object.keys(specifications).join(", ")}`;

/** Needs a collective with a specification. */
export function assertCollective(
  subject: string,
  found: unknown,
): asserts found is SpecifiedCollective {
  const is = typeof found === "string" && Object.hasOwn(specifications, found);
  assertArgument(is, subject, "collective", found, collectives);
}

/** The kinds of some fields, as `typeof` names them. */
type FieldKinds = Readonly<Record<string, "function" | "number" | "object" | "string">>;

/** True for an object that has these fields, each of its kind. */
export function hasFields(found: unknown, kinds: FieldKinds): boolean {
  if (typeof found !== "object" || found === null) return false;
  const fields = found as Readonly<Record<string, unknown>>;
  for (const name in kinds) if (typeof fields[name] !== kinds[name]) return false;
  return true;
}
