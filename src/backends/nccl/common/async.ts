/** A helper for promises. Other folders of the backend use it; it uses none of these. */
import type { Completion } from "../../../api/backend-entry.ts";

/** A promise of work that begins with a `Completion`. */
export function asPromise(begin: (completion: Completion) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const settled = (error: unknown): void => (error === undefined ? resolve() : reject(error));
    begin({ acceptsMore: false, settled });
  });
}
