/**
 * The streams of a world: one queue per rank, with the calls of all its communicators in the order in which the rank made them.
 *
 * Calls of a rank take effect in that order, as on one CUDA stream. A communicator with streams of its own has separate queues.
 */
import type { CommInfo } from "../backend.ts";
import { getOrCreate } from "../get-or-create.ts";

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

  get last(): T | undefined {
    return this.#places.at(-1);
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

  /** Removes an item, wherever it is. */
  remove(item: T): void {
    if (item === this.first) this.shift();
    else {
      const at = this.#places.indexOf(item, this.#head);
      if (at >= 0) this.#places.splice(at, 1);
    }
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

/** A call in a stream. */
export interface StreamEntry {
  readonly comm: CommInfo;
  /** Its place among all calls of the world, in the order in which their first rank made them; 0 until then. */
  serial: number;
  /** Has left the streams: it was dispatched or cancelled, or its communicator ended. */
  isOver: boolean;
  /** Messages with the other ends of its own ones, as far as they were matched where orders of issue are compared. */
  readonly matched?: ReadonlySet<StreamEntry> | undefined;
}

/** Queues of the ranks of one world in this process, and the calls that are not in the order of their serials. */
export class StreamQueues<Entry extends StreamEntry> {
  /**
   * Calls that some rank has made behind a call of a higher serial, and messages behind any call. Without any, all ranks have made
   * their calls in the order of the serials, and no calls wait for each other.
   */
  readonly reordered = new Set<Entry>();
  /** By world rank. */
  readonly #byRank: Fifo<Entry>[] = [];
  readonly #byComm = new WeakMap<CommInfo, readonly Fifo<Entry>[]>();

  /** The queues of the members of a communicator, by rank. */
  ofComm(comm: CommInfo): readonly Fifo<Entry>[] {
    return getOrCreate(this.#byComm, comm, () =>
      comm.ranks.map((worldRank) => this.queueOf(comm, worldRank)),
    );
  }

  /** The queues that the ranks' communicators share. */
  protected get queues(): readonly Fifo<Entry>[] {
    return this.#byRank.filter((queue) => queue !== undefined);
  }

  protected queueOf(_comm: CommInfo, worldRank: number): Fifo<Entry> {
    this.#byRank[worldRank] ??= new Fifo();
    return this.#byRank[worldRank];
  }

  protected pushOn(queue: Fifo<Entry>, entry: Entry, isMessage: boolean): void {
    const { last } = queue;
    const isBehind = last !== undefined && (isMessage || entry.serial < last.serial);
    if (isBehind) this.reordered.add(entry);
    queue.push(entry);
  }

  /** Puts the entries that are left in a queue back: one that left may have stood between two that are not in order. */
  protected refill(queue: Fifo<Entry>, entries: readonly Entry[]): void {
    queue.clear();
    for (const entry of entries) this.pushOn(queue, entry, this.reordered.has(entry));
  }

  noteLeft(entry: Entry): void {
    if (this.reordered.size > 0) this.reordered.delete(entry);
  }
}

/** The streams of a world. */
export class Streams<Entry extends StreamEntry> extends StreamQueues<Entry> {
  /** Number of entries of all streams: a collective call counts once for each rank. */
  size = 0;
  /** Entries at the head of their stream since a call of another communicator left it. */
  readonly freed: Entry[] = [];
  /** Present where a communicator has had streams of its own. */
  issued: IssueOrder<Entry> | undefined;
  #serial = 0;

  protected override queueOf(comm: CommInfo, worldRank: number): Fifo<Entry> {
    if (comm.ownStream !== true) return super.queueOf(comm, worldRank);
    this.issued ??= new IssueOrder();
    return new Fifo();
  }

  /** Some stream has calls of several communicators. */
  get isMixed(): boolean {
    return this.queues.some((queue) => {
      const { first } = queue;
      return queue.items().some(({ comm }) => comm !== first?.comm);
    });
  }

  /** Adds a rank's call to its stream; `rank` is that of the communicator. */
  push(stream: Fifo<Entry>, rank: number, entry: Entry, isMessage: boolean): void {
    if (entry.serial === 0) entry.serial = ++this.#serial;
    this.pushOn(stream, entry, isMessage);
    this.size++;
    this.issued?.push(rank, entry, isMessage);
  }

  /** Removes the first entry of a stream, which has one. */
  shift(stream: Fifo<Entry>): Entry {
    const left = stream.shift() as Entry;
    this.size--;
    this.noteLeft(left);
    const { first } = stream;
    if (first !== undefined && first.comm !== left.comm) this.freed.push(first);
    return left;
  }

  /** Removes entries from a stream, wherever they are; gives them. They may stay in streams of other ranks. */
  remove(stream: Fifo<Entry>, leaves: (entry: Entry) => boolean): readonly Entry[] {
    const { first } = stream;
    const others: Entry[] = [];
    const left: Entry[] = [];
    for (const entry of stream.items()) (leaves(entry) ? left : others).push(entry);
    if (left.length === 0) return left;
    this.size -= left.length;
    this.refill(stream, others);
    if (others[0] !== undefined && others[0] !== first) this.freed.push(others[0]);
    return left;
  }

  /** An entry is in no stream any more, or its communicator has ended. */
  override noteLeft(entry: Entry): void {
    super.noteLeft(entry);
    entry.isOver = true;
    this.issued?.retire(entry);
  }
}

/** Most calls of a rank in the order of issue: a call that stays open for long keeps all later ones in it. */
const maxIssued = 4096;

/**
 * The order in which each rank has made its calls, whatever their streams. A call stays in it while one that some rank has made
 * before it is open: until then another rank may make the two the other way round.
 */
export class IssueOrder<Entry extends StreamEntry> extends StreamQueues<Entry> {
  /** The queues that each call is in. */
  readonly #queues = new Map<Entry, Fifo<Entry>[]>();

  push(rank: number, entry: Entry, isMessage: boolean): void {
    const queue = this.ofComm(entry.comm)[rank] as Fifo<Entry>;
    this.pushOn(queue, entry, isMessage);
    getOrCreate(this.#queues, entry, () => []).push(queue);
    if (queue.length > maxIssued) this.#forget(queue.first as Entry);
  }

  /** Forgets a call once it is over and first on all its ranks; then the calls behind it that have become so. */
  retire(entry: Entry): void {
    const candidates = [entry];
    for (let next = candidates.pop(); next !== undefined; next = candidates.pop()) {
      const ends = [...(next.matched ?? [])] as Entry[];
      if (!this.#queues.has(next) || ![next, ...ends].every((end) => this.#isFirst(end))) continue;
      for (const { first } of this.#forget(next)) if (first !== undefined) candidates.push(first);
      candidates.push(...ends);
    }
  }

  /** True for a call that is over, and first on all its ranks or forgotten. */
  #isFirst(entry: Entry): boolean {
    const queues = this.#queues.get(entry) ?? [];
    return entry.isOver && queues.every(({ first }) => first === entry);
  }

  #forget(entry: Entry): readonly Fifo<Entry>[] {
    const queues = this.#queues.get(entry) ?? [];
    this.#queues.delete(entry);
    this.noteLeft(entry);
    for (const queue of queues) {
      if (queue.first === entry) queue.shift();
      else
        this.refill(
          queue,
          queue.items().filter((each) => each !== entry),
        );
    }
    return queues;
  }
}
