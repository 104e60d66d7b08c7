/** The waits on one communicator: the open calls, and the ranks without which they cannot go on. */
import type { CommInfo } from "../../backend.ts";
import { Batch } from "./batch.ts";
import type { Entry, Lines } from "./lines.ts";
import type { Posting } from "./posting.ts";

/** The wait of a rank on one communicator. */
export interface OpenWait {
  readonly posting: Posting;
  /** Name of the communicator. */
  readonly comm: string;
  /** World ranks with missing calls. */
  readonly missing: readonly number[];
}

/** The wait of a rank at the head of its line; `undefined` when it has no open call. */
export function headWait(comm: CommInfo, lines: Lines, rank: number): OpenWait | undefined {
  const head = lines.head(rank);
  const posting = head instanceof Batch ? head.open[0] : head?.postings[rank];
  if (head === undefined || posting === undefined) return undefined;
  return { posting, comm: comm.name, missing: missingAt(comm, lines, head) };
}

/** World ranks without which a call at the head of a line cannot go on. */
function missingAt({ ranks }: CommInfo, lines: Lines, head: Entry): readonly number[] {
  if (head instanceof Batch) {
    return [...new Set(head.open.map(({ peer }) => ranks[peer] as number))];
  }
  return ranks.filter((_, member) => lines.head(member) !== head);
}

/** The waits through every rank's end: one for each program that has called there. */
export function openWaits(comm: CommInfo, lines: Lines): OpenWait[] {
  // Ranks that wait in one collective call lack the same ranks, and share one list of them.
  const missingOf = new Map<Entry, readonly number[]>();
  return comm.ranks.flatMap((_, rank) => {
    const head = lines.head(rank);
    if (head === undefined || (head instanceof Batch && head.isDone)) return [];
    const postings = lines.postings(rank).filter(({ op }) => op.pending);
    if (postings.length === 0) return [];
    const missing = missingOf.get(head) ?? missingAt(comm, lines, head);
    missingOf.set(head, missing);
    const askers = new Set<number>();
    return postings.flatMap((posting) => {
      const { asker } = posting.op;
      if (askers.has(asker)) return [];
      askers.add(asker);
      return { posting, comm: comm.name, missing };
    });
  });
}
