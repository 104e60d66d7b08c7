/**
 * Who has not made a call: ranks of other processes are asked when a deadline passes.
 *
 * Every process waits for the next question at a key of the job's store and answers how many calls it has made on each
 * communicator. A process that is blocked or gone does not answer, and is missing too.
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
    const options = { timeoutMs: answerMs, signal: this.#end.signal };
    const others = comm.ranks.filter((each) => each !== rank && each < size);
    const answers = await Promise.all(
      others.map(async (each) => {
        const answer = await this.#membership.get(`${key} ${each}`, options).catch(() => undefined);
        const made = answer && (JSON.parse(new TextDecoder().decode(answer)) as Made);
        return (made?.[this.#keyOf(comm)] ?? 0) > number ? [] : [each];
      }),
    );
    return answers.flat();
  }

  /** Stops answering. */
  end(): void {
    this.#end.abort();
  }

  async #answer(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      const key = `roll call ${this.#next}`;
      try {
        await this.#membership.get(key, { timeoutMs: questionMs, signal });
        const answer = new TextEncoder().encode(JSON.stringify(this.#made()));
        this.#next++;
        await this.#membership.set(`${key} ${this.#membership.rank}`, answer);
      } catch (error) {
        // The generation is broken, or nothing was asked for a long time.
        if ((error as { code?: string }).code !== "ERR_COMM_TIMEOUT") return;
      }
    }
  }
}
