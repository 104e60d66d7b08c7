/** Standard output, which a command may have for its document alone. */
import { syncBuiltinESMExports } from "node:module";

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
