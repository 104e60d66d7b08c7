/** One collective call of one communicator: the posted calls, and the missing ranks. */
import type { CommInfo } from "../../backend.ts";
import type { Posting } from "./posting.ts";

/** Gathers the postings of one call number: those of the ranks that live in this process. */
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

  /** The posted calls, by rank; ranks of other processes are left out. */
  get posted(): readonly Posting[] {
    const { local } = this.comm;
    const all = this.postings as readonly Posting[];
    if (this.arrived === all.length) return all;
    if (local.length === 1) return [all[local[0] as number] as Posting];
    return all.filter((posting) => posting !== undefined);
  }

  get complete(): boolean {
    return this.arrived === this.comm.local.length;
  }
}
