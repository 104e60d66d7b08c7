/** Queued work as a promise. */
import type { Waiting } from "../../../api/index.ts";

/** A promise of what is begun with somebody who waits. */
export function promised(begin: (waiting: Waiting) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const settled = (error: unknown): void => (error === undefined ? resolve() : reject(error));
    begin({ takesMore: false, settled });
  });
}
