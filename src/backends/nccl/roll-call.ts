/**
 * What the processes of a job ask each other when a deadline passes.
 *
 * Every process waits for the next question at a key of the job's store, and answers in words about what it has made until
 * then. One that leaves says so for good: it may have given up the call that others are still waiting for. A process that is
 * blocked or gone does not answer.
 */
import type { Membership } from "./rendezvous/index.ts";

/** How long answers are waited for. */
const answerMs = 1000;

/** How long one wait for a question lasts; it is then begun anew. */
const questionMs = 600_000;

/** One question to all. */
export interface Asked {
  /** What a rank says; `undefined` where it does not answer. */
  of(rank: number): Promise<string | undefined>;
  /** Nobody is waited for any more. */
  over(): void;
}

/** Asks and answers on behalf of one process, about one subject. */
export class RollCall {
  readonly #membership: Membership;
  readonly #subject: string;
  readonly #words: () => string;
  readonly #end = new AbortController();
  #next = 0;

  /** `words` are what this process says. */
  constructor(membership: Membership, subject: string, words: () => string) {
    this.#membership = membership;
    this.#subject = subject;
    this.#words = words;
    void this.#answer();
  }

  async ask(): Promise<Asked> {
    const key = this.#question;
    // Somebody else may have asked at the same moment; then the answers to that question serve as well.
    await this.#membership.set(key, new Uint8Array(0)).catch(() => undefined);
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, this.#end.signal]);
    const get = (words: string): Promise<Uint8Array> =>
      this.#membership.get(words, { timeoutMs: answerMs, signal });
    const answers = new Map<number, Promise<string | undefined>>();
    const hear = async (rank: number): Promise<string | undefined> => {
      if (rank === this.#membership.rank) return this.#words();
      const words = [get(`${key} ${rank}`), get(this.#lastWords(rank))];
      const answer = await Promise.any(words).catch(() => undefined);
      return answer && new TextDecoder().decode(answer);
    };
    return {
      of(rank) {
        const answer = answers.get(rank) ?? hear(rank);
        answers.set(rank, answer);
        return answer;
      },
      over: () => over.abort(),
    };
  }

  /** Stops answering. What this process has made by now is left for those who ask later. */
  end(): void {
    if (this.#end.signal.aborted) return;
    this.#end.abort();
    void this.#say(this.#lastWords(this.#membership.rank)).catch(() => undefined);
  }

  async #answer(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      const key = this.#question;
      try {
        await this.#membership.get(key, { timeoutMs: questionMs, signal });
        this.#next++;
        await this.#say(`${key} ${this.#membership.rank}`);
      } catch (error) {
        // The generation is broken, or nothing was asked for a long time.
        if ((error as { code?: string }).code !== "ERR_COMM_TIMEOUT") return;
      }
    }
  }

  get #question(): string {
    return `roll call of ${this.#subject} ${this.#next}`;
  }

  /** Where a process that leaves says what it has made. */
  #lastWords(rank: number): string {
    return `${this.#subject} made by ${rank}`;
  }

  #say(key: string): Promise<void> {
    return this.#membership.set(key, new TextEncoder().encode(this.#words()));
  }
}
