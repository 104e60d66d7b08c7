/**
 * The calls of each rank that are not done, in the order in which they must be dispatched.
 *
 * A rank's queue holds collective calls, shared by all ranks with the same call number, and batches of messages.
 */
import type { CommInfo } from "../backend.ts";
import { memoryOf } from "../buffer.ts";
import type { Memory } from "../memory.ts";
import { assignOp, type Operation } from "../op.ts";
import type { Posting, TransferPosting } from "./posting.ts";

/** Compacts the array once this many slots, and more than half of it, are free. */
const mostLeft = 64;

/** A queue, oldest first: in constant time, since a loop leaves thousands of calls in it. */
export class Fifo<T> {
  #places: (T | undefined)[] = [];
  /** Where the oldest is. */
  #head = 0;

  get length(): number {
    return this.#places.length - this.#head;
  }

  get first(): T | undefined {
    return this.#places[this.#head];
  }

  /** The item behind this many others. */
  at(index: number): T | undefined {
    return this.#places[this.#head + index];
  }

  push(item: T): void {
    this.#places.push(item);
  }

  /** The oldest, which leaves. */
  shift(): T | undefined {
    const left = this.#places[this.#head];
    if (this.length === 0) return undefined;
    this.#places[this.#head++] = undefined;
    if (this.#head >= mostLeft && this.#head >= this.length) {
      this.#places.splice(0, this.#head);
      this.#head = 0;
    }
    return left;
  }

  /** All of them, oldest first. */
  items(): T[] {
    return this.#places.slice(this.#head) as T[];
  }

  clear(): void {
    this.#places = [];
    this.#head = 0;
  }
}

/** A send and the matching receive. */
export interface MatchedPair {
  readonly send: TransferPosting;
  readonly recv: TransferPosting;
  readonly sendBatch: MessageBatch;
  readonly recvBatch: MessageBatch;
}

type Direction = TransferPosting["direction"];

