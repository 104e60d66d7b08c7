/** The output of a command: a line of progress on standard error, and standard output for its document alone. */

import { syncBuiltinESMExports } from "node:module";
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

/** Standard output of the process, also after `reserveOutput`. */
export const standardOutput = process.stdout;

/**
 * Reserves standard output for writes to `standardOutput`: from here on `process.stdout` and `console` write to standard
 * error. A child process that inherits the descriptor, and a C library, still reach it.
 */
export function reserveOutput(): void {
  Object.defineProperty(process, "stdout", {
    configurable: true,
    enumerable: true,
    get: () => process.stderr,
  });
  // Named imports of node:process are copies.
  syncBuiltinESMExports();
}
