/**
 * Ends of communicators in other processes, after which waits there never end.
 *
 * A process that aborts one sets a key of the job's store, and so does one that closed it without the others, with
 * the calls that it had made there. Waiting processes query the key. Once others have formed the next generation without this process,
 * all keys are gone, and all communicators are over. All ranks here are those of the job.
 */
import type { CommInfo, RemoteEnd } from "../../../api/index.ts";
import type { CallCounters } from "../calls/call-counters.ts";
import { firstLine } from "../common/text.ts";
import { type Membership, WentOnError } from "../rendezvous/index.ts";

/** A missing key is not waited for. */
const now = { timeoutMs: 1, idle: true } as const;

/** The first that aborted it. */
interface AbortRecord {
  readonly rank: number;
  readonly why: string;
}

/** One that closed it, and what it had made by then. */
interface CloseRecord {
  readonly rank: number;
  readonly submitted: number;
  readonly posted: readonly (readonly [pair: number, count: number])[];
}

/** Says and looks on behalf of one process; `keyOf` names a communicator alike in every process. */
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
    const said: AbortRecord = { rank: this.#membership.rank, why };
    // One was faster, or there is no store to say it to.
    this.#set(`aborted ${this.#keyOf(comm)}`, said).catch(() => undefined);
  }

  /** This process has closed its end, and the others did not come to it. */
  async reportClosed(comm: CommInfo, made: CallCounters): Promise<void> {
    const { rank, size } = this.#membership;
    const said: CloseRecord = {
      rank,
      submitted: made.submitted,
      posted: made.messageCounts().posted,
    };
    for (let index = 0; index < size; index++) {
      try {
        await this.#set(closedKey(this.#keyOf(comm), index), said);
        return;
      } catch (error) {
        if ((error as { field?: string }).field !== "key") return;
      }
    }
  }

  /** The end of a communicator without calls that this process waits for. */
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

  /** True where another process has ended a communicator alone, or the others went on without this process. */
  async isEndedElsewhere(comm: CommInfo): Promise<boolean> {
    const key = this.#keyOf(comm);
    const said = [this.#get(`aborted ${key}`), this.#get(closedKey(key, 0))];
    try {
      return (await Promise.all(said)).some((words) => words !== undefined);
    } catch (error) {
      if (error instanceof WentOnError) return true;
      throw error;
    }
  }

  #set(key: string, words: AbortRecord | CloseRecord): Promise<void> {
    return this.#membership.set(key, new TextEncoder().encode(JSON.stringify(words)));
  }

  /**
   * The words at the key, if there are any, and the store answers.
   *
   * @throws WentOnError when the others are in the next generation and this process is not.
   */
  async #get<Words>(key: string): Promise<Words | undefined> {
    try {
      const found = await this.#membership.get(key, now);
      return JSON.parse(new TextDecoder().decode(found)) as Words;
    } catch (error) {
      const isLeftBehind =
        error instanceof WentOnError && !error.ranks.includes(this.#membership.rank);
      if (isLeftBehind) throw error;
      return undefined;
    }
  }
}

/** Ranks that close one take these one after another. */
function closedKey(comm: string, index: number): string {
  return `closed ${index} ${comm}`;
}
