/** The report of `twinccl verify`: lines as they come, or, with `--json`, one document at the end. */
import type { Context } from "../context.ts";

/** Takes what was found, and says whether it is good. */
export class Findings {
  readonly #out: Context["out"];
  readonly #json: boolean;
  readonly #rows: object[] = [];
  readonly #facts: object;
  #good = 0;
  #all = 0;

  /** `facts` are what the document says of the whole. */
  constructor({ out }: Pick<Context, "out">, json: boolean, facts: object) {
    this.#out = out;
    this.#json = json;
    this.#facts = facts;
  }

  /** Text that only people read. */
  text(text: string): void {
    if (!this.#json) this.#out(text);
  }

  /** One row: of `all` that were judged, `good` are. */
  row(text: string, row: object, good: number, all: number): void {
    this.text(text);
    this.#rows.push(row);
    this.#good += good;
    this.#all += all;
  }

  /** Ends it; gives the exit status. `word` is what the good ones are. */
  end(word: "identical" | "sound"): number {
    const [good, all] = [this.#good, this.#all];
    if (this.#json) {
      const document = { ...this.#facts, rows: this.#rows, judged: all, [word]: good };
      this.#out(`${JSON.stringify(document, null, 2)}\n`);
    } else this.#out(`verify: ${good} of ${all} ${word}\n`);
    // Where nothing could be compared, nothing was shown.
    return good === all && all > 0 ? 0 : 1;
  }
}
