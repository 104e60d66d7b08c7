/** Things that take long to open, kept open between uses: one of each size. */

/** Something open. */
interface Open {
  close(): Promise<void>;
}

/** At most one open thing of each size. */
export class KeptOpen<T extends Open> {
  readonly #open: (size: number) => Promise<T>;
  readonly #kept = new Map<number, T>();

  constructor(open: (size: number) => Promise<T>) {
    this.#open = open;
  }

  /** Uses the one of a size, alone. One that something went wrong in is closed, and the next use opens another. */
  async use<R>(size: number, use: (open: T) => Promise<R>): Promise<R> {
    const open = this.#kept.get(size) ?? (await this.#open(size));
    this.#kept.delete(size);
    let result: R;
    try {
      result = await use(open);
    } catch (error) {
      await open.close();
      throw error;
    }
    this.#kept.set(size, open);
    return result;
  }

  /** Closes what is open, all at once. */
  async close(): Promise<void> {
    const kept = [...this.#kept.values()];
    this.#kept.clear();
    await Promise.all(kept.map((each) => each.close()));
  }
}
