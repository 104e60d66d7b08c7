/** The makers of operations: created once for every rank, as far as it can be. */
import type { CommInfo, VirtualClock } from "../../backend.ts";
import type { CommOp, OpMaker, Resumption } from "../../op.ts";
import type { Monitor } from "./monitor.ts";

/** The makers of one communicator's calls. */
export class Makers {
  readonly #makers: readonly OpMaker[];
  readonly #monitor: Monitor;
  readonly #isVirtual: boolean;

  /** `faulted` gets calls that fail with the error of a callback. */
  constructor(
    { ranks }: CommInfo,
    monitor: Monitor,
    clock: VirtualClock | undefined,
    faulted: (op: CommOp) => void,
    ready: Resumption | undefined,
  ) {
    this.#monitor = monitor;
    this.#isVirtual = clock !== undefined;
    this.#makers = ranks.map((worldRank, rank) => {
      const { callSites } = monitor;
      return { rank, worldRank, asker: worldRank, watcher: monitor, callSites, faulted, ready };
    });
  }

  /** The maker of all calls of a rank; `undefined` where another rank's program may make some, as far as is known. */
  always(rank: number): OpMaker | undefined {
    return this.#isVirtual ? undefined : this.#makers[rank];
  }

  /** The maker of a rank's next call. */
  now(rank: number): OpMaker {
    const maker = this.#makers[rank] as OpMaker;
    const { asker } = this.#monitor;
    return asker === undefined || asker === maker.asker ? maker : { ...maker, asker };
  }
}
