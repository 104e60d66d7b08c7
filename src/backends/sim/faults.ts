/** Faults that a simulation injects on request: seeds and wishes, never chance. */
import { InjectedFaultError, InvalidArgumentError, type RankCall } from "../../api/index.ts";

/** A rank's call that fails when it is made. */
export interface Fault {
  /** Rank in the world. */
  readonly rank: number;
  /**
   * Which of the rank's calls, counted from 0 over all communicators of the world: a `sendRecv` is one call, a `group`
   * and a replay are as many as they hold.
   */
  readonly call: number;
}

/**
 * Makes call number `call` of a rank fail with an `InjectedFaultError` when it is made; pass it to `sim({ faults })`.
 *
 * @throws InvalidArgumentError for a rank or call that is no count.
 * @example
 * const backend = sim({ faults: [failAt(2, 5)] });
 */
export function failAt(rank: number, call: number): Fault {
  for (const [field, value] of Object.entries({ rank, call })) {
    if (Number.isSafeInteger(value) && value >= 0) continue;
    throw new InvalidArgumentError(
      { headline: `failAt: ${field}: found ${String(value)}, needs an integer of at least 0` },
      { field },
    );
  }
  return { rank, call };
}

/** Counts the calls of each rank and fails those that were asked for. */
export class FaultPlan {
  readonly #faults: readonly Fault[];
  readonly #calls: number[];

  constructor(size: number, faults: readonly Fault[]) {
    this.#faults = faults;
    this.#calls = new Array<number>(size).fill(0);
  }

  /** Throws when this call of the rank was to fail. */
  strike(rank: number, { collective }: RankCall): void {
    if (this.#faults.length === 0) return;
    const call = this.#calls[rank] as number;
    this.#calls[rank] = call + 1;
    if (!this.#faults.some((fault) => fault.rank === rank && fault.call === call)) return;
    throw new InjectedFaultError(
      { headline: `${collective}: injected fault: call ${call} of rank ${rank} fails` },
      { rank, call, collective, ranks: [rank] },
    );
  }
}
