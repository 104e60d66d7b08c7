/** Finds the ranks that a call or message waits for, by queries to the other processes. Ranks are those of the job. */
import type { CommInfo, MissingRanks, RemoteTransfer } from "../api/backend-entry.ts";
import { CallCounters, type Message, type MessageCounts, messagesOf } from "./call-counters.ts";
import type { Membership } from "./rendezvous.ts";
import { type RankAnswers, StatusQuery } from "./status-query.ts";

/** The reports of a process by communicator key: one in an answer, all in its final status. */
type CommReports = Readonly<Record<string, Partial<MessageCounts & CallCounts>>>;

/** Counters of collective calls: see `CallCounters`. */
type CallCounts = Pick<CallCounters, "submitted" | "compared" | "atBarrier" | "isOver">;

/** The queries and answers of one process. */
export class MissingRankFinder {
  readonly #membership: Membership;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #counters: ReadonlyMap<string, CallCounters>;
  readonly #statusQuery: StatusQuery;

  /** `keyOf` gives a communicator the same name in every process; `counters` are those of this process, by that name. */
  constructor(
    membership: Membership,
    keyOf: (comm: CommInfo) => string,
    counters: ReadonlyMap<string, CallCounters>,
  ) {
    this.#membership = membership;
    this.#keyOf = keyOf;
    this.#counters = counters;
    this.#statusQuery = new StatusQuery(membership, (about) => JSON.stringify(this.#report(about)));
  }

  /**
   * Ranks that call `number` waits for, or that do not answer. Where this rank compares a call with theirs, only ranks that do
   * not compare it yet are missing. If no rank is missing and one waits at the call's barrier, the ranks have diverged. One of
   * them cancelled, or their connections or windows differ.
   */
  async forCall(comm: CommInfo, number: number): Promise<MissingRanks> {
    const own = this.#counters.get(this.#keyOf(comm)) ?? new CallCounters(comm.ranks.length);
    const comparing =
      own.submitted > number || own.compared <= own.submitted ? Infinity : own.compared - 1;
    let haveDiverged = own.atBarrier === number;
    const ranks = await this.#ranksFailing(comm, ({ submitted, compared, atBarrier }) => {
      haveDiverged ||= atBarrier === number;
      return compared > comparing || submitted > number;
    });
    return { ranks, haveDiverged: haveDiverged && ranks.length === 0 };
  }

  /** Ranks that have not submitted call `number`, or do not answer. */
  notSubmitted(comm: CommInfo, number: number): Promise<number[]> {
    return this.#ranksFailing(comm, ({ submitted }) => submitted > number);
  }

  /** Other ranks with counters that fail a condition, or without an answer. */
  async #ranksFailing(
    comm: CommInfo,
    holds: (counts: Omit<CallCounts, "isOver">) => boolean,
  ): Promise<number[]> {
    const { rank, size } = this.#membership;
    const others = comm.ranks.filter((each) => each !== rank && each < size);
    const key = this.#keyOf(comm);
    const failing = await this.#statusQuery.query(`calls ${key}`, async (answers) => {
      const checks = others.map(async (each) => {
        const { submitted = 0, compared = 0, atBarrier } = await reportOf(answers, each, key);
        return holds({ submitted, compared, atBarrier }) ? [] : [each];
      });
      return (await Promise.all(checks)).flat();
    });
    return failing ?? others;
  }

  /** Ranks that a batch of messages waits for; `undefined` where the store does not answer. */
  forMessages(comm: CommInfo, halves: readonly RemoteTransfer[]): Promise<number[] | undefined> {
    const { ranks } = comm;
    const key = this.#keyOf(comm);
    return this.#statusQuery.query(`messages ${key}`, async (answers) => {
      const of = async (rank: number): Promise<MessageCounts> => {
        const report = await reportOf(answers, ranks[rank] as number, key);
        return { posted: [], waiting: [], ...report };
      };
      const own = ranks.indexOf(this.#membership.rank);
      const together = messagesOf(ranks.length, halves);
      const missing = await blockingRanks(ranks.length, of, own, together);
      return missing.map((rank) => ranks[rank] as number);
    });
  }

  /** A rank that has closed the communicator while calls of this rank depend on it; `undefined` where there is none. */
  findCloser(comm: CommInfo, own: CallCounters): Promise<number | undefined> {
    const { rank, size } = this.#membership;
    const key = this.#keyOf(comm);
    return this.#statusQuery.query(`all ${key}`, async (answers) => {
      const checks = comm.ranks.map(async (each, at) => {
        if (each === rank || each >= size) return [];
        const { submitted = 0, posted = [], isOver } = await reportOf(answers, each, key);
        return isOver === true && own.dependsOn(at, { submitted, posted }) ? [each] : [];
      });
      return (await Promise.all(checks)).flat()[0];
    });
  }

  /** Stops answering, and stores a final report for later queries. */
  end(): void {
    this.#statusQuery.end();
  }

  #report(about?: string): CommReports {
    const all = [...this.#counters];
    if (about === undefined) {
      return Object.fromEntries(
        all.map(([key, counters]) => [key, { ...reportFrom(counters), isOver: true }]),
      );
    }
    const [subject, key] = about.split(" ", 2);
    const counters = key === undefined ? undefined : this.#counters.get(key);
    if (key === undefined || counters === undefined) return {};
    if (subject === "all") return { [key]: reportFrom(counters) };
    return { [key]: subject === "calls" ? countsOf(counters) : counters.messageCounts() };
  }
}

