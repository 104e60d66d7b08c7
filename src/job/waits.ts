/**
 * Waits of ranks in a generation: for what another rank brings, a key or the answer to a question, and for each other, at
 * barriers.
 *
 * A rank may bring a value to a barrier, and then gets those of all. It waits at several at once, and all ranks of connected
 * barriers are released together. A released rank may block its process until the other ranks of its barriers do the same. No
 * rank is released while one of them waits at an incomplete barrier, because the store itself may be in the process of a blocked
 * rank.
 */
import { limits } from "./protocol.ts";
import type { Barrier as BarrierName } from "./rendezvous.ts";

/** An open wait of a rank, with its deadline. */
export interface Wait {
  /** The awaited key, or question. */
  readonly key: string;
  readonly rank: number;
  readonly id: number;
  readonly timer: NodeJS.Timeout;
}

/** Open waits, by their keys and by their ranks. */
export class Waits<W extends Wait> {
  readonly #byKey = new Map<string, Set<W>>();
  readonly #byRank = new Map<number, Set<W>>();

  add(wait: W): void {
    this.#byKey.set(wait.key, (this.#byKey.get(wait.key) ?? new Set()).add(wait));
    this.#byRank.set(wait.rank, (this.#byRank.get(wait.rank) ?? new Set()).add(wait));
  }

