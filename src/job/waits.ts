/** Waits of ranks for what another rank brings: a key, or the answer to a question. */

/** An open wait of a rank, with its deadline. */
export interface Wait {
  readonly rank: number;
  readonly id: number;
  readonly timer: NodeJS.Timeout;
}

/** Open waits, by what they wait for. */
export class Waits<W extends Wait> {
  readonly #byKey = new Map<string, Set<W>>();
  readonly #counts = new Map<number, number>();

  /** Number of waits of a rank. */
  countOf(rank: number): number {
    return this.#counts.get(rank) ?? 0;
  }

  add(key: string, wait: W): void {
    this.#byKey.set(key, (this.#byKey.get(key) ?? new Set()).add(wait));
    this.#counts.set(wait.rank, this.countOf(wait.rank) + 1);
  }

  /** The first wait of each key. */
  *firsts(): Iterable<readonly [string, W]> {
    for (const [key, [first]] of this.#byKey) if (first !== undefined) yield [key, first];
  }

  /** The first wait of a key. */
  first(key: string): W | undefined {
    const [first] = this.#byKey.get(key) ?? [];
    return first;
  }

  /** Ends the waits that fulfil a condition, and gives them. */
  take(which: (wait: W, key: string) => boolean): readonly W[] {
    return Array.from(this.#byKey.keys()).flatMap((key) =>
      this.takeOf(key, (wait) => which(wait, key)),
    );
  }

  /** Ends the waits of a key that fulfil a condition, and gives them. */
  takeOf(key: string, which: (wait: W) => boolean = () => true): readonly W[] {
    const waits = this.#byKey.get(key) ?? new Set();
    const taken = [...waits].filter(which);
    for (const wait of taken) {
      clearTimeout(wait.timer);
      waits.delete(wait);
      this.#counts.set(wait.rank, this.countOf(wait.rank) - 1);
    }
    if (waits.size === 0) this.#byKey.delete(key);
    return taken;
  }
}
