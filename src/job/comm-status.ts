/**
 * Communicators that another process has ended, in the job's store.
 *
 * A process that aborts a communicator sets a key. A process that closes one without the others sets a key with the calls it has
 * submitted there. Processes that wait query the keys. Once others have formed the next generation without this process, the
 * keys are gone and all communicators are over. Ranks are those of the job.
 */
import type { CommInfo, RemoteEnd } from "../api/backend-entry.ts";
import { firstLine } from "../api/error-text.ts";
import type { CallCounters } from "./call-counters.ts";
import { WentOnError } from "./errors.ts";
import type { Membership } from "./rendezvous.ts";

/** A missing key is not waited for. */
const now = { timeoutMs: 1, idle: true } as const;

/** The first process that aborted a communicator. */
interface AbortRecord {
  readonly rank: number;
  readonly why: string;
}

/** A process that closed a communicator, with its counters. */
interface CloseRecord {
  readonly rank: number;
  readonly submitted: number;
  readonly posted: readonly (readonly [pair: number, count: number])[];
}

/** The reports and the queries of one process. `keyOf` gives a communicator the same name in every process. */
export class CommStatus {
  readonly #membership: Membership;
  readonly #keyOf: (comm: CommInfo) => string;

  constructor(membership: Membership, keyOf: (comm: CommInfo) => string) {
    this.#membership = membership;
    this.#keyOf = keyOf;
  }

  /** This process has aborted its end. */
  reportAborted(comm: CommInfo, reason: unknown): void {
    const why = firstLine(reason).slice(0, 1000);
    const record: AbortRecord = { rank: this.#membership.rank, why };
    // Another report came first, or the store is gone.
    this.#set(`aborted ${this.#keyOf(comm)}`, record).catch(() => undefined);
  }

  /** This process has closed the communicator without the others. */
  async reportClosed(comm: CommInfo, counters: CallCounters): Promise<void> {
    const { rank, size } = this.#membership;
    const record: CloseRecord = {
      rank,
      submitted: counters.submitted,
      posted: counters.messageCounts().posted,
    };
    for (let index = 0; index < size; index++) {
      try {
        await this.#set(closedKey(this.#keyOf(comm), index), record);
        return;
      } catch (error) {
        if ((error as { field?: string }).field !== "key") return;
      }
    }
  }

  /** The remote end that keeps calls of this process from completing. */
  async endOf(comm: CommInfo, own: CallCounters | undefined): Promise<RemoteEnd | undefined> {
    try {
      return await this.#findEnd(comm, own);
    } catch (error) {
      if (error instanceof WentOnError) return { nextGeneration: error.ranks };
      throw error;
    }
  }

  async #findEnd(comm: CommInfo, own: CallCounters | undefined): Promise<RemoteEnd | undefined> {
    const key = this.#keyOf(comm);
    const aborted = await this.#get<AbortRecord>(`aborted ${key}`);
    if (aborted !== undefined) return { rank: aborted.rank, aborted: aborted.why };
    for (let index = 0; index < comm.ranks.length; index++) {
      const closed = await this.#get<CloseRecord>(closedKey(key, index));
      if (closed === undefined) return undefined;
      if (own?.dependsOn(comm.ranks.indexOf(closed.rank), closed) === true) {
        return { rank: closed.rank, aborted: undefined };
      }
    }
    return undefined;
  }

  /** True where another process has ended the communicator alone, or the job continues without this process. */
  async isEndedElsewhere(comm: CommInfo): Promise<boolean> {
    const key = this.#keyOf(comm);
    const records = [this.#get(`aborted ${key}`), this.#get(closedKey(key, 0))];
    try {
      return (await Promise.all(records)).some((record) => record !== undefined);
    } catch (error) {
      if (error instanceof WentOnError) return true;
      throw error;
    }
  }

  #set(key: string, record: AbortRecord | CloseRecord): Promise<void> {
    return this.#membership.set(key, new TextEncoder().encode(JSON.stringify(record)));
  }

  /**
   * The record at a key; `undefined` where there is none, or the store does not answer.
   *
   * @throws WentOnError when the others are in the next generation and this process is not.
   */
  async #get<Record>(key: string): Promise<Record | undefined> {
    try {
      const found = await this.#membership.get(key, now);
      return JSON.parse(new TextDecoder().decode(found)) as Record;
    } catch (error) {
      const isLeftBehind =
        error instanceof WentOnError && !error.ranks.includes(this.#membership.rank);
      if (isLeftBehind) throw error;
      return undefined;
    }
  }
}

/** Ranks that close the same communicator take the indexes from 0 on. */
function closedKey(comm: string, index: number): string {
  return `closed ${index} ${comm}`;
}
