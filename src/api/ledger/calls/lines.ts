/** Every rank's calls that are not done, oldest first: the order in which they must be served. */
import type { CommInfo } from "../../backend.ts";
import type { CommOp } from "../../op.ts";
import { Batch } from "./batch.ts";
import { Fifo } from "./fifo.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import type { Slot } from "./slot.ts";

/** A call in a rank's line. */
export type Entry = Slot | Batch;

/** The lines of the ranks of one communicator that live in this process. */
export class Lines {
  /** By rank; those of other processes stay empty. */
  readonly #lines: readonly Fifo<Entry>[];
  readonly #local: readonly Fifo<Entry>[];
  /** Entries of all lines, and those among them that are batches. */
  #entries = 0;
  #batches = 0;
  #left = 0;

  constructor({ ranks, local }: CommInfo) {
    this.#lines = ranks.map(() => new Fifo());
    this.#local = local.map((rank) => this.#lines[rank] as Fifo<Entry>);
  }

  join(rank: number, entry: Entry): void {
    this.#lines[rank]?.push(entry);
    this.#entries++;
    if (entry instanceof Batch) this.#batches++;
  }

  head(rank: number): Entry | undefined {
    return this.#lines[rank]?.first;
  }

  /** Takes a rank's first call off its line. */
  leave(rank: number): void {
    const left = this.#lines[rank]?.shift();
    if (left === undefined) return;
    this.#entries--;
    this.#left++;
    if (left instanceof Batch) this.#batches--;
  }

  /** Takes every rank's first call, a collective one, off its line. */
  allLeave(): void {
    for (const line of this.#local) {
      if (line.shift() === undefined) continue;
      this.#entries--;
      this.#left++;
    }
  }

  /** How many entries have left their lines so far. */
  get left(): number {
    return this.#left;
  }

  /** True when sends or receives stand in some line. */
  get haveTransfers(): boolean {
    return this.#batches > 0;
  }

  /** True when a collective call is what every rank would do next. */
  allAt(slot: Slot): boolean {
    for (const line of this.#local) {
      if (line.first !== slot) return false;
    }
    return true;
  }

  /** True when an operation is what its rank would do next. */
  isAtHead({ rank, callOp }: CommOp): boolean {
    const { first } = this.#lines[rank] ?? {};
    if (first === undefined) return false;
    return postingsOf(first, rank).some(({ op }) => op.callOp === callOp);
  }

  /** The sends and receives that stand in their rank's line with one of them. */
  beside({ op }: Posting): readonly TransferPosting[] {
    for (const entry of this.#lines[op.rank]?.items() ?? []) {
      if (!(entry instanceof Batch)) continue;
      if (entry.transfers.some((transfer) => transfer.op === op)) return entry.transfers;
    }
    return [];
  }

  /** The batch at the head of each rank's line, where it is one. */
  batches(): (Batch | undefined)[] {
    return this.#lines.map(({ first }) => (first instanceof Batch ? first : undefined));
  }

  /** A rank's open postings, oldest first. */
  postings(rank: number): Posting[] {
    const line = this.#lines[rank]?.items() ?? [];
    return line.flatMap((entry) => postingsOf(entry, rank));
  }

  /** All ranks' calls that have not settled. */
  open(): Posting[] {
    return this.#lines.flatMap((_, rank) => this.postings(rank)).filter(({ op }) => op.pending);
  }

  /** Forgets everything. */
  clear(): void {
    for (const line of this.#lines) line.clear();
    this.#entries = 0;
    this.#batches = 0;
  }

  get empty(): boolean {
    return this.#entries === 0;
  }
}

/** What a rank posted with an entry, and is still open there. */
function postingsOf(entry: Entry, rank: number): readonly Posting[] {
  if (entry instanceof Batch) return entry.open;
  const posting = entry.postings[rank];
  return posting === undefined ? [] : [posting];
}
