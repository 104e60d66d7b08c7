/** Faults that a simulation injects on request, at fixed calls, never at random. */
import type { RankCall } from "../../api/backend-entry.ts";
import { InjectedFaultError, InvalidArgumentError } from "../../api/index.ts";
import { assertOptions, assertRule, integer } from "../../api/option-kinds.ts";

/** A rank's call that fails when it is made. */
export interface Fault {
  /** Rank in the first generation of the world, which must have that rank. The rank keeps this number here after a rebuild. */
  readonly rank: number;
  /**
   * The number of the rank's call, counted from 0 over all communicators of the world and its rebuilt successors. A `sendRecv`
   * and a replay count as one call. A `group` and a replay of messages count each of their calls.
   */
  readonly call: number;
}

/**
 * Makes call number `call` of a rank fail with an `InjectedFaultError` when it is made; pass it to `sim({ faults })`.
 *
 * The call, with its whole `group` or replay, is not posted and uses up no number of its communicator. A rank that catches the
 * error and repeats the call stays in step. A fault strikes once. After `world.rebuild` it still applies to the same rank and
 * the same call. Ranks have their numbers of the first world, and the count of calls continues. Faults of excluded ranks are
 * dropped.
 *
 * @throws InvalidArgumentError for an invalid rank or call.
 * @example
 * const backend = sim({ faults: [failAt(2, 5)] });
 */
export function failAt(rank: number, call: number): Fault {
  const fault = { rank, call };
  assertFault("failAt", fault);
  return fault;
}

/** Refuses an invalid rank or call. */
export function assertFault(subject: string, fault: Fault): void {
  assertOptions(subject, fault, { rank: true, call: true });
  for (const field of ["rank", "call"] as const)
    assertRule(subject, field, fault[field], integer(0));
}

/** Refuses faults of ranks that a world does not have: they would never strike, and a test would pass without them. */
export function assertFaultRanks(faults: readonly Fault[], size: number): void {
  for (const [at, { rank }] of faults.entries()) {
    if (rank < size) continue;
    throw new InvalidArgumentError(
      { headline: `sim: faults[${at}]: rank: found ${rank}, needs a rank in 0..${size - 1}` },
      { field: "rank", size },
    );
  }
}

/** Counts the calls of each rank, across rebuilds, and fails the listed ones. */
export class FaultPlan {
  readonly #faults: readonly Fault[];
  /** Calls so far, by rank in the first generation. */
  readonly #calls = new Map<number, number>();

  constructor(faults: readonly Fault[]) {
    this.#faults = faults;
  }

  /** True when no call fails. */
  get isEmpty(): boolean {
    return this.#faults.length === 0;
  }

  /** Throws when this call of the rank was to fail; `rank` is its number in the first generation. */
  strike(rank: number, worldRank: number, { collective }: RankCall): void {
    const call = this.#calls.get(rank) ?? 0;
    this.#calls.set(rank, call + 1);
    if (!this.#faults.some((fault) => fault.rank === rank && fault.call === call)) return;
    const now = rank === worldRank ? "" : ` (rank ${worldRank} since the rebuild)`;
    throw new InjectedFaultError(
      { headline: `${collective}: injected fault: call ${call} of rank ${rank}${now} fails` },
      { rank: worldRank, call, collective, ranks: [worldRank] },
    );
  }
}
