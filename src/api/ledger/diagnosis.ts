/** Who waits for whom: the report of a deadlock, a stall or a run that ended with calls left open. */
import { errorMessage, type Row, ranksText } from "../error-text.ts";
import { DeadlockError, type RankWait } from "../errors.ts";
import type { HeadWait } from "./ledger.ts";
import type { LiveResources } from "./resources.ts";

/** What the report needs to know about the world. */
export interface Situation {
  readonly size: number;
  finished(rank: number): boolean;
  /** What a world rank waits for on some communicator, the one it awaits first. */
  headWait(rank: number): HeadWait | undefined;
}

/** What every rank of the world is doing, by rank. */
export function waitsOf({ size, finished, headWait }: Situation): RankWait[] {
  return Array.from({ length: size }, (_, rank): RankWait => {
    const state = finished(rank) ? "finished" : "waits";
    const wait = headWait(rank);
    if (wait === undefined) return { rank, state, missing: [] };
    const { posting, missing, comm } = wait;
    const { op, call } = posting;
    return { rank, state, comm, collective: call.collective, call: op.call, missing };
  });
}

/** The rows of a report, one a rank. */
function waitRows(waits: readonly RankWait[]): Row[] {
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
