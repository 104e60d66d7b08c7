/** Waits of ranks for what another rank brings: a key, or the answer to a question. */

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
