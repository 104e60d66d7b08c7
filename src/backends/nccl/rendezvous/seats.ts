/** The ranks of a generation of a job, and their states. */
import type { Failure, Reply } from "./messages.ts";

/** A rank as the store sees it: a receiver of replies. */
export interface Peer {
  /** Host and process, for messages. */
  readonly label: string;
  send(reply: Reply): void;
}

/** A rank's place in a generation. */
export interface Seat {
  readonly peer: Peer;
  /** Its rank in the generation that was joined. */
  readonly initialRank: number;
  state: "here" | "lost" | "left";
  reason: string;
}

/** The required parts of a failure; the rest has defaults. */
export type Words = Pick<Failure, "code" | "headline" | "hint">;

/** A failure as it is sent: its required parts, and more where there are more. */
export type Told = Partial<Failure> & Words;

/** Ranks in a state. */
export function ranksWhere(
  seats: readonly Seat[],
  which: (seat: Seat, rank: number) => boolean,
): number[] {
  return seats.flatMap((seat, rank) => (which(seat, rank) ? [rank] : []));
}

/** The error of a wait for ranks that are gone. */
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
