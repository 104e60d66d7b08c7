/**
 * Do all ranks describe the same thing? Found out together, and refused by name on every rank.
 *
 * A description is a table of named lines. Ranks compare a digest first, so that agreement costs a few bytes; only when it
 * differs do they exchange the lines, which show the differing name and its ranks.
 */

import { numbersText, rankRows, ranksText } from "../api/error-text.ts";
import { CollectiveMismatchError, type Communicator } from "../api/index.ts";
import { largest } from "../api/largest.ts";

/** Every rank's text, by rank. Costs two all-gathers. */
export async function gatherTexts(comm: Communicator, text: string): Promise<string[]> {
  const bytes = new TextEncoder().encode(text);
  const lengths = await gatherWords(comm, [bytes.length]);
  const counts = lengths.map(([length]) => length as number);
  const total = counts.reduce((sum, each) => sum + each, 0);
  const send = comm.alloc("uint8", bytes.length).copyFrom(bytes);
  const recv = comm.alloc("uint8", total);
  try {
    await comm.allGatherv({ send, recv, recvCounts: counts });
    const all = await recv.toHost();
    let end = 0;
    return counts.map((count) => {
      end += count;
      return new TextDecoder().decode(all.subarray(end - count, end));
    });
  } finally {
    send.dispose();
    recv.dispose();
  }
}

/** Every rank's words, by rank; all ranks give as many. Costs one all-gather. */
export async function gatherWords(
  comm: Communicator,
  words: readonly number[],
): Promise<number[][]> {
  const send = comm.alloc("uint32", words.length).copyFrom(Uint32Array.from(words));
  const recv = comm.alloc("uint32", words.length * comm.size);
  try {
    await comm.allGather({ send, recv });
    const all = [...(await recv.toHost())];
    return Array.from({ length: comm.size }, (_, rank) =>
      all.slice(rank * words.length, (rank + 1) * words.length),
    );
  } finally {
    send.dispose();
    recv.dispose();
  }
}

/** The compared values. */
export interface Description {
  /** The user of the agreement, such as `DataParallel`. */
  readonly action: string;
  /** The kind of a name, such as `parameter`. */
  readonly kind: string;
  readonly lines: ReadonlyMap<string, string>;
  readonly hint: string;
}

/**
 * Refuses, on every rank, what ranks describe differently; the order of lines does not matter.
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
  const { rank, size } = comm;
  const ranks = outliers(values);
  const rows = values.map((value, each) => ({ rank: each, cells: [value] }));
  return new CollectiveMismatchError(
    {
      headline: `${action}: ${kind} "${name}": ${ranksText(ranks)} ${ranks.length === 1 ? "differs" : "differ"} from the others`,
      table: [["rank", name], ...rankRows(rows, numbersText)],
      hint,
    },
    { rank, size, comm: comm.name, ranks, field: name, values },
  );
}

/** Ranks with another value than the most common one; of equally common ones the first is the norm. */
function outliers(values: readonly string[]): number[] {
  const count = (value: string): number => values.filter((each) => each === value).length;
  const most = largest(values.map(count));
  const norm = values.find((value) => count(value) === most);
  return values.flatMap((value, rank) => (value === norm ? [] : [rank]));
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
