/** Who sits in a generation of a job: its ranks, and what became of them. */
import type { Failure, Reply } from "./messages.ts";

/** A rank as the store sees it: somebody who takes replies. */
export interface Peer {
  /** Host and process, for messages. */
  readonly label: string;
  send(reply: Reply): void;
}

/** A rank's place in a generation. */
export interface Seat {
  readonly peer: Peer;
  /** Its rank in the generation that was joined. */
  readonly origin: number;
  state: "here" | "lost" | "left";
  reason: string;
}

/** What a failure must say; the rest has defaults. */
export type Words = Pick<Failure, "code" | "headline" | "hint">;

/** A failure as it is told: what it must say, and more where there is more. */
export type Told = Partial<Failure> & Words;

/** Ranks whose seat is such. */
export function ranksWhere(
  seats: readonly Seat[],
  which: (seat: Seat, rank: number) => boolean,
): number[] {
  return seats.flatMap((seat, rank) => (which(seat, rank) ? [rank] : []));
}

/** What a wait fails with that ranks were needed for which are gone. */
export function goneWords(seats: readonly Seat[], what: string, gone: readonly number[]): Told {
  const seat = seats[gone[0] ?? 0];
  const how = seat?.state === "left" ? "has left" : `was lost: ${seat?.reason}`;
  return {
    code: "gone",
    headline: `${what}: rank ${gone[0]} ${how}`,
    hint: "comm.rebuild() goes on with those that are left",
    ranks: gone,
  };
}
