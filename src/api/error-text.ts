/**
 * How the text of an error is laid out: one headline a person can act on, an aligned table of facts, one hint.
 *
 * Codes and fields of an error are API; its text is not, and may become clearer at any time.
 */

/** A table row: cells that are padded to the widest of their column. */
export type Row = readonly (string | number | bigint)[];

/** The parts of an error's text. */
export interface ErrorText {
  readonly headline: string;
  readonly table?: readonly Row[];
  readonly hint?: string | undefined;
}

/** Joins headline, table and hint into a message. */
export function errorMessage({ headline, table = [], hint }: ErrorText): string {
  const lines = [headline];
  for (const line of alignedTable(table)) lines.push(`  ${line}`);
  if (hint !== undefined) lines.push(`hint: ${hint}`);
  return lines.join("\n");
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

/** `rank 3`, `ranks 0, 2, 5` or `ranks 4..7`. */
export function ranksText(ranks: readonly number[]): string {
  const first = ranks[0];
  const last = ranks.at(-1);
  if (first === undefined || last === undefined) return "no rank";
  if (ranks.length === 1) return `rank ${first}`;
  const run = ranks.every((rank, index) => rank === first + index);
  return run && ranks.length > 2 ? `ranks ${first}..${last}` : `ranks ${ranks.join(", ")}`;
}
