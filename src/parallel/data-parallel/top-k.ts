/** The k elements of the largest magnitude, found without sorting all of them. */

/**
 * Indexes of the `k` elements of the largest magnitude, ascending. Of equal magnitudes the lower indexes are taken; a NaN
 * counts as infinitely large, so that it is never left behind unseen.
 */
export function largestIndexes(values: Float32Array | Float64Array, k: number): Uint32Array {
  const magnitudes = Float64Array.from(values, magnitude);
  const least = k === 0 ? Number.POSITIVE_INFINITY : nthLargest(magnitudes, k);
  const chosen = new Uint32Array(k);
  let above = 0;
  for (const value of values) if (magnitude(value) > least) above++;
  // Those above the k-th all belong to it; the rest is filled with its equals, from the left.
  let equals = k - above;
  let count = 0;
  for (let at = 0; at < values.length && count < k; at++) {
    const size = magnitude(values[at] as number);
    if (size < least || (size === least && equals === 0)) continue;
    if (size === least) equals--;
    chosen[count++] = at;
  }
  return chosen;
}

function magnitude(value: number): number {
  return Number.isNaN(value) ? Number.POSITIVE_INFINITY : Math.abs(value);
}

/** The n-th largest value, n from 1; reorders the values (Hoare's selection, pivot in the middle). */
function nthLargest(values: Float64Array, n: number): number {
  const target = n - 1;
  let low = 0;
  let high = values.length - 1;
  while (low < high) {
    const pivot = values[(low + high) >>> 1] as number;
    let left = low;
    let right = high;
    while (left <= right) {
      while ((values[left] as number) > pivot) left++;
      while ((values[right] as number) < pivot) right--;
      if (left > right) break;
      const swapped = values[left] as number;
      values[left++] = values[right] as number;
      values[right--] = swapped;
    }
    if (target <= right) high = right;
    else if (target >= left) low = left;
    else break;
  }
  return values[target] as number;
}