function countsOf({ submitted, compared, atBarrier, isOver }: CallCounters): CallCounts {
  return { submitted, compared, atBarrier, isOver };
}

function reportFrom(counters: CallCounters): CallCounts & MessageCounts {
  return { ...countsOf(counters), ...counters.messageCounts() };
}

/** A rank's report about a communicator. */
async function reportOf(
  answers: RankAnswers,
  rank: number,
  key: string,
): Promise<CommReports[string]> {
  const answer = await answers(rank);
  return answer === undefined ? {} : ((JSON.parse(answer) as CommReports)[key] ?? {});
}

/** A message that waits, and the rank of its other end. */
interface AwaitedMessage {
  readonly message: Message;
  readonly by: number;
}

/**
 * Ranks that a message batch of `rank` waits for: peers without the matching messages. If all peers have posted them, the ranks
 * that their batches wait for, recursively. `countsOfRank` gives the counters of a rank.
 *
 * @internal
 */
export async function blockingRanks(
  size: number,
  countsOfRank: (rank: number) => Promise<MessageCounts>,
  rank: number,
  batch: readonly Message[],
): Promise<number[]> {
  const awaitedBy = (waiter: number, messages: readonly Message[]): AwaitedMessage[] =>
    messages.map((message) => ({ message, by: otherOf(size, message[0], waiter) }));
  const known = new Map<number, RankMessages>();
  let awaited = awaitedBy(rank, batch);
  while (awaited.length > 0) {
    const fresh = new Set(awaited.map(({ by }) => by).filter((by) => !known.has(by)));
    const answers = await Promise.all(
      Array.from(fresh, async (by) => [by, await countsOfRank(by)] as const),
    );
    for (const [by, { posted, waiting }] of answers) {
      known.set(by, { posted: new Map(posted), waiting });
    }
    const lacks = ({ message: [pair, number], by }: AwaitedMessage): boolean =>
      (known.get(by)?.posted.get(pair) ?? 0) <= number;
    const missing = new Set(awaited.filter(lacks).map(({ by }) => by));
    if (missing.size > 0) return [...missing].sort((a, b) => a - b);
    const next = [...fresh].filter((by) => by !== rank);
    awaited = next.flatMap((by) => awaitedBy(by, known.get(by)?.waiting ?? []));
  }
  return [];
}

/** The message counters of a rank. */
interface RankMessages {
  readonly posted: ReadonlyMap<number, number>;
  readonly waiting: readonly Message[];
}

/** The rank at the other end of a pair's messages. */
function otherOf(size: number, pair: number, rank: number): number {
  const [from, to] = [Math.floor(pair / size), pair % size];
  return from === rank ? to : from;
}