/** The messages that one rank posted together. */
export class MessageBatch {
  readonly rank: number;
  readonly transfers: readonly TransferPosting[];
  /** Transfers that are not matched, in the order posted. */
  readonly #open: Map<Operation, TransferPosting>;
  /** By direction and peer, in the order posted; a transfer that is no longer open is skipped. */
  readonly #queues = {
    send: new Map<number, Fifo<TransferPosting>>(),
    recv: new Map<number, Fifo<TransferPosting>>(),
  };
  #hostMemories: ReadonlySet<Memory> | undefined;

  constructor(rank: number, transfers: readonly TransferPosting[]) {
    this.rank = rank;
    this.transfers = transfers;
    this.#open = new Map(transfers.map((transfer) => [transfer.op, transfer]));
    for (const transfer of transfers) {
      const queues = this.#queues[transfer.direction];
      let queue = queues.get(transfer.peer);
      if (queue === undefined) {
        queue = new Fifo();
        queues.set(transfer.peer, queue);
      }
      queue.push(transfer);
    }
  }

  /** Transfers that are not matched. */
  get open(): readonly TransferPosting[] {
    return [...this.#open.values()];
  }

  /** True when none is open. */
  get isDone(): boolean {
    return this.#open.size === 0;
  }

  /** The caller's own host memory that it uses. */
  get hostMemories(): ReadonlySet<Memory> {
    this.#hostMemories ??= hostMemoriesOf(this.transfers);
    return this.#hostMemories;
  }

  /** The peers of its sends, or of its receives. */
  peers(direction: Direction): Iterable<number> {
    return this.#queues[direction].keys();
  }

  /** The oldest open send to a peer, or receive from it. */
  next(direction: Direction, peer: number): TransferPosting | undefined {
    const queue = this.#queues[direction].get(peer);
    while (queue?.first !== undefined && !this.#open.has(queue.first.op)) queue.shift();
    return queue?.first;
  }

  /** A transfer is no longer open: it was matched or cancelled. False where it was not open. */
  close(op: Operation): boolean {
    return this.#open.delete(op);
  }

  /** Closes those that have settled. */
  closeSettled(): void {
    for (const op of this.#open.keys()) if (!op.pending) this.#open.delete(op);
  }
}

const noMemories: ReadonlySet<Memory> = new Set();

function hostMemoriesOf(transfers: readonly TransferPosting[]): ReadonlySet<Memory> {
  let found: Set<Memory> | undefined;
  for (const { call } of transfers) {
    const buffer = call.send ?? call.recv;
    if (buffer === undefined || !memoryOf(buffer).borrowed) continue;
    found ??= new Set();
    found.add(memoryOf(buffer));
  }
  return found ?? noMemories;
}

/** A call in a rank's queue. */
type QueueEntry = PendingCollective | MessageBatch;

/** The queues of the ranks of one communicator that live in this process. */
export class RankQueues {
  readonly #comm: CommInfo;
  /** By rank; those of other processes stay empty. */
  readonly #queues: readonly Fifo<QueueEntry>[];
  readonly #local: readonly Fifo<QueueEntry>[];
  /** Number of entries of all queues. */
  size = 0;
  /** Number of entries that have left their queues so far. */
  dispatchedCount = 0;
  /** Number of batches of messages among the entries. */
  batches = 0;
  /** Ranks with a batch as first call that was not compared with those of the other ranks. */
  readonly #arrived = new Set<number>();
  /** The compared batches at the head of their queues, by the host memory that they use. */
  readonly #hostUsers = new Map<Memory, Set<MessageBatch>>();
  /** Operations that were cancelled and may still be open in a batch. */
  #cancelled: Operation[] = [];

  constructor(comm: CommInfo) {
    const { ranks, local } = comm;
    this.#comm = comm;
    this.#queues = ranks.map(() => new Fifo());
    this.#local = local.map((rank) => this.#queues[rank] as Fifo<QueueEntry>);
  }

  push(rank: number, entry: QueueEntry): void {
    const queue = this.#queues[rank];
    queue?.push(entry);
    this.size++;
    if (!(entry instanceof MessageBatch)) return;
    this.batches++;
    if (queue?.first === entry) this.#arrived.add(rank);
  }

  head(rank: number): QueueEntry | undefined {
    return this.#queues[rank]?.first;
  }

  /** Removes a rank's first call from its queue. */
  shift(rank: number): void {
    const left = this.#queues[rank]?.shift();
    if (left === undefined) return;
    this.size--;
    this.dispatchedCount++;
    if (left instanceof MessageBatch) {
      this.batches--;
      for (const memory of left.hostMemories) {
        const users = this.#hostUsers.get(memory);
        if (users?.delete(left) && users.size === 0) this.#hostUsers.delete(memory);
      }
    }
    if (this.batch(rank) !== undefined) this.#arrived.add(rank);
  }

  /** Removes every rank's first call, a collective one, from its queue. */
  shiftAll(): void {
    const { local } = this.#comm;
    for (let at = 0; at < local.length; at++) {
      const queue = this.#local[at] as Fifo<QueueEntry>;
      if (queue.shift() === undefined) continue;
      this.size--;
      this.dispatchedCount++;
      if (queue.first instanceof MessageBatch) this.#arrived.add(local[at] as number);
    }
  }

  /** Notes that an operation was cancelled, which may be a queued transfer. */
  cancel(op: Operation): void {
    if (this.batches > 0) this.#cancelled.push(op);
  }

  /** The operations that were cancelled since the last time. */
  takeCancelled(): readonly Operation[] {
    const cancelled = this.#cancelled;
    if (cancelled.length > 0) this.#cancelled = [];
    return cancelled;
  }

  /** True when a collective call is what every rank would do next. */
  isAtAllHeads(pending: PendingCollective): boolean {
    for (const queue of this.#local) {
      if (queue.first !== pending) return false;
    }
    return true;
  }

  /** True when an operation is what its rank would do next. */
  isAtHead({ rank, callOp }: Operation): boolean {
    const { first } = this.#queues[rank] ?? {};
    if (first === undefined) return false;
    return postingsOf(first, rank).some(({ op }) => op.callOp === callOp);
  }

  /** The sends and receives that were posted together with one of them, while queued. */
  batchOf({ op }: Posting): readonly TransferPosting[] {
    for (const entry of this.#queues[op.rank]?.items() ?? []) {
      if (!(entry instanceof MessageBatch)) continue;
      if (entry.transfers.some((transfer) => transfer.op === op)) return entry.transfers;
    }
    return [];
  }

  /** The batch at the head of a rank's queue; `undefined` where there is none. */
  batch(rank: number): MessageBatch | undefined {
    const first = this.#queues[rank]?.first;
    return first instanceof MessageBatch ? first : undefined;
  }

  /** The batches at the heads of all queues. */
  headBatches(): MessageBatch[] {
    return this.#local.flatMap(({ first }) => (first instanceof MessageBatch ? [first] : []));
  }

  /** The batches that came to the head of their queues since the last `markCompared`. */
  get arrived(): readonly MessageBatch[] {
    const arrived: MessageBatch[] = [];
    for (const rank of this.#arrived) {
      const batch = this.batch(rank);
      if (batch !== undefined) arrived.push(batch);
    }
    return arrived;
  }

  /** These batches are compared with those of the other ranks from now on. */
  markCompared(arrived: readonly MessageBatch[]): void {
    this.#arrived.clear();
    for (const batch of arrived) {
      for (const memory of batch.hostMemories) {
        const users = this.#hostUsers.get(memory);
        if (users === undefined) this.#hostUsers.set(memory, new Set([batch]));
        else users.add(batch);
      }
    }
  }

  /** The compared batches at the head of their queues that use host memory, where several do. */
  sharersOf(memory: Memory): readonly MessageBatch[] {
    const users = this.#hostUsers.get(memory);
    return users === undefined || users.size < 2 ? [] : [...users];
  }

  /** A rank's open postings, oldest first. */
  postings(rank: number): Posting[] {
    const queue = this.#queues[rank]?.items() ?? [];
    return queue.flatMap((entry) => postingsOf(entry, rank));
  }

  /** All ranks' calls that have not settled. */
  openPostings(): Posting[] {
    return this.#queues.flatMap((_, rank) => this.postings(rank)).filter(({ op }) => op.pending);
  }

  /** Forgets everything. */
  clear(): void {
    for (const queue of this.#queues) queue.clear();
    this.size = 0;
    this.batches = 0;
    this.#arrived.clear();
    this.#hostUsers.clear();
    this.#cancelled = [];
  }
}

/** The open calls that a rank posted together with an entry. */
function postingsOf(entry: QueueEntry, rank: number): readonly Posting[] {
  if (entry instanceof MessageBatch) return entry.open;
  const posting = entry.postings[rank];
  return posting === undefined ? [] : [posting];
}

/** Gathers the postings of one call number: those of the ranks that live in this process. */
export class PendingCollective {
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
export class PendingCollectives {
  readonly #comm: CommInfo;
  readonly #open = new Fifo<PendingCollective>();
  #firstNumber = 0;

  constructor(comm: CommInfo) {
    this.#comm = comm;
  }

  /** The oldest. */
  get first(): PendingCollective | undefined {
    return this.#open.first;
  }

  /** The call of that number; made where no rank has come to it before. */
  at(number: number): PendingCollective {
    if (this.#open.length === 0) this.#firstNumber = number;
    const pending = this.#open.at(number - this.#firstNumber) ?? this.#next(number);
    return pending;
  }

  /** Removes the oldest, which is about to be dispatched. */
  shift(): void {
    if (this.#open.shift() !== undefined) this.#firstNumber++;
  }

  clear(): void {
    this.#open.clear();
  }

  #next(number: number): PendingCollective {
    const pending = new PendingCollective(number, this.#comm);
    this.#open.push(pending);
    return pending;
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

/** The wait of a rank at the head of its queue; `undefined` when it has no open call. */
export function headWait(comm: CommInfo, queues: RankQueues, rank: number): OpenWait | undefined {
  const head = queues.head(rank);
  const posting = head instanceof MessageBatch ? head.open[0] : head?.postings[rank];
  if (head === undefined || posting === undefined) return undefined;
  return { posting, comm: comm.name, missing: missingAt(comm, queues, head) };
}

/** World ranks without which a call at the head of a queue cannot complete. */
function missingAt({ ranks }: CommInfo, queues: RankQueues, head: QueueEntry): readonly number[] {
  if (head instanceof MessageBatch) {
    return [...new Set(head.open.map(({ peer }) => ranks[peer] as number))];
  }
  return ranks.filter((_, member) => queues.head(member) !== head);
}

/** The waits through every rank's end: one for each program that has called there. */
export function openWaits(comm: CommInfo, queues: RankQueues): OpenWait[] {
  // Ranks that wait in one collective call lack the same ranks, and share one list of them.
  const missingOf = new Map<QueueEntry, readonly number[]>();
  return comm.ranks.flatMap((_, rank) => {
    const head = queues.head(rank);
    if (head === undefined || (head instanceof MessageBatch && head.isDone)) return [];
    const postings = queues.postings(rank).filter(({ op }) => op.pending);
    if (postings.length === 0) return [];
    const missing = missingOf.get(head) ?? missingAt(comm, queues, head);
    missingOf.set(head, missing);
    const callers = new Set<number>();
    return postings.flatMap((posting) => {
      const { callingRank } = posting.op;
      if (callers.has(callingRank)) return [];
      callers.add(callingRank);
      return { posting, comm: comm.name, missing };
    });
  });
}

// Message numbers.

/** The number of every rank's next send or receive; collective calls are counted apart. */
export class MessageNumbers {
  readonly #messages: number[];
  readonly #comm: CommInfo;
  /** The next of the messages to, and from, a rank of another process, which numbers them alike: by both ranks. */
  readonly #next = { send: new Map<number, number>(), recv: new Map<number, number>() };

  constructor(comm: CommInfo) {
    const size = comm.ranks.length;
    this.#comm = comm;
    this.#messages = new Array<number>(size).fill(0);
  }

  /** The number of a rank's next send, receive or both. */
  next(rank: number): number {
    return this.#messages[rank] as number;
  }

  /** Numbers a rank's next sends and receives; both ends of a call have its number. */
  assign(rank: number, transfers: readonly TransferPosting[]): void {
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

  #message(rank: number, op: Operation): void {
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
    this.#messages.fill(0);
  }
}
