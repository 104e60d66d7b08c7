/** Without whom messages cannot go on: what the ranks of a communicator say of theirs is followed from one to the next. */
import type { Ends, Message } from "./made.ts";

/** A message that somebody waits for, and the rank at its other end. */
interface Wanted {
  readonly message: Message;
  readonly by: number;
}

/** What the ranks of a communicator of so many say. */
export interface Words {
  readonly size: number;
  of(rank: number): Promise<Ends>;
}

/**
 * Ranks that have not made the other ends of messages that a rank has made together, or before them. Where all have, those that
 * keep one of these waiting in turn.
 */
export async function keepWaiting(
  { size, of }: Words,
  rank: number,
  together: readonly Message[],
): Promise<number[]> {
  /** So many of a rank's open messages, in the order of its stream, were looked at. */
  const looked = new Map<number, number>();
  const wantedBy = (asker: number, batches: Ends["open"]): Wanted[] => {
    const fresh = batches.slice(looked.get(asker) ?? 0).flat();
    looked.set(asker, Math.max(looked.get(asker) ?? 0, batches.length));
    return fresh.map((message) => ({ message, by: otherOf(size, message[0], asker) }));
  };
  const { open } = await of(rank);
  // A group that stands in line is not among the open ones.
  const own = until(open, together[0] as Message);
  let wanted = wantedBy(rank, own.length > 0 ? own : [...open, together]);
  while (wanted.length > 0) {
    const told = await Promise.all(
      wanted.map(async (each) => ({ ...each, ends: await of(each.by) })),
    );
    const missing = told.filter(({ message, ends }) => !isMade(ends, message));
    if (missing.length > 0) return [...new Set(missing.map(({ by }) => by))].sort((a, b) => a - b);
    wanted = told.flatMap(({ message, by, ends }) => wantedBy(by, until(ends.open, message)));
  }
  return [];
}

/** What must be done before a message is: those made together with it, and before. Nothing where it is done. */
function until(open: Ends["open"], [pair, number]: Message): Ends["open"] {
  const isIt = (other: Message): boolean => other[0] === pair && other[1] === number;
  return open.slice(0, open.findIndex((batch) => batch.some(isIt)) + 1);
}

function isMade({ made }: Ends, [pair, number]: Message): boolean {
  return made.some(([each, count]) => each === pair && count > number);
}

/** The rank at the other end of a pair's messages. */
function otherOf(size: number, pair: number, rank: number): number {
  const [from, to] = [Math.floor(pair / size), pair % size];
  return from === rank ? to : from;
}
