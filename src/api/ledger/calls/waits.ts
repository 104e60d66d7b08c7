/** What is waited for on one communicator: the open calls, and the ranks without which they cannot go on. */
import type { CommInfo } from "../../backend.ts";
import { Batch } from "./batch.ts";
import type { Lines } from "./lines.ts";
import type { Posting } from "./posting.ts";

/** What a rank waits for on one communicator. */
export interface OpenWait {
  readonly posting: Posting;
  /** Name of the communicator. */
  readonly comm: string;
  /** World ranks without whose call it cannot go on. */
  readonly missing: readonly number[];
}

/** What a rank waits for at the head of its line; `undefined` when it has no open call. */
export function headWait(comm: CommInfo, lines: Lines, rank: number): OpenWait | undefined {
  const head = lines.head(rank);
  if (head === undefined) return undefined;
  const world = (member: number): number => comm.ranks[member] as number;
  if (head instanceof Batch) {
    const [posting] = head.open;
    if (posting === undefined) return undefined;
    const missing = [...new Set(head.open.map(({ peer }) => world(peer)))];
    return { posting, comm: comm.name, missing };
  }
  const posting = head.postings[rank] as Posting;
  const away = comm.ranks.flatMap((_, member) =>
    lines.head(member) === head ? [] : [world(member)],
  );
  return { posting, comm: comm.name, missing: away };
}

/** What is waited for through every rank's end: one wait for each program that has called there. */
export function openWaits(comm: CommInfo, lines: Lines): OpenWait[] {
  return comm.ranks.flatMap((_, rank) => {
    const head = headWait(comm, lines, rank);
    if (head === undefined) return [];
    const askers = new Set<number>();
    return lines.postings(rank).flatMap((posting) => {
      const { asker, pending } = posting.op;
      if (!pending || askers.has(asker)) return [];
      askers.add(asker);
      return { ...head, posting };
    });
  });
}
