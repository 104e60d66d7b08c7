/** Names similar to an unknown one: messages list them first. */

/** Those of the names that are written nearly alike, the nearest first. */
export function nearest(name: string, known: readonly string[]): readonly string[] {
  return known
    .map((each) => ({ each, edits: editDistance(name.toLowerCase(), each.toLowerCase()) }))
    .filter(({ each, edits }) => edits <= Math.max(name.length, each.length) / 3)
    .sort((a, b) => a.edits - b.edits)
    .map(({ each }) => each);
}

/** All of the names in a sentence, those `first` that are written nearly alike. */
export function namesText(
  name: string,
  known: readonly string[],
  first: readonly string[] = nearest(name, known),
): string {
  return [...new Set([...first, ...known])].join(", ");
}

/** Number of letters to insert, leave out or change to make one word of another; one for a word that is only its beginning. */
function editDistance(a: string, b: string): number {
  if (a.length > 2 && b.length > a.length && b.startsWith(a)) return 1;
  let before = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (const [row, letter] of [...a].entries()) {
    const after = [row + 1];
    for (const [column, other] of [...b].entries()) {
      const changed = (before[column] as number) + (letter === other ? 0 : 1);
      after.push(
        Math.min(changed, (before[column + 1] as number) + 1, (after[column] as number) + 1),
      );
    }
    before = after;
  }
  return before[b.length] as number;
}
