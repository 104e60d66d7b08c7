/** When a ledger has nothing to do any more: those who wait for that are told. */
export class Quiet {
  readonly #atRest: () => boolean;
  readonly #moved: () => void;
  #settling = 0;
  #waiting: (() => void)[] = [];

  /** `atRest` says whether no call is at work; `moved` is told whenever ranks were woken. */
  constructor(atRest: () => boolean, moved: () => void) {
    this.#atRest = atRest;
    this.#moved = moved;
  }

  /** Resolves when no call is at work or about to wake its ranks. */
  reached(): Promise<void> {
    if (this.#isReached) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Something is over. */
  look(): void {
    if (this.#waiting.length === 0 || !this.#isReached) return;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  /** Two microtasks from now, when the last rank to post has had its `await` reach the operation. */
  later(settle: () => void): void {
    this.#settling++;
    queueMicrotask(() =>
      queueMicrotask(() => {
        this.#settling--;
        settle();
        this.#moved();
        this.look();
      }),
    );
  }

  get #isReached(): boolean {
    return this.#settling === 0 && this.#atRest();
  }
}
