/** Helpers for cleanup and promises. Other folders of the backend use them; they use none of these. */
import type { Completion } from "../../../api/backend-entry.ts";

/** Runs every step, also after one threw; then throws the first error. */
export function runAll(steps: Iterable<() => void>): void {
  let failure: { readonly error: unknown } | undefined;
  for (const step of steps) {
    try {
      step();
    } catch (error) {
      failure ??= { error };
    }
  }
  if (failure !== undefined) throw failure.error;
}

/** A promise of work that begins with a `Completion`. */
export function asPromise(begin: (completion: Completion) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const settled = (error: unknown): void => (error === undefined ? resolve() : reject(error));
    begin({ acceptsMore: false, settled });
  });
}
