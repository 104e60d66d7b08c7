// The ratio of two peers' times, where all were measured in turn.

/** Of an even number the one between the two in the middle: neither peer is to gain from it. */
function middle(sorted) {
  const at = sorted.length / 2;
  if (!Number.isInteger(at)) return sorted[Math.floor(at)];
  return Math.sqrt(sorted[at - 1] * sorted[at]);
}

/** The ratios of neighbouring measurements; none where they were not made together. */
export function ratiosOf(ours, theirs) {
  if (ours === undefined || theirs === undefined || ours.length !== theirs.length) return [];
  return ours.map((us, turn) => us / theirs[turn]);
}

/**
 * The ratio of two peers in a row of results: the median of the ratios of neighbouring measurements. A machine whose speed
 * changes moves it less than the ratio of the medians, which stands in where the measurements were not kept. `undefined` unless
 * both ran.
 */
export function ratioOf({ peers }, ours, theirs) {
  const [own, other] = [peers[ours], peers[theirs]];
  if (own?.median_us === undefined || other?.median_us === undefined) return undefined;
  const ratios = ratiosOf(own.turns_us, other.turns_us).sort((x, y) => x - y);
  return ratios.length === 0 ? own.median_us / other.median_us : middle(ratios);
}
