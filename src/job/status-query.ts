/**
 * Status queries among the processes of a job, sent when a deadline passes.
 *
 * Every process waits for the next query at a key of the job's store, and answers with its status. A process that leaves stores
 * a final status: it may have abandoned a call that others still wait for. A process that is blocked or gone does not answer.
 */
import { setMaxListeners } from "node:events";
import type { GetOptions, Membership } from "./rendezvous.ts";

/** Longest wait for one answer, and for all of them where the store is busy. */
const [answerMs, allMs] = [1000, 3000];

/** Queries up to this age are shared; where clocks differ by more, each process sends its own. */
const newMs = 250;

/** The wait for a query, repeated without end. Any rank may send one, whichever ranks are lost. */
const queryWait: GetOptions = { timeoutMs: 600_000, idle: true, needs: [] };

/** The answer of a rank; `undefined` where there is none. */
export type RankAnswers = (rank: number) => Promise<string | undefined>;

/** Sends and answers the queries of one process. */
export class StatusQuery {
  readonly #membership: Membership;
  readonly #status: (about?: string) => string;
  readonly #end = new AbortController();
  #next = 0;

  /** `status` gives the answer to a query, or the final status. */
  constructor(membership: Membership, status: (about?: string) => string) {
    this.#membership = membership;
    this.#status = status;
    void this.#answerQueries();
  }

  /** Sends a query; gives what `evaluate` makes of the answers. `undefined` where the store does not answer. */
  async query<T>(
    about: string,
    evaluate: (answers: RankAnswers) => Promise<T>,
  ): Promise<T | undefined> {
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), allMs).unref();
    const signal = AbortSignal.any([over.signal, this.#end.signal]);
    // Each rank's answers listen to it: with many ranks Node.js would warn of a leak.
    setMaxListeners(0, signal);
    try {
      const key = await this.#post(about, signal);
      if (key === undefined) return undefined;
      return await evaluate(async (rank) => {
        if (rank === this.#membership.rank) return this.#status(about);
        // A lost rank ends the wait for its own answer only.
        const bounds = { needs: [rank] };
        const keys = [`${key} ${rank}`, finalStatusKey(rank)].map((at) =>
          this.#get(at, signal, bounds),
        );
        return Promise.any(keys).catch(() => undefined);
      });
    } finally {
      clearTimeout(timer);
      over.abort();
    }
  }

  /** Stops answering, and stores the final status for later queries. */
  end(): void {
    if (this.#end.signal.aborted) return;
    this.#end.abort();
    this.#set(finalStatusKey(this.#membership.rank), this.#status()).catch(() => undefined);
  }

  /**
   * Posts a query and gives its key. An equal query that another rank posts at this moment is shared. `undefined` where the
   * store does not answer.
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
        // A store that is full leaves the query without this answer.
        await this.#set(`${key} ${this.#membership.rank}`, this.#status(about)).catch(
          () => undefined,
        );
      } catch (error) {
        // Any other error than the timeout of an idle wait ends the generation.
        if ((error as { code?: string }).code !== "ERR_COMM_TIMEOUT") return;
      }
    }
  }

  #set(key: string, text: string): Promise<void> {
    return this.#membership.set(key, new TextEncoder().encode(text));
  }

  async #get(key: string, signal: AbortSignal, how: GetOptions = {}): Promise<string> {
    const options = { timeoutMs: answerMs, ...how, signal };
    return new TextDecoder().decode(await this.#membership.get(key, options));
  }
}

/** True for an equal and recent query. An older one has answers of an earlier time. */
function isSameQuery(posted: string, about: string): boolean {
  const at = posted.lastIndexOf(" ");
  return posted.slice(0, at) === about && Math.abs(Date.now() - Number(posted.slice(at))) < newMs;
}

function queryKey(number: number): string {
  return `query ${number}`;
}

/** The key of the final status of a process. */
function finalStatusKey(rank: number): string {
  return `final status ${rank}`;
}
