/** Whose calls operations are: who makes them, rank by rank, is worked out once. */
import type { CommInfo } from "../backend.ts";
import { CommOp, type OpMaker } from "../op.ts";
import type { Monitor } from "./monitor.ts";

/** Makes the operations of one communicator. */
export class Makers {
  readonly #makers: readonly OpMaker[];
  readonly #monitor: Monitor;

  constructor({ ranks }: CommInfo, monitor: Monitor) {
    this.#monitor = monitor;
    this.#makers = ranks.map((worldRank, rank) => {
      return { rank, worldRank, asker: worldRank, watcher: monitor };
    });
  }

  /** An operation for a rank's next call. */
  createOp(rank: number): CommOp {
    const maker = this.#makers[rank] as OpMaker;
    const { asker } = this.#monitor;
    return new CommOp(asker === undefined || asker === maker.asker ? maker : { ...maker, asker });
  }
}
