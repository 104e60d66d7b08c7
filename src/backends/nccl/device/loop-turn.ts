/** How long the event loop has been at one turn: promises that resolve others keep it there for as long as they like. */
export class LoopTurn {
  /** When it was first asked in this turn. */
  #sinceMs: number | undefined;
  readonly #ended = (): void => {
    this.#sinceMs = undefined;
  };

  /** Milliseconds since somebody asked first, at a time of `performance.now`. */
  ageMs(nowMs: number): number {
    if (this.#sinceMs === undefined) {
      this.#sinceMs = nowMs;
      setImmediate(this.#ended);
    }
    return nowMs - this.#sinceMs;
  }
}
