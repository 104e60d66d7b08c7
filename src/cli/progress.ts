/** One line on standard error that says what is being done, and leaves no trace. */
import { escaped } from "../api/error-text.ts";
import type { Context } from "./context.ts";

/** Shows progress on a terminal; does nothing elsewhere. */
export class Progress {
  readonly #context: Context;
  #shown = false;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Replaces the line. */
  show(text: string): void {
    if (!this.#context.terminal) return;
    // A line that the terminal breaks could not be taken away again.
    const most = Math.max(0, (this.#context.columns?.() ?? Number.POSITIVE_INFINITY) - 1);
    this.#erase(escaped(text).slice(0, most));
    this.#shown = true;
  }

  /** Takes the line away; to be called before anything else is written. */
  clear(): void {
    if (!this.#shown) return;
    this.#erase("");
    this.#shown = false;
  }

  /** Takes the line away and writes another text in its place. */
  #erase(text: string): void {
    const { control, err } = this.#context;
    (control ?? err)(`\r\x1b[K${text}`);
  }
}
