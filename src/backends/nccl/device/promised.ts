/** Queued work as a promise. */
import type { Waiting } from "../../../api/index.ts";

/** A promise of work that begins with a `Waiting`. */
export function promised(begin: (waiting: Waiting) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const settled = (error: unknown): void => (error === undefined ? resolve() : reject(error));
    begin({ takesMore: false, settled });
  });
}
