/**
 * The calls of a communicator that are not done, in the streams of its ranks.
 *
 * A stream holds collective calls, shared by all ranks with the same call number, and batches of messages. The calls of other
 * communicators of the rank are in it as well.
 */
import type { CommInfo, Transfer } from "../backend.ts";
import { memoryOf } from "../buffer.ts";
import { getOrCreate } from "../get-or-create.ts";
import type { Memory } from "../memory.ts";
import type { Operation } from "../op.ts";
import type { Posting, TransferPosting } from "./posting.ts";
import type { Fifo, StreamEntry, Streams } from "./streams.ts";

/** A send and the matching receive. */
export interface MatchedPair extends Transfer {
  readonly ends: readonly [send: TransferPosting, recv: TransferPosting];
  readonly sendBatch: MessageBatch;
  readonly recvBatch: MessageBatch;
}

type Direction = TransferPosting["direction"];

/** Sends of a batch to one rank, or receives from it, in the order posted. */
export interface MessageEnds {
  readonly transfers: TransferPosting[];
  /** Number of the first ones that are known not to be open. */
  closed: number;
}

/** The oldest that is open. */
export function firstOpen(ends: MessageEnds): TransferPosting | undefined {
  const { transfers } = ends;
  while (transfers[ends.closed]?.isOpen === false) ends.closed++;
  return transfers[ends.closed];
}

/** The messages that one rank posted together. */
export class MessageBatch implements StreamEntry {
  readonly comm: CommInfo;
  readonly rank: number;
  readonly transfers: readonly TransferPosting[];
  /** Number of transfers that are open. */
  #openCount: number;
  /** Its sends and receives, by peer. */
  readonly ends = { send: new Map<number, MessageEnds>(), recv: new Map<number, MessageEnds>() };
  #hostMemories: ReadonlySet<Memory> | undefined;
  /** Made at the first cancellation. */
  #byOp: ReadonlyMap<Operation, TransferPosting> | undefined;
  serial = 0;
  isOver = false;
  matched: Set<MessageBatch> | undefined;
  /** Transfers with the other end in another process while the session executes them: they are not open. */
  executing: ReadonlySet<TransferPosting> | undefined;

  constructor(comm: CommInfo, rank: number, transfers: readonly TransferPosting[]) {
    this.comm = comm;
    this.rank = rank;
    this.transfers = transfers;
    this.#openCount = transfers.length;
    for (const transfer of transfers) {
      const byPeer = this.ends[transfer.direction];
      const ends = byPeer.get(transfer.peer);
      if (ends === undefined) byPeer.set(transfer.peer, { transfers: [transfer], closed: 0 });
      else ends.transfers.push(transfer);
    }
  }

  /** Transfers that are open, in the order posted. */
  get open(): readonly TransferPosting[] {
    return this.transfers.filter(({ isOpen }) => isOpen);
  }

  /** Transfers that are open or being executed. */
  get unfinished(): readonly TransferPosting[] {
    return this.transfers.filter((each) => each.isOpen || this.executing?.has(each));
  }

  /** True when none is open. */
  get isDone(): boolean {
    return this.#openCount === 0;
  }

