/** Private folders for files exchanged with NCCL. */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BackendUnavailableError } from "../../../api/index.ts";

/**
 * Creates a temporary folder that only this user can access.
 *
 * @throws BackendUnavailableError if no folder can be created.
 */
export function privateFolder(prefix: string): string {
  const place = tmpdir();
  return withFiles(`no folder can be made in ${place}`, () => mkdtempSync(join(place, prefix)));
}

/** Runs an action on files; an error of it becomes one that begins with `fault`. */
export function withFiles<T>(fault: string, action: () => T): T {
  try {
    return action();
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new BackendUnavailableError(
      {
        headline: `nccl: ${fault}: ${reason}`,
        hint: "NCCL's log and graph files lie where TMPDIR says: name a folder that exists and can be written",
      },
      { cause },
    );
  }
}
