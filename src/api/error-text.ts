/**
 * The layout of an error's text: one headline that names the action, an aligned table of facts, one hint.
 *
 * Codes and fields of an error are API; its text is not, and may become clearer at any time.
 */

import { getOrCreate } from "./get-or-create.ts";

/** A table row: cells that are padded to the widest of their column. */
export type Row = readonly (string | number | bigint)[];

/** The parts of an error's text. */
export interface ErrorText {
  readonly headline: string;
  readonly table?: readonly Row[] | undefined;
  readonly hint?: string | undefined;
}

/** Joins headline, table and hint into a message, with control characters of names and of file contents escaped. */
export function errorMessage(text: ErrorText): string {
  return getOrCreate(messages, text, laidOut);
}

/** Messages of texts: the errors of all ranks may share one, which has a line for each rank. */
const messages = new WeakMap<ErrorText, string>();

function laidOut({ headline, table = [], hint }: ErrorText): string {
  const lines = [headline];
  for (const line of alignedTable(table)) lines.push(`  ${line}`);
  if (hint !== undefined) lines.push(`hint: ${hint}`);
  return escaped(lines.join("\n"));
}

/** The name of a call. */
export interface NamedCall {
  readonly collective?: string | undefined;
  /** -1 for one that has no number. */
  readonly call?: number | undefined;
  /** Name of its communicator. */
  readonly comm?: string | undefined;
}

/** The beginning of a headline that names a call: `allReduce: call 3 on "world": `, or `allReduce on "world": `. */
export function callText({ collective, call = -1, comm }: NamedCall = {}): string {
  if (collective === undefined || comm === undefined) return "";
  return call < 0 ? `${collective} on "${comm}": ` : `${collective}: call ${call} on "${comm}": `;
}

/** A noun with its article. One that begins with u has the sound of `Uint8Array`. */
export function withArticle(noun: string): string {
  return `${/^[aeio]/i.test(noun) ? "an" : "a"} ${noun}`;
}

/** Control characters that a terminal obeys, beside tabs and line feeds. */
const controls = /[^\P{Cc}\t\n]/gu;

/** A text in which some characters, controls when left out, are escaped: `\u001b`. */
export function escaped(text: string, characters = controls): string {
  return text.replaceAll(
    characters,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Pads every column to its widest cell. */
export function alignedTable(rows: readonly Row[]): string[] {
  const widths: number[] = [];
  for (const row of rows) {
    row.forEach((cell, column) => {
      widths[column] = Math.max(widths[column] ?? 0, String(cell).length);
    });
  }
  return rows.map((row) =>
    row
      .map((cell, column) => String(cell).padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

/** The cells about one rank. */
export interface RankRow {
  readonly rank: number;
  readonly cells: Row;
}

/** Ranks that have a line each. */
const maxRankLines = 16;

/**
 * Rows about ranks, which their first cell names: `rank 3`, or a number below a heading (`numbersText`). Of more than 16
 * ranks those with equal cells share a row.
 */
export function rankRows(rows: readonly RankRow[], naming = ranksText): Row[] {
  if (rows.length > maxRankLines) return sharedRows(rows, naming);
  return rows.map(({ rank, cells }) => [naming([rank]), ...cells]);
}

/** Rows of a table; an error's facts hold all of them. */
const maxSharedRows = 32;

/** Rows about ranks, in the order of their first ones: ranks with equal cells share a row, and so do those past 32 rows. */
export function sharedRows(rows: readonly RankRow[], naming = ranksText): Row[] {
  const groups = new Map<string, { readonly cells: Row; readonly ranks: number[] }>();
  for (const { rank, cells } of rows) {
    getOrCreate(groups, cells.join("\n"), () => ({ cells, ranks: [] })).ranks.push(rank);
  }
  const rowOf = (ranks: readonly number[], cells: Row): Row => {
    return [naming([...ranks].sort((a, b) => a - b)), ...cells];
  };
  const all = [...groups.values()];
  const shown = all.slice(0, maxSharedRows).map(({ ranks, cells }) => rowOf(ranks, cells));
  const more = all.slice(maxSharedRows);
  if (more.length === 0) return shown;
  return [
    ...shown,
    rowOf(
      more.flatMap(({ ranks }) => ranks),
      [countText(more.length, "more row")],
    ),
  ];
}

/** `1 rank`, `8 ranks`. */
export function countText(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** `rank 3`, `ranks 0, 2, 5` or `ranks 4..7, 9`. */
export function ranksText(ranks: readonly number[]): string {
  if (ranks.length === 0) return "no rank";
  return `${ranks.length === 1 ? "rank" : "ranks"} ${numbersText(ranks)}`;
}

/** Numbers and runs of numbers that are listed; an error's facts hold all of them. */
export const maxListed = 32;

/** `0, 2, 5` or `4..7, 9`. */
export function numbersText(numbers: readonly number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < numbers.length; ) {
    if (parts.length === maxListed) return `${parts.join(", ")} and ${numbers.length - at} more`;
    let end = at + 1;
    while (numbers[end] === (numbers[end - 1] as number) + 1) end++;
    const isRun = end - at > 2;
    parts.push(isRun ? `${numbers[at]}..${numbers[end - 1]}` : `${numbers[at]}`);
    at = isRun ? end : at + 1;
  }
  return parts.join(", ");
}

/** Ranks with another value than the most common one; of equally common values the one seen first is the norm. */
export function outliers(values: readonly string[]): number[] {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  let norm = values[0] ?? "";
  for (const [value, count] of counts) {
    if (count > (counts.get(norm) ?? 0)) norm = value;
  }
  return values.flatMap((value, rank) => (value === norm ? [] : [rank]));
}

/** The first line of an error's message, or of any other thrown value. Programs may throw anything, also what has no text. */
export function firstLine(error: unknown): string {
  try {
    const { message } = Object(error) as Partial<Error>;
    return String(message ?? error).split("\n", 1)[0] as string;
  } catch {
    return `${typeof error} that has no text`;
  }
}

/** A thrown value as text; its type where it has none, as programs may throw anything. */
export function errorText(error: unknown): string {
  try {
    return String(error);
  } catch {
    return typeof error;
  }
}
