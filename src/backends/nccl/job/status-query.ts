/**
 * Queries among the processes of a job when a deadline passes.
 *
 * Every process waits for the next question at a key of the job's store, and answers in words about what it has made until
 * then. One that leaves says so for good: it may have given up the call that others are still waiting for. A process that is
 * blocked or gone does not answer.
 */
import { setMaxListeners } from "node:events";
import type { GetOptions, Membership } from "../rendezvous/index.ts";

/** Longest wait for an answer in the store, and for all of them where the store itself is busy or silent. */
const [answerMs, allMs] = [1000, 3000];

/** The age up to which a question is new; where clocks differ by more, each process sends its own. */
const newMs = 250;

/** The length of a wait for a question, which is then repeated: any rank may send one, whatever ranks are lost. */
const queryWait: GetOptions = { timeoutMs: 600_000, idle: true, needs: [] };

/** The answers of ranks to a question; `undefined` of one without an answer. */
export type RankAnswers = (rank: number) => Promise<string | undefined>;

/** Asks and answers on behalf of one process. */
export class StatusQuery {
  readonly #membership: Membership;
  readonly #status: (about?: string) => string;
  readonly #end = new AbortController();
  #next = 0;

  /** `words` are what this process says to a question, and when it leaves. */
  constructor(membership: Membership, words: (about?: string) => string) {
    this.#membership = membership;
    this.#status = words;
    void this.#answerQueries();
  }

  /** Asks all; what `hear` makes of the answers. `undefined` where the store does not answer. */
  async query<T>(
    about: string,
    hear: (answers: RankAnswers) => Promise<T>,
  ): Promise<T | undefined> {
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), allMs).unref();
    const signal = AbortSignal.any([over.signal, this.#end.signal]);
    // Each rank's answers listen to it: with many ranks Node.js would warn of a leak.
    setMaxListeners(0, signal);
    try {
      const key = await this.#post(about, signal);
      if (key === undefined) return undefined;
      return await hear(async (rank) => {
        if (rank === this.#membership.rank) return this.#status(about);
        // One that is lost says nothing; the others go on, and so do their answers.
        const its = { needs: [rank] };
        const words = [`${key} ${rank}`, finalStatusKey(rank)].map((at) =>
          this.#get(at, signal, its),
        );
        return Promise.any(words).catch(() => undefined);
      });
    } finally {
      clearTimeout(timer);
      over.abort();
    }
  }

  /** Stops answering. The calls that this process has made by now are left for later questions. */
  end(): void {
    if (this.#end.signal.aborted) return;
    this.#end.abort();
    this.#set(finalStatusKey(this.#membership.rank), this.#status()).catch(() => undefined);
  }

  /**
   * The key of a new question: other ranks may send the same at this moment, and the answers serve all of them.
   * `undefined` where that cannot be done.
   */
  async #post(about: string, signal: AbortSignal): Promise<string | undefined> {
    const ended = new Promise<undefined>((resolve) => {
      signal.addEventListener("abort", () => resolve(undefined), { once: true });
    });
    for (let number = this.#next; !signal.aborted; number++) {
      const key = queryKey(number);
      const isSet = this.#set(key, `${about} ${Date.now()}`).then(
        () => true,
        (error: { field?: string }) => (error.field === "key" ? false : undefined),
      );
      const outcome = await Promise.race([isSet, ended]);
      if (outcome !== false) return outcome && key;
      const taken = await this.#get(key, signal).catch(() => "");
      if (isSameQuery(taken, about)) return key;
    }
    return undefined;
  }

  async #answerQueries(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      const key = queryKey(this.#next);
      try {
        const about = await this.#get(key, signal, queryWait);
        this.#next++;
        // Where the store takes no more this question stays without an answer.
        await this.#set(`${key} ${this.#membership.rank}`, this.#status(about)).catch(
          () => undefined,
        );
      } catch (error) {
        // The generation is over, or no question came for a long time.
        if ((error as { code?: string }).code !== "ERR_COMM_TIMEOUT") return;
      }
    }
  }

  #set(key: string, words: string): Promise<void> {
    return this.#membership.set(key, new TextEncoder().encode(words));
  }

  async #get(key: string, signal: AbortSignal, how: GetOptions = {}): Promise<string> {
    const options = { timeoutMs: answerMs, ...how, signal };
    return new TextDecoder().decode(await this.#membership.get(key, options));
  }
}

/** True when a question is the same and new: one that was sent while this thread was busy has answers of then. */
function isSameQuery(asked: string, about: string): boolean {
  const at = asked.lastIndexOf(" ");
  return asked.slice(0, at) === about && Math.abs(Date.now() - Number(asked.slice(at))) < newMs;
}

function queryKey(number: number): string {
  return `query ${number}`;
}

/** Where a process that leaves says what it has made. */
function finalStatusKey(rank: number): string {
  return `final status ${rank}`;
}