  /** The caller's own host memory that it uses. */
  get hostMemories(): ReadonlySet<Memory> {
    if (this.#hostMemories !== undefined) return this.#hostMemories;
    let found: Set<Memory> | undefined;
    for (let at = 0; at < this.transfers.length; at++) {
      const { call } = this.transfers[at] as TransferPosting;
      const buffer = call.send ?? call.recv;
      if (buffer !== undefined && memoryOf(buffer).borrowed) {
        found ??= new Set();
        found.add(memoryOf(buffer));
      }
    }
    this.#hostMemories = found ?? noMemories;
    return this.#hostMemories;
  }

  hasPeer(direction: Direction, peer: number): boolean {
    return this.ends[direction].has(peer);
  }

  peerCount(direction: Direction): number {
    return this.ends[direction].size;
  }

  /** Number of its open sends to a peer, or receives from it. A cancelled one matches nothing. */
  openCount(direction: Direction, peer: number): number {
    const { transfers = [], closed = 0 } = this.ends[direction].get(peer) ?? {};
    return transfers.slice(closed).filter(({ op, isOpen }) => op.pending && isOpen).length;
  }

  /** Notes a batch with other ends of its messages. */
  noteMatched(other: MessageBatch): void {
    this.matched ??= new Set();
    this.matched.add(other);
  }

  /** An open transfer of it was matched or cancelled. */
  close(transfer: TransferPosting): void {
    transfer.isOpen = false;
    this.#openCount--;
  }

  /** Closes the transfer of an operation; false where it has none that is open. */
  closeOf(op: Operation): boolean {
    this.#byOp ??= new Map(this.transfers.map((transfer) => [transfer.op, transfer]));
    const transfer = this.#byOp.get(op);
    if (transfer?.isOpen !== true) return false;
    this.close(transfer);
    return true;
  }

  /** Closes those that have settled. */
  closeSettled(): void {
    for (let at = 0; at < this.transfers.length; at++) {
      const transfer = this.transfers[at] as TransferPosting;
      if (transfer.isOpen && !transfer.op.pending) this.close(transfer);
    }
  }
}

const noMemories: ReadonlySet<Memory> = new Set();

/** A call in a stream. */
export type QueueEntry = PendingCollective | MessageBatch;

/** The calls of one communicator in the streams of its ranks that live in this process. */
export class RankQueues {
  readonly #comm: CommInfo;
  readonly #streams: Streams<QueueEntry>;
  /** By rank; those of other processes stay empty. */
  readonly #byRank: readonly Fifo<QueueEntry>[];
  readonly #local: readonly Fifo<QueueEntry>[];
  /** Number of entries of all ranks. */
  size = 0;
  /** Number of batches of messages among the entries. */
  batches = 0;
  /** Ranks with a batch as first call that was not compared with those of the other ranks. */
  readonly #arrived = new Set<number>();
  /** The compared batches at the head of their streams, by the host memory that they use. */
  readonly #hostUsers = new Map<Memory, Set<MessageBatch>>();
  /** Operations that were cancelled and may still be open in a batch. */
  #cancelled: Operation[] = [];

  constructor(comm: CommInfo, streams: Streams<QueueEntry>) {
    this.#comm = comm;
    this.#streams = streams;
    this.#byRank = streams.ofComm(comm);
    this.#local = comm.local.map((rank) => this.#byRank[rank] as Fifo<QueueEntry>);
  }

  /** True where a rank has any call, of this communicator or another one. */
  get areStreamsBusy(): boolean {
    for (const stream of this.#local) if (stream.length > 0) return true;
    return false;
  }

  push(rank: number, entry: QueueEntry): void {
    const isMessage = entry instanceof MessageBatch;
    this.#streams.push(this.#byRank[rank] as Fifo<QueueEntry>, rank, entry, isMessage);
    this.size++;
    if (!isMessage) return;
    this.batches++;
    if (this.head(rank) === entry) this.#arrived.add(rank);
  }

  /** The first call of a rank's stream, of this communicator or another one. */
  head(rank: number): QueueEntry | undefined {
    return this.#byRank[rank]?.first;
  }

  /** Notes that an entry has come to the head of its stream. */
  cameToHead(entry: QueueEntry): void {
    if (entry instanceof MessageBatch) this.#arrived.add(entry.rank);
  }

  /** Removes a rank's first call, of this communicator, from its stream. */
  shift(rank: number): void {
    const stream = this.#byRank[rank] as Fifo<QueueEntry>;
    this.#shift(stream);
    if (this.batch(rank) !== undefined) this.#arrived.add(rank);
  }

  /** Removes a collective call, every rank's first one, from the streams. */
  shiftAll(pending: PendingCollective): void {
    const { local } = this.#comm;
    for (let at = 0; at < local.length; at++) {
      const stream = this.#local[at] as Fifo<QueueEntry>;
      if (stream.first !== pending) continue;
      this.#shift(stream);
      if (stream.first instanceof MessageBatch) this.#arrived.add(local[at] as number);
    }
  }

  #shift(stream: Fifo<QueueEntry>): void {
    const left = this.#streams.shift(stream);
    this.size--;
    if (!(left instanceof MessageBatch)) return;
    this.batches--;
    for (const memory of left.hostMemories) {
      const users = this.#hostUsers.get(memory);
      if (users?.delete(left) && users.size === 0) this.#hostUsers.delete(memory);
    }
  }

