/** Every rank's calls that are not done, oldest first: the order in which they must be served. */
import type { CommInfo } from "../../backend.ts";
import type { Memory } from "../../memory.ts";
import type { CommOp } from "../../op.ts";
import { Batch } from "./batch.ts";
import { Fifo } from "./fifo.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import type { Slot } from "./slot.ts";

/** A call in a rank's line. */
export type Entry = Slot | Batch;

/** The lines of the ranks of one communicator that live in this process. */
export class Lines {
  readonly #comm: CommInfo;
  /** By rank; those of other processes stay empty. */
  readonly #lines: readonly Fifo<Entry>[];
  readonly #local: readonly Fifo<Entry>[];
  /** Entries of all lines, and those among them that are batches. */
  #entries = 0;
  #batches = 0;
  #left = 0;
  /** Ranks with a batch as first call that was not compared with those of the other ranks. */
  readonly #arrived = new Set<number>();
  /** The compared batches at the head of their lines, by the host memory that they use. */
  readonly #hostUsers = new Map<Memory, Set<Batch>>();
  /** Operations that were cancelled and may still be open in a batch. */
  #cancelled: CommOp[] = [];

  constructor(comm: CommInfo) {
    const { ranks, local } = comm;
    this.#comm = comm;
    this.#lines = ranks.map(() => new Fifo());
    this.#local = local.map((rank) => this.#lines[rank] as Fifo<Entry>);
  }

  join(rank: number, entry: Entry): void {
    const line = this.#lines[rank];
    line?.push(entry);
    this.#entries++;
    if (!(entry instanceof Batch)) return;
    this.#batches++;
    if (line?.first === entry) this.#arrived.add(rank);
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
    if (left instanceof Batch) {
      this.#batches--;
      for (const memory of left.hostMemories) {
        const users = this.#hostUsers.get(memory);
        if (users?.delete(left) && users.size === 0) this.#hostUsers.delete(memory);
      }
    }
    if (this.batch(rank) !== undefined) this.#arrived.add(rank);
  }

  /** Takes every rank's first call, a collective one, off its line. */
  allLeave(): void {
    const { local } = this.#comm;
    for (let at = 0; at < local.length; at++) {
      const line = this.#local[at] as Fifo<Entry>;
      if (line.shift() === undefined) continue;
      this.#entries--;
      this.#left++;
      if (line.first instanceof Batch) this.#arrived.add(local[at] as number);
    }
  }

  /** Notes that an operation was cancelled, which may be a transfer in line. */
  cancel(op: CommOp): void {
    if (this.#batches > 0) this.#cancelled.push(op);
  }

  /** The operations that were cancelled since the last time. */
  takeCancelled(): readonly CommOp[] {
    const cancelled = this.#cancelled;
    if (cancelled.length > 0) this.#cancelled = [];
    return cancelled;
  }

  /** Number of entries that have left their lines so far. */
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

  /** The batch at the head of a rank's line; `undefined` where there is none. */
  batch(rank: number): Batch | undefined {
    const first = this.#lines[rank]?.first;
    return first instanceof Batch ? first : undefined;
  }

  /** The batches at the heads of all lines. */
  batches(): Batch[] {
    return this.#local.flatMap(({ first }) => (first instanceof Batch ? [first] : []));
  }

  /** The batches that came to the head of their lines since the last `compared`. */
  get arrived(): readonly Batch[] {
    const arrived: Batch[] = [];
    for (const rank of this.#arrived) {
      const batch = this.batch(rank);
      if (batch !== undefined) arrived.push(batch);
    }
    return arrived;
  }

  /** These batches are compared with those of the other ranks from now on. */
  compared(arrived: readonly Batch[]): void {
    this.#arrived.clear();
    for (const batch of arrived) {
      for (const memory of batch.hostMemories) {
        const users = this.#hostUsers.get(memory);
        if (users === undefined) this.#hostUsers.set(memory, new Set([batch]));
        else users.add(batch);
      }
    }
  }

  /** The compared batches at the head of their lines that use host memory, where several do. */
  sharers(memory: Memory): readonly Batch[] {
    const users = this.#hostUsers.get(memory);
    return users === undefined || users.size < 2 ? [] : [...users];
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
    this.#arrived.clear();
    this.#hostUsers.clear();
    this.#cancelled = [];
  }

  get empty(): boolean {
    return this.#entries === 0;
  }
}

/** The open calls that a rank posted together with an entry. */
function postingsOf(entry: Entry, rank: number): readonly Posting[] {
  if (entry instanceof Batch) return entry.open;
  const posting = entry.postings[rank];
  return posting === undefined ? [] : [posting];
}
