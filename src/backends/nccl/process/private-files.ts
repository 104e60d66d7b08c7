/** Private folders for files exchanged with NCCL. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BackendUnavailableError } from "../../../api/index.ts";

/** A temporary folder that only this user can access, until `remove` or the end of the process. */
export class PrivateFolder {
  readonly #path: string;

  /** @throws BackendUnavailableError if no folder can be created. */
  constructor(prefix: string) {
    const place = tmpdir();
    this.#path = withFiles(`no folder can be made in ${place}`, () =>
      mkdtempSync(join(place, prefix)),
    );
    process.once("exit", this.remove);
  }

  /** The path of a file in it. */
  file(name: string): string {
    return join(this.#path, name);
  }

  readonly remove = (): void => {
    process.removeListener("exit", this.remove);
    rmSync(this.#path, { recursive: true, force: true });
  };
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