  /**
   * Takes a cancelled operation back: a collective call that is not being executed leaves its rank's stream, and a transfer its
   * batch, once that is at the head.
   */
  cancel(op: Operation): void {
    if (this.batches > 0) this.#cancelled.push(op);
    const cancelled = this.entries(op.rank).find(
      (entry): entry is PendingCollective =>
        entry instanceof PendingCollective && entry.postings[op.rank]?.op === op,
    );
    if (cancelled === undefined || cancelled.isDispatched) return;
    const stream = this.#byRank[op.rank] as Fifo<QueueEntry>;
    this.#streams.remove(stream, (entry) => entry === cancelled);
    this.size--;
    if (cancelled.withdraw(op.rank)) this.#streams.noteLeft(cancelled);
  }

  /** The operations that were cancelled since the last time. */
  takeCancelled(): readonly Operation[] {
    const cancelled = this.#cancelled;
    if (cancelled.length > 0) this.#cancelled = [];
    return cancelled;
  }

  /** True when a collective call is what every rank would do next. */
  isAtAllHeads(pending: PendingCollective): boolean {
    const { local } = this.#comm;
    for (let at = 0; at < local.length; at++) {
      const isAtHead = this.#local[at]?.first === pending;
      if (!isAtHead && !pending.isWithdrawn(local[at] as number)) return false;
    }
    return true;
  }

