/** Files that NCCL and this process exchange, in private folders. */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BackendUnavailableError } from "../../../api/index.ts";

/**
 * Makes a folder that this user alone can enter, where temporary files lie.
 *
 * @throws BackendUnavailableError where none can be made.
 */
export function privateFolder(prefix: string): string {
  const place = tmpdir();
  return withFiles(`no folder can be made in ${place}`, () => mkdtempSync(join(place, prefix)));
}

/** Does something with files; `fault` is what cannot be done where it throws. */
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
