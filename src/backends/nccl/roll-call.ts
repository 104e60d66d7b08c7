/**
 * Who has not made a call: ranks of other processes are asked when a deadline passes.
 *
 * Every process waits for the next question at a key of the job's store and answers how many calls it has made on each
 * communicator. One that leaves says so for good: it may have given up the call that others are still waiting for. A process
 * that is blocked or gone does not answer, and is missing too.
 */
import type { CommInfo } from "../../api/index.ts";
import type { Membership } from "./rendezvous/index.ts";

/** How long answers are waited for. */
const answerMs = 1000;

/** How long one wait for a question lasts; it is then begun anew. */
const questionMs = 600_000;

/** Calls made, by communicator. */
export type Made = Readonly<Record<string, number>>;

/** Asks and answers on behalf of one process. */
export class RollCall {
  readonly #membership: Membership;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #made: () => Made;
  readonly #end = new AbortController();
  #next = 0;

  /** `keyOf` names a communicator alike in every process. */
  constructor(membership: Membership, keyOf: (comm: CommInfo) => string, made: () => Made) {
    this.#membership = membership;
    this.#keyOf = keyOf;
    this.#made = made;
    void this.#answer();
  }

  /** World ranks of a communicator that have not made call `number`, or do not answer. */
  async missing(comm: CommInfo, number: number): Promise<number[]> {
    const { rank, size } = this.#membership;
    const key = `roll call ${this.#next}`;
    // Somebody else may have asked at the same moment; then the answers to that question serve as well.
    await this.#membership.set(key, new Uint8Array(0)).catch(() => undefined);
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, this.#end.signal]);
    const ask = (words: string): Promise<Uint8Array> =>
      this.#membership.get(words, { timeoutMs: answerMs, signal });
    const others = comm.ranks.filter((each) => each !== rank && each < size);
    const answers = await Promise.all(
      others.map(async (each) => {
        const words = [ask(`${key} ${each}`), ask(lastWords(each))];
        const answer = await Promise.any(words).catch(() => undefined);
        const made = answer && (JSON.parse(new TextDecoder().decode(answer)) as Made);
        return (made?.[this.#keyOf(comm)] ?? 0) > number ? [] : [each];
      }),
    );
    over.abort();
    return answers.flat();
  }

  /** Stops answering. What this process has made by now is left for those who ask later. */
  end(): void {
    if (this.#end.signal.aborted) return;
    this.#end.abort();
    const { rank } = this.#membership;
    this.#membership.set(lastWords(rank), this.#words()).catch(() => undefined);
  }

  async #answer(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      const key = `roll call ${this.#next}`;
      try {
        await this.#membership.get(key, { timeoutMs: questionMs, signal });
        this.#next++;
        await this.#membership.set(`${key} ${this.#membership.rank}`, this.#words());
      } catch (error) {
        // The generation is broken, or nothing was asked for a long time.
        if ((error as { code?: string }).code !== "ERR_COMM_TIMEOUT") return;
      }
    }
  }

  #words(): Uint8Array {
    return new TextEncoder().encode(JSON.stringify(this.#made()));
  }
}

/** Where a process that leaves says what it has made. */
function lastWords(rank: number): string {
  return `made ${rank}`;
}
