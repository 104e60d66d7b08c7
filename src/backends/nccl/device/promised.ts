/** Queued work as a promise. */
import type { Completion } from "../../../api/index.ts";

/** A promise of work that begins with a `Completion`. */
export function promised(begin: (waiting: Completion) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const settled = (error: unknown): void => (error === undefined ? resolve() : reject(error));
    begin({ acceptsMore: false, settled });
  });
}
