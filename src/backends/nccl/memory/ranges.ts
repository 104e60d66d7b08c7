/** Ranges of bytes: their union, what they have in common, and what is left of some without others. */

/** Bytes from `begin` to `end` (exclusive). */
export interface Range {
  readonly begin: number;
  readonly end: number;
}

/** Ranges that overlap as one, ascending. */
export function united(ranges: readonly Range[]): Range[] {
  const all: Range[] = [];
  for (const { begin, end } of [...ranges].sort((a, b) => a.begin - b.begin)) {
    const last = all.at(-1);
    if (last === undefined || begin >= last.end) all.push({ begin, end });
    else all[all.length - 1] = { begin: last.begin, end: Math.max(last.end, end) };
  }
  return all;
}

/** The common part of `ranges` and another one. */
export function common(ranges: readonly Range[], other: Range): Range[] {
  return ranges.flatMap(({ begin, end }) => {
    const range = { begin: Math.max(begin, other.begin), end: Math.min(end, other.end) };
    return range.begin < range.end ? [range] : [];
  });
}

/** The rest of `ranges` without another one. */
export function without(ranges: readonly Range[], other: Range): Range[] {
  return ranges.flatMap((range) => {
    const before = { begin: range.begin, end: Math.min(range.end, other.begin) };
    const after = { begin: Math.max(range.begin, other.end), end: range.end };
    return [before, after].filter(({ begin, end }) => begin < end);
  });
}
