/** Who waits for whom: the report of a deadlock, a stall or a run that ended with calls left open. */
import { errorMessage, type Row, ranksText } from "../error-text.ts";
import { DeadlockError, type RankWait } from "../errors.ts";
import type { LiveResources } from "./resources.ts";
import type { Slot } from "./slot.ts";

/** What the report needs to know about the world. */
export interface Situation {
  readonly size: number;
  finished(rank: number): boolean;
  /** Calls that lack some rank, oldest first, of every communicator. */
  readonly openSlots: readonly Slot[];
}

/** What every rank of the world is doing, by rank. */
export function waitsOf({ size, finished, openSlots }: Situation): RankWait[] {
  return Array.from({ length: size }, (_, rank): RankWait => {
    const slot = openSlots.find((open) => open.postings.some((p) => p?.op.worldRank === rank));
    const posting = slot?.postings.find((p) => p?.op.worldRank === rank);
    if (slot === undefined || posting === undefined) {
      return { rank, state: finished(rank) ? "finished" : "waits", missing: [] };
    }
    return {
      rank,
      state: finished(rank) ? "finished" : "waits",
      comm: slot.comm.name,
      collective: posting.call.collective,
      call: slot.number,
      missing: slot.missing().map((member) => slot.comm.ranks[member] as number),
    };
  });
}

/** The rows of a report, one a rank. */
export function waitRows(waits: readonly RankWait[]): Row[] {
  return waits.map(({ rank, state, comm, collective, call, missing }) => {
    if (collective === undefined)
      return [`rank ${rank}`, state === "finished" ? "has finished" : "runs", "", ""];
    const what = `${state === "finished" ? "left open" : "waits in"} ${collective}`;
    return [`rank ${rank}`, what, `call ${call} on "${comm}"`, `for ${ranksText(missing)}`];
  });
}

/** The error that `rank` gets; `culprits` are the ranks everyone else waits for. */
export function deadlockError(waits: readonly RankWait[], rank: number): DeadlockError {
  const mine = waits[rank];
  const missing = culprits(waits);
  const done = missing.filter((other) => waits[other]?.state === "finished");
  const headline =
    done.length > 0
      ? `deadlock: ${ranksText(done)} finished without making a call that others wait for`
      : `deadlock: every unfinished rank waits for another one`;
  return new DeadlockError(
    {
      headline,
      table: waitRows(waits),
      hint: "every rank must make the same calls on a communicator, in the same order",
    },
    {
      rank,
      size: waits.length,
      comm: mine?.comm,
      collective: mine?.collective,
      call: mine?.call,
      ranks: missing,
      waits,
    },
  );
}

function culprits(waits: readonly RankWait[]): number[] {
  const missing = new Set(waits.flatMap((wait) => wait.missing));
  return [...missing].sort((a, b) => a - b);
}

/** The report of a stall, ready to print. */
export function stallText(waits: readonly RankWait[], alive: LiveResources | undefined): string {
  const others = alive === undefined ? "this runtime cannot tell" : [...alive.keys()].join(", ");
  return errorMessage({
    headline: "stalled: every rank waits, and only something else can wake them",
    table: waitRows(waits),
    hint: `still alive: ${others}`,
  });
}
