/** The private file that NCCL logs to, read from where the last look ended. */
import { closeSync, openSync, readSync, rmSync } from "node:fs";
import { join } from "node:path";
import { privateFolder, withFiles } from "./private-files.ts";
import type { Variables } from "./variables.ts";

/** NCCL writes each line at once, so that whatever a finished call logged is there. */
export class PlanLogFile {
  readonly variables: Variables;
  readonly #folder: string;
  readonly #file: number;
  readonly #chunk = Buffer.alloc(65_536);
  #position = 0;
  /** The beginning of an incomplete line. */
  #rest = "";
  readonly #remove = (): void => rmSync(this.#folder, { recursive: true, force: true });

  constructor() {
    this.#folder = privateFolder("twinccl-plan-");
    const path = join(this.#folder, "nccl.log");
    // NCCL opens it again and empties it.
    this.#file = withFiles(`${path} cannot be opened`, () => openSync(path, "w+", 0o600));
    this.variables = {
      NCCL_DEBUG: "INFO",
      NCCL_DEBUG_SUBSYS: "INIT,GRAPH,TUNING",
      // A per cent sign would begin one of NCCL's place-holders.
      NCCL_DEBUG_FILE: path.replaceAll("%", "%%"),
    };
    process.once("exit", this.#remove);
  }

  /** The whole lines that came since the last look. */
  newLines(): string[] {
    for (;;) {
      const count = readSync(this.#file, this.#chunk, 0, this.#chunk.length, this.#position);
      if (count === 0) break;
      this.#position += count;
      this.#rest += this.#chunk.toString("latin1", 0, count);
    }
    const lines = this.#rest.split("\n");
    this.#rest = lines.pop() ?? "";
    return lines;
  }

  /** Removes it; what NCCL still writes goes nowhere. */
  close(): void {
    process.removeListener("exit", this.#remove);
    closeSync(this.#file);
    this.#remove();
  }
}
