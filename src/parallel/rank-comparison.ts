/**
 * Comparison of descriptions between ranks: differences are refused by name on every rank.
 *
 * A description is a table of named lines. Ranks compare a digest first, so that equality costs a few bytes. Only after a
 * difference they exchange the lines, which show the differing name and its ranks.
 */

import { numbersText, outliers, rankRows, ranksText } from "../api/error-text.ts";
import { CollectiveMismatchError, type Communicator } from "../api/index.ts";
import { factsOf } from "./argument-checks.ts";
import { gatherTexts, gatherWords } from "./host-collectives.ts";

/** The compared values. */
export interface Description {
  /** The caller, for errors, such as `DataParallel`. */
  readonly action: string;
  /** The kind of a name, such as `parameter`. */
  readonly kind: string;
  readonly lines: ReadonlyMap<string, string>;
  readonly hint: string;
}

/**
 * Refuses, on every rank, descriptions that differ between ranks; the order of lines does not matter.
 *
 * @throws CollectiveMismatchError naming the first name (in order) that differs, with every rank's line.
 */
export async function assertSameOnRanks(
  comm: Communicator,
  description: Description,
): Promise<void> {
  const sorted = [...description.lines].sort(([a], [b]) => (a < b ? -1 : 1));
  const text = JSON.stringify(sorted);
  const digests = await gatherWords(comm, digestOf(text));
  if (digests.every((digest) => digest.join() === digests[0]?.join())) return;
  const tables = (await gatherTexts(comm, text)).map(
    (each) => new Map(JSON.parse(each) as [string, string][]),
  );
  throw rankMismatch(comm, description, tables);
}

function rankMismatch(
  comm: Communicator,
  { action, kind, hint }: Description,
  tables: readonly ReadonlyMap<string, string>[],
): CollectiveMismatchError {
  const names = [...new Set(tables.flatMap((table) => [...table.keys()]))].sort((a, b) =>
    a < b ? -1 : 1,
  );
  const valuesOf = (name: string): string[] => tables.map((table) => table.get(name) ?? "absent");
  const name = names.find((each) => new Set(valuesOf(each)).size > 1) ?? "";
  const values = valuesOf(name);
  const ranks = outliers(values);
  const rows = values.map((value, each) => ({ rank: each, cells: [value] }));
  return new CollectiveMismatchError(
    {
      headline: `${action}: ${kind} "${name}": ${ranksText(ranks)} ${ranks.length === 1 ? "differs" : "differ"} from the others`,
      table: [["rank", name], ...rankRows(rows, numbersText)],
      hint,
    },
    { ...factsOf(comm), ranks, field: name, values },
  );
}

/** 96 bits of a text: its length and two independent multiplicative hashes. */
function digestOf(text: string): number[] {
  let first = 0x811c9dc5;
  let second = 0x9e3779b9;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    first = Math.imul(first ^ unit, 0x01000193);
    second = Math.imul((second << 5) ^ (second >>> 27) ^ unit, 0x85ebca6b);
  }
  return [text.length, first >>> 0, second >>> 0];
}
