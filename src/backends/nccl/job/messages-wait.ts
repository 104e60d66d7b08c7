/** The ranks that keep messages waiting: each rank's words about its messages are followed from one to the next. */
import type { Ends, Message } from "../calls/made.ts";

/** A message with a wait, and the rank at its other end. */
interface Wanted {
  readonly message: Message;
  readonly by: number;
}

/**
 * Ranks of a communicator of so many that have not made the other ends of messages that `rank` has made together. Where all
 * have, those that keep one of these waiting until they have come together. `of` gives what a rank says.
 */
export async function keepWaiting(
  size: number,
  of: (rank: number) => Promise<Ends>,
  rank: number,
  together: readonly Message[],
): Promise<number[]> {
  const wantedBy = (asker: number, messages: readonly Message[]): Wanted[] =>
    messages.map((message) => ({ message, by: otherOf(size, message[0], asker) }));
  const heard = new Map<number, Heard>();
  let wanted = wantedBy(rank, together);
  while (wanted.length > 0) {
    const fresh = new Set(wanted.map(({ by }) => by).filter((by) => !heard.has(by)));
    const told = await Promise.all(Array.from(fresh, async (by) => [by, await of(by)] as const));
    for (const [by, { made, waiting }] of told) heard.set(by, { made: new Map(made), waiting });
    const lacks = ({ message: [pair, number], by }: Wanted): boolean =>
      (heard.get(by)?.made.get(pair) ?? 0) <= number;
    const missing = new Set(wanted.filter(lacks).map(({ by }) => by));
    if (missing.size > 0) return [...missing].sort((a, b) => a - b);
    const next = [...fresh].filter((by) => by !== rank);
    wanted = next.flatMap((by) => wantedBy(by, heard.get(by)?.waiting ?? []));
  }
  return [];
}

/** The words of a rank. */
interface Heard {
  readonly made: ReadonlyMap<number, number>;
  readonly waiting: readonly Message[];
}

/** The rank at the other end of a pair's messages. */
function otherOf(size: number, pair: number, rank: number): number {
  const [from, to] = [Math.floor(pair / size), pair % size];
  return from === rank ? to : from;
}
