/** One call number of one communicator: what each rank posted, and who is still missing. */
import type { CommInfo, RankCall } from "../backend.ts";
import type { CommOp, ResultOf } from "../op.ts";
import type { SignatureField } from "./compare.ts";

/** A rank's call as it stands in the ledger. */
export interface Posting {
  readonly call: RankCall;
  /** What must be equal on all ranks, most telling field first. */
  readonly signature: readonly SignatureField[];
  readonly op: CommOp;
  readonly resultOf: ResultOf<unknown>;
}

/** Gathers the postings of one call number. */
export class Slot {
  readonly number: number;
  readonly comm: CommInfo;
  readonly postings: (Posting | undefined)[];
  arrived = 0;

  constructor(number: number, comm: CommInfo) {
    this.number = number;
    this.comm = comm;
    this.postings = new Array<Posting | undefined>(comm.ranks.length).fill(undefined);
  }

  get complete(): boolean {
    return this.arrived === this.postings.length;
  }

  /** Ranks in the communicator that have not made this call. */
  missing(): number[] {
    const ranks: number[] = [];
    this.postings.forEach((posting, rank) => {
      if (posting === undefined) ranks.push(rank);
    });
    return ranks;
  }
}
