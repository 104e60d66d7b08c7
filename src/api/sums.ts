/** Sums of the lengths of blocks. */

/** Offsets of blocks that follow one another. */
export function runningSum(counts: readonly number[]): number[] {
  let at = 0;
  return counts.map((count) => {
    const offset = at;
    at += count;
    return offset;
  });
}

/** Elements of all blocks together. */
export function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
