// What one peer's time is of another's, where all were measured in turn.

const middle = (sorted) => sorted[Math.floor((sorted.length - 1) / 2)];

/**
 * Of a row of results: the middle one of the ratios of neighbouring measurements, which a machine that is faster at times
 * changes less than the ratio of the medians. That is given where the measurements were not kept; nothing unless both ran.
 */
export function ratioOf({ peers }, ours, theirs) {
  const [own, other] = [peers[ours], peers[theirs]];
  if (own?.median_us === undefined || other?.median_us === undefined) return undefined;
  const [a, b] = [own.turns_us, other.turns_us];
  if (a === undefined || b === undefined || a.length !== b.length) {
    return own.median_us / other.median_us;
  }
  return middle(a.map((us, turn) => us / b[turn]).sort((x, y) => x - y));
}