  all(): readonly W[] {
    return Array.from(this.#byKey.values(), (waits) => [...waits]).flat();
  }

  ofKey(key: string): ReadonlySet<W> {
    return this.#byKey.get(key) ?? new Set();
  }

  ofRank(rank: number): ReadonlySet<W> {
    return this.#byRank.get(rank) ?? new Set();
  }

  /** The waits of each key. */
  groups(): Iterable<ReadonlySet<W>> {
    return this.#byKey.values();
  }

  /** Ends waits, and gives them. */
  end(waits: Iterable<W>): readonly W[] {
    const ended = [...waits];
    for (const wait of ended) {
      clearTimeout(wait.timer);
      remove(this.#byKey, wait.key, wait);
      remove(this.#byRank, wait.rank, wait);
    }
    return ended;
  }
}

function remove<K, W>(groups: Map<K, Set<W>>, key: K, wait: W): void {
  const group = groups.get(key);
  group?.delete(wait);
  if (group?.size === 0) groups.delete(key);
}

/** The arrival of a rank, with a deadline. */
interface Arrival {
  readonly timer: NodeJS.Timeout;
}

/** The arrivals at one barrier. */
export class Barrier<A extends Arrival> {
  readonly #arrivals = new Map<number, A>();

  /** Ranks that have arrived, in the order of their arrival. */
  get arrived(): readonly number[] {
    return [...this.#arrivals.keys()];
  }

  get isEmpty(): boolean {
    return this.#arrivals.size === 0;
  }

  of(rank: number): A | undefined {
    return this.#arrivals.get(rank);
  }

  entries(): readonly (readonly [number, A])[] {
    return [...this.#arrivals];
  }

  arrive(rank: number, arrival: A): void {
    this.#arrivals.set(rank, arrival);
  }

  leave(rank: number): void {
    clearTimeout(this.#arrivals.get(rank)?.timer);
    this.#arrivals.delete(rank);
  }

  /** Those of some ranks that have not arrived. */
  missing(ranks: readonly number[]): number[] {
    return ranks.filter((rank) => !this.#arrivals.has(rank));
  }

  /** Removes all arrivals, by rank. */
  takeAll(): readonly (readonly [number, A])[] {
    const all = this.entries().toSorted(([a], [b]) => a - b);
    for (const [rank] of all) this.leave(rank);
    return all;
  }
}

/** The wait of one rank at barriers of a generation. */
export interface BarrierWait extends Arrival {
  readonly rank: number;
  readonly id: number;
  readonly barriers: readonly BarrierName[];
  /** At one barrier alone. */
  readonly value: Uint8Array | undefined;
}

/** The barriers of a generation, by key. A key may be used again once its barrier was held. */
export class Barriers {
  readonly #waits = new Set<BarrierWait>();
  /** Barriers at which each rank waits. */
  readonly #counts = new Map<number, number>();
  /** The k-th of a key pairs the k-th arrivals of its ranks. */
  readonly #byKey = new Map<string, Barrier<BarrierWait>[]>();
  #bytes = 0;

  /** Bytes of the values that wait. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds a wait; returns the waits that are released by it. */
  arrive(wait: BarrierWait): readonly BarrierWait[] {
    this.#waits.add(wait);
    this.#bytes += bytesOf(wait);
    this.#count(wait.rank, wait.barriers.length);
    for (const { key } of wait.barriers) this.#openTo(wait.rank, key).arrive(wait.rank, wait);
    const together = this.#releasable(wait);
    for (const each of together) this.leave(each);
    return together;
  }

  /** Removes a wait. */
  leave(wait: BarrierWait): void {
    clearTimeout(wait.timer);
    if (!this.#waits.delete(wait)) return;
    this.#bytes -= bytesOf(wait);
    this.#count(wait.rank, -wait.barriers.length);
    for (const { key } of wait.barriers) {
      const rounds = this.#byKey.get(key) ?? [];
      rounds.find((each) => each.of(wait.rank) === wait)?.leave(wait.rank);
      const left = rounds.filter((each) => !each.isEmpty);
      if (left.length === 0) this.#byKey.delete(key);
      else this.#byKey.set(key, left);
    }
  }

  /** Number of barriers at which a rank waits. */
  countOf(rank: number): number {
    return this.#counts.get(rank) ?? 0;
  }

  #count(rank: number, more: number): void {
    this.#counts.set(rank, this.countOf(rank) + more);
  }

  /** True where a rank waits at a key as often as it may. */
  isFull(rank: number, key: string): boolean {
    const rounds = this.#byKey.get(key) ?? [];
    return rounds.length >= limits.rounds && rounds.every((each) => each.of(rank) !== undefined);
  }

  /** Bytes of the values at the barrier of a key that is open to a rank. */
  bytesAt(rank: number, key: string): number {
    const round = this.#byKey.get(key)?.find((each) => each.of(rank) === undefined);
    const waits = round?.entries() ?? [];
    return waits.reduce((sum, [, { value }]) => sum + (value?.byteLength ?? 0), 0);
  }

  /** Waits that fulfil a condition. */
  waiting(which: (wait: BarrierWait) => boolean): BarrierWait[] {
    return [...this.#waits].filter(which);
  }

  /** Ranks that have not arrived where a rank waits, or would wait with its next arrival. */
  missing({ rank, barriers }: Pick<BarrierWait, "rank" | "barriers">, own?: BarrierWait): number[] {
    const missing = new Set<number>();
    for (const { key, ranks } of barriers) {
      const round = this.#byKey.get(key)?.find((each) => each.of(rank) === own);
      for (const each of round?.missing(ranks) ?? ranks) missing.add(each);
    }
    return [...missing].sort((a, b) => a - b);
  }

  /** The first barrier of a key at which a rank does not wait yet. */
  #openTo(rank: number, key: string): Barrier<BarrierWait> {
    const rounds = this.#byKey.get(key) ?? [];
    this.#byKey.set(key, rounds);
    const open = rounds.find((each) => each.of(rank) === undefined) ?? new Barrier();
    if (!rounds.includes(open)) rounds.push(open);
    return open;
  }

  /** A wait and all waits that its barriers connect, directly or not; none while a rank is missing. */
  #releasable(first: BarrierWait): readonly BarrierWait[] {
    const together = new Set([first]);
    for (const wait of together) {
      for (const { key, ranks } of wait.barriers) {
        const round = this.#byKey.get(key)?.find((each) => each.of(wait.rank) === wait);
        for (const rank of ranks) {
          const other = round?.of(rank);
          if (other === undefined) return [];
          together.add(other);
        }
      }
    }
    return [...together].sort((a, b) => a.rank - b.rank);
  }
}

/** The memory of a value: also an empty one takes some. */
export function heldBytes(key: string, value: Uint8Array): number {
  return limits.entryBytes + Buffer.byteLength(key) + value.byteLength;
}

function bytesOf({ value, barriers }: BarrierWait): number {
  return value === undefined ? 0 : heldBytes(barriers[0]?.key ?? "", value);
}
