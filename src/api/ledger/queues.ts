/**
 * The calls of each rank that are not done, in the order in which they must be dispatched.
 *
 * A rank's queue holds collective calls, shared by all ranks with the same call number, and batches of messages.
 */
import type { CommInfo } from "../backend.ts";
import { invariant } from "../invariant.ts";
import type { Memory } from "../memory.ts";
import { assignOp, type CommOp } from "../op.ts";
import { Fifo } from "./fifo.ts";
import { Batch } from "./messages.ts";
import type { Posting, TransferPosting } from "./posting.ts";

/** A call in a rank's line. */
type Entry = Slot | Batch;

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

/** Calls that some rank has made. */
export class Slots {
  readonly #comm: CommInfo;
  readonly #slots = new Fifo<Slot>();
  #firstNumber = 0;

  constructor(comm: CommInfo) {
    this.#comm = comm;
  }

  /** The oldest. */
  get first(): Slot | undefined {
    return this.#slots.first;
  }

  /** The call of that number; made where no rank has come to it before. */
  numbered(number: number): Slot {
    if (this.#slots.length === 0) this.#firstNumber = number;
    const slot = this.#slots.at(number - this.#firstNumber) ?? this.#next(number);
    invariant(slot.number === number, "ranks make calls in turn");
    return slot;
  }

  /** The oldest is about to be served. */
  shift(): void {
    if (this.#slots.shift() !== undefined) this.#firstNumber++;
  }

  clear(): void {
    this.#slots.clear();
  }

  #next(number: number): Slot {
    const slot = new Slot(number, this.#comm);
    this.#slots.push(slot);
    return slot;
  }
}

// Waits: the open calls, and the ranks without which they cannot complete.

/** The wait of a rank on one communicator. */
export interface OpenWait {
  readonly posting: Posting;
  /** Name of the communicator. */
  readonly comm: string;
  /** World ranks with missing calls. */
  readonly missing: readonly number[];
}

/** The wait of a rank at the head of its line; `undefined` when it has no open call. */
export function headWait(comm: CommInfo, lines: Lines, rank: number): OpenWait | undefined {
  const head = lines.head(rank);
  const posting = head instanceof Batch ? head.open[0] : head?.postings[rank];
  if (head === undefined || posting === undefined) return undefined;
  return { posting, comm: comm.name, missing: missingAt(comm, lines, head) };
}

/** World ranks without which a call at the head of a line cannot go on. */
function missingAt({ ranks }: CommInfo, lines: Lines, head: Entry): readonly number[] {
  if (head instanceof Batch) {
    return [...new Set(head.open.map(({ peer }) => ranks[peer] as number))];
  }
  return ranks.filter((_, member) => lines.head(member) !== head);
}

/** The waits through every rank's end: one for each program that has called there. */
export function openWaits(comm: CommInfo, lines: Lines): OpenWait[] {
  // Ranks that wait in one collective call lack the same ranks, and share one list of them.
  const missingOf = new Map<Entry, readonly number[]>();
  return comm.ranks.flatMap((_, rank) => {
    const head = lines.head(rank);
    if (head === undefined || (head instanceof Batch && head.isDone)) return [];
    const postings = lines.postings(rank).filter(({ op }) => op.pending);
    if (postings.length === 0) return [];
    const missing = missingOf.get(head) ?? missingAt(comm, lines, head);
    missingOf.set(head, missing);
    const askers = new Set<number>();
    return postings.flatMap((posting) => {
      const { asker } = posting.op;
      if (askers.has(asker)) return [];
      askers.add(asker);
      return { posting, comm: comm.name, missing };
    });
  });
}

// Call numbers.

/** The next number of every rank. */
export class CallNumbers {
  readonly #collective: number[];
  readonly #messages: number[];
  readonly #comm: CommInfo;
  /** The next of the messages to, and from, a rank of another process, which numbers them alike: by both ranks. */
  readonly #next = { send: new Map<number, number>(), recv: new Map<number, number>() };

  constructor(comm: CommInfo) {
    const size = comm.ranks.length;
    this.#comm = comm;
    this.#collective = new Array<number>(size).fill(0);
    this.#messages = new Array<number>(size).fill(0);
  }

  /** Numbers a rank's next collective call. */
  collective(rank: number, op: CommOp): number {
    const number = this.#collective[rank] as number;
    this.#collective[rank] = number + 1;
    assignOp(op, number);
    return number;
  }

  /** The number of a rank's next collective call. */
  next(rank: number): number {
    return this.#collective[rank] as number;
  }

  /** The number of a rank's next send, receive or both. */
  nextMessage(rank: number): number {
    return this.#messages[rank] as number;
  }

  /** A rank has made the collective calls before `number`. */
  advance(rank: number, number: number): void {
    this.#collective[rank] = number;
  }

  /** Numbers a rank's next sends and receives; both halves of a call have the same number of a call. */
  messages(rank: number, transfers: readonly TransferPosting[]): void {
    const { local, ranks } = this.#comm;
    const isHere = local.length === ranks.length;
    for (const transfer of transfers) {
      const { op, direction, peer } = transfer;
      this.#message(rank, op);
      if (isHere || local.includes(peer)) continue;
      const both = rank * ranks.length + peer;
      transfer.number = this.#next[direction].get(both) ?? 0;
      this.#next[direction].set(both, transfer.number + 1);
    }
  }

  #message(rank: number, op: CommOp): void {
    const { call } = op.callOp;
    if (call >= 0) {
      assignOp(op, call);
      return;
    }
    const number = this.#messages[rank] as number;
    this.#messages[rank] = number + 1;
    assignOp(op, number);
  }

  /** Back to 0. */
  reset(): void {
    this.#collective.fill(0);
    this.#messages.fill(0);
  }
}
