/** The output of a command: a line of progress on standard error, and standard output for its document alone. */

import { syncBuiltinESMExports } from "node:module";
import { escaped } from "../api/error-text.ts";
import type { Context } from "./context.ts";

/** The line of progress on a terminal; nothing elsewhere. */
export class ProgressLine {
  readonly #context: Pick<Context, "err" | "terminal" | "columns">;
  #shown = false;

  /** `err` writes control sequences too. */
  constructor(context: Pick<Context, "err" | "terminal" | "columns">) {
    this.#context = context;
  }

  /** Replaces the line. */
  show(text: string): void {
    if (!this.#context.terminal) return;
    // A line that the terminal wraps could not be erased.
    // Some terminals have 0 columns: their width is unknown.
    const most = (this.#context.columns?.() || Number.POSITIVE_INFINITY) - 1;
    this.#erase(escaped(text).slice(0, most));
    this.#shown = true;
  }

  /** Erases the line. */
  clear(): void {
    if (!this.#shown) return;
    this.#erase("");
    this.#shown = false;
  }

  /** Erases the line and writes another text. */
  #erase(text: string): void {
    this.#context.err(`\r\x1b[K${text}`);
  }
}

/** Standard output of the process, also after `reserveOutput`. */
export const standardOutput = process.stdout;

/** Exit status of a process whose output has no reader any more: that of SIGPIPE. */
export const closedPipeStatus = 141;

/** Called once an output has no reader any more; without a listener the end of standard output ends the process. */
export const onOutputClosed = new Set<() => void>();

/**
 * Reserves standard output for writes to `standardOutput`: afterwards `process.stdout` and `console` write to standard error.
 * Child processes that inherit the descriptor, and C libraries, can still write to it.
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