  /** True when an operation is what its rank would do next. */
  isAtHead({ rank, callOp }: Operation): boolean {
    const first = this.head(rank);
    if (first?.comm !== this.#comm) return false;
    return postingsOf(first, rank).some(({ op }) => op.callOp === callOp);
  }

  /** The sends and receives that were posted together with one of them, while queued. */
  batchOf({ op }: Posting): readonly TransferPosting[] {
    const batches = batchesIn(this.#byRank[op.rank], this.#comm);
    const hasIt = ({ transfers }: MessageBatch): boolean =>
      transfers.some((each) => each.op === op);
    return batches.find(hasIt)?.transfers ?? [];
  }

  /** The batch at the head of a rank's stream; `undefined` where there is none of this communicator. */
  batch(rank: number): MessageBatch | undefined {
    const first = this.head(rank);
    return first instanceof MessageBatch && first.comm === this.#comm ? first : undefined;
  }

  /** The batches at the heads of all streams. */
  headBatches(): MessageBatch[] {
    return this.#comm.local.flatMap((rank) => this.batch(rank) ?? []);
  }

  /** The batches that came to the head of their streams since the last `markCompared`. */
  get arrived(): readonly MessageBatch[] {
    const arrived: MessageBatch[] = [];
    for (const rank of this.#arrived) {
      const batch = this.batch(rank);
      if (batch !== undefined) arrived.push(batch);
    }
    return arrived;
  }

  /** Notes that these batches were compared with those of the other ranks. */
  markCompared(arrived: readonly MessageBatch[]): void {
    this.#arrived.clear();
    for (const batch of arrived) {
      for (const memory of batch.hostMemories) {
        getOrCreate(this.#hostUsers, memory, () => new Set()).add(batch);
      }
    }
  }

  /** The compared batches at the head of their streams that use host memory, where several do. */
  sharersOf(memory: Memory): readonly MessageBatch[] {
    const users = this.#hostUsers.get(memory);
    return users === undefined || users.size < 2 ? [] : [...users];
  }

  /** A rank's open postings, oldest first. */
  postings(rank: number): Posting[] {
    return this.entries(rank).flatMap((entry) => postingsOf(entry, rank));
  }

  /** A rank's open postings, those made together in a group each. */
  groups(rank: number): { serial: number; postings: readonly Posting[] }[] {
    return this.entries(rank).map((entry) => ({
      serial: entry.serial,
      postings: postingsOf(entry, rank),
    }));
  }

  /** The calls of a rank on this communicator. */
  entries(rank: number): QueueEntry[] {
    return (this.#byRank[rank]?.items() ?? []).filter(({ comm }) => comm === this.#comm);
  }

  /** World ranks that the first call of a rank lacks; none where that is a call of another communicator. */
  missing(rank: number): readonly number[] {
    const head = this.head(rank);
    return head?.comm === this.#comm ? new Waits(this.#streams).ofHead(head).missing : [];
  }

  /** All ranks' calls that have not settled; those behind the last one read cost nothing. */
  *openPostings(): Generator<Posting, undefined> {
    for (const rank of this.#byRank.keys()) {
      for (const entry of this.entries(rank)) {
        for (const posting of postingsOf(entry, rank)) if (posting.op.pending) yield posting;
      }
    }
  }

  /** Removes all calls of this communicator; `keepsHeads` leaves those at a head, where one is being executed. */
  clear(keepsHeads = false): void {
    for (const stream of this.#local) {
      const kept = keepsHeads ? stream.first : undefined;
      const leaves = (entry: QueueEntry): boolean => entry.comm === this.#comm && entry !== kept;
      for (const entry of this.#streams.remove(stream, leaves)) {
        this.size--;
        if (entry instanceof MessageBatch) this.batches--;
        this.#streams.noteLeft(entry);
      }
    }
    this.#arrived.clear();
    this.#hostUsers.clear();
    this.#cancelled = [];
  }
}

/** The postings of a rank in an entry, without messages that are done. */
function postingsOf(entry: QueueEntry, rank: number): readonly Posting[] {
  if (entry instanceof MessageBatch) return entry.unfinished;
  const posting = entry.postings[rank];
  return posting === undefined ? [] : [posting];
}

/** Gathers the postings of one call number: those of the ranks that live in this process. */
export class PendingCollective implements StreamEntry {
  readonly number: number;
  readonly comm: CommInfo;
  readonly postings: (Posting | undefined)[];
  arrived = 0;
  serial = 0;
  isOver = false;
  /** Is being executed, or was. */
  isDispatched = false;
  /** The ranks that have cancelled it before it was dispatched: it is in their streams no longer. */
  #withdrawn: Set<number> | undefined;

  constructor(number: number, comm: CommInfo) {
    this.number = number;
    this.comm = comm;
    this.postings = new Array<Posting | undefined>(comm.ranks.length).fill(undefined);
  }

  /** The calls, once all are posted, by rank; ranks of other processes are left out. */
  get posted(): readonly Posting[] {
    const all = this.postings as readonly Posting[];
    if (this.arrived === all.length) return all;
    return this.comm.local.map((rank) => all[rank] as Posting);
  }

  /** Adds the call of a rank. */
  add(posting: Posting): void {
    this.postings[posting.op.rank] = posting;
    this.arrived++;
  }

  get complete(): boolean {
    return this.arrived === this.comm.local.length;
  }

  /** Notes that a rank has cancelled it; true where all ranks that have made it have: it is in no stream. */
  withdraw(rank: number): boolean {
    this.#withdrawn ??= new Set();
    return this.#withdrawn.add(rank).size === this.arrived;
  }

  isWithdrawn(rank: number): boolean {
    return this.#withdrawn?.has(rank) === true;
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
  /** World ranks among them that have made the call, and wait in an earlier one. */
  readonly behind: readonly number[];
  /** Number of calls before it in its rank's stream. */
  readonly position: number;
}

/** Ranks without which the first call of a stream cannot complete. */
type Lack = Pick<OpenWait, "missing" | "behind">;

/** The open calls of ranks that wait for others. */
export class Waits {
  readonly #streams: Streams<QueueEntry>;
  /** Ranks that wait in one collective call lack the same ranks, and share one list of them. */
  readonly #lacks = new Map<QueueEntry, Lack>();

  constructor(streams: Streams<QueueEntry>) {
    this.#streams = streams;
  }

  /** The waits through a rank's end of a communicator: one for each program that has called there. */
  ofRank(comm: CommInfo, rank: number): OpenWait[] {
    const stream = this.#streams.ofComm(comm)[rank];
    const head = stream?.first;
    if (stream === undefined || head === undefined) return [];
    const isOwn = head.comm === comm;
    if (isOwn && head instanceof MessageBatch && head.unfinished.length === 0) return [];
    const callers = new Set<number>();
    return stream.items().flatMap((entry, position) => {
      if (entry.comm !== comm) return [];
      const open = postingsOf(entry, rank).filter(({ op }) => op.pending);
      return open.flatMap((posting) => {
        const { callingRank } = posting.op;
        if (callers.has(callingRank)) return [];
        callers.add(callingRank);
        return { posting, comm: comm.name, position, ...this.ofHead(head) };
      });
    });
  }

  /** Ranks without which the first call of a stream cannot complete. */
  ofHead(head: QueueEntry): Lack {
    return getOrCreate(this.#lacks, head, () => this.#findLack(head));
  }

  #findLack(head: QueueEntry): Lack {
    const { ranks } = head.comm;
    const streams = this.#streams.ofComm(head.comm);
    const missing =
      head instanceof MessageBatch
        ? [...new Set(head.unfinished.map(({ peer }) => peer))]
        : ranks.flatMap((_, rank) =>
            streams[rank]?.first === head || head.isWithdrawn(rank) ? [] : [rank],
          );
    const isBehind = (rank: number): boolean => {
      if (!(head instanceof MessageBatch)) return head.postings[rank] !== undefined;
      return counterparts(head, streams).some(
        (batch) => batch.rank === rank && batch !== streams[rank]?.first,
      );
    };
    return {
      missing: missing.map((rank) => ranks[rank] as number),
      behind: missing.filter(isBehind).map((rank) => ranks[rank] as number),
    };
  }
}

/** The batches with the other ends of a batch's messages, as far as they were posted. */
export function counterparts(
  batch: MessageBatch,
  streams: readonly Fifo<QueueEntry>[],
): readonly MessageBatch[] {
  const found = new Set<MessageBatch>();
  const own = batchesIn(streams[batch.rank], batch.comm);
  const before = own.includes(batch) ? own.slice(0, own.indexOf(batch)) : own;
  for (const direction of ["send", "recv"] as const) {
    const other = direction === "send" ? "recv" : "send";
    for (const peer of batch.ends[direction].keys()) {
      const others = batchesIn(streams[peer], batch.comm);
      if (others.length === 0) continue;
      // Messages match in the order posted: as many as come before those of the batch come before their other ends.
      const first = before.reduce((sum, each) => sum + each.openCount(direction, peer), 0);
      const behind = first + batch.openCount(direction, peer);
      let count = 0;
      for (const entry of others) {
        if (count >= behind) break;
        const from = count;
        count += entry.openCount(other, batch.rank);
        if (count > first && count > from) found.add(entry);
      }
    }
  }
  return [...found];
}

/** The batches of a communicator in a stream. */
function batchesIn(stream: Fifo<QueueEntry> | undefined, comm: CommInfo): MessageBatch[] {
  return (stream?.items() ?? []).filter(
    (entry): entry is MessageBatch => entry instanceof MessageBatch && entry.comm === comm,
  );
}
