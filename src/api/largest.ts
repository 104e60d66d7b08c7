/**
 * The largest of some numbers, or `least` when none is larger. `Math.max(...numbers)` is the same for few of them; from
 * some 100,000 on its arguments overflow the stack.
 */
export function largest(
  numbers: Iterable<number>,
  least: number = Number.NEGATIVE_INFINITY,
): number {
  let most = least;
  for (const number of numbers) most = Math.max(most, number);
  return most;
}
