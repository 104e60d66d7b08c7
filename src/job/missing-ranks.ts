/** Finds the ranks that a call or message waits for, by questions to the other processes. Ranks are those of the job. */
import { setMaxListeners } from "node:events";
import type { CommInfo, MissingRanks, RemoteTransfer } from "../api/backend-entry.ts";
import { longestTimerMs } from "../api/ledger/turns.ts";
import {
  CallCounters,
  type CommReport,
  type CommStatus,
  type Message,
  type MessageCounts,
  messagesOf,
  parseReport,
} from "./comm-status.ts";
import type { Membership } from "./rendezvous.ts";

/** Longest wait for one answer, and for all of them where the store is busy. */
const [answerMs, allMs] = [1000, 3000];

/** The report of a rank; `undefined` without an answer, or with one that is no report. */
type Ask = (rank: number) => Promise<CommReport | undefined>;

/** The questions of one process. */
export class MissingRankFinder {
  readonly #membership: Pick<Membership, "ask" | "rank" | "size">;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #status: CommStatus;

  /** `keyOf` gives a communicator the same key in every process; `status` has the counters of this process. */
  constructor(
    membership: Pick<Membership, "ask" | "rank" | "size">,
    keyOf: (comm: CommInfo) => string,
    status: CommStatus,
  ) {
    this.#membership = membership;
    this.#keyOf = keyOf;
    this.#status = status;
  }

  /**
   * Ranks that call `number` waits for, or that do not answer. Where this rank compares a call with theirs, or has it behind
   * another one, ranks that compare it too are not missing. If no rank is missing and one waits at the call's barrier, the ranks
   * have diverged. One of them cancelled, or their connections or windows differ.
   */
  async forCall(comm: CommInfo, number: number): Promise<MissingRanks> {
    const own = this.#status.ownCounters(comm) ?? new CallCounters(comm.ranks.length);
    const waiting = own.compared > own.submitted ? own.compared - 1 : number;
    const comparing = own.submitted > number ? Infinity : waiting;
    let haveDiverged = own.atBarrier === number;
    const answered = new Set<number>();
    const ranks = await this.#ranksFailing(comm, (report, rank) => {
      const { submitted = 0, compared = 0, atBarrier } = report;
      answered.add(rank);
      haveDiverged ||= atBarrier === number;
      return compared > comparing || submitted > number;
    });
    const silent = ranks.filter((rank) => !answered.has(rank));
    return { ranks, silent, haveDiverged: haveDiverged && ranks.length === 0 };
  }

  /** Ranks that have not submitted call `number`, or do not answer. */
  notSubmitted(comm: CommInfo, number: number): Promise<number[]> {
    return this.#ranksFailing(comm, ({ submitted = 0 }) => submitted > number);
  }

  /** Resolves once the processes that answer have all news of a communicator that were announced before. */
  async haveNews(comm: CommInfo): Promise<void> {
    await this.#ranksFailing(comm, () => true);
  }

  /** Resolves when another rank has submitted call `number`; stays pending after the signal. */
  onSubmitted(comm: CommInfo, number: number, signal: AbortSignal): Promise<void> {
    const bounds = { timeoutMs: longestTimerMs, signal, idle: true };
    // Each question adds a listener to it: with many ranks Node.js would warn of a leak.
    setMaxListeners(0, signal);
    const question = `passed ${this.#keyOf(comm)} ${number}`;
    return new Promise((resolve) => {
      for (const rank of this.#others(comm)) {
        // A rank that is lost ends the wait in another way.
        this.#membership.ask(rank, question, bounds).then(
          () => resolve(),
          () => undefined,
        );
      }
    });
  }

  /** Other ranks with counters that fail a condition, or without an answer. */
  async #ranksFailing(
    comm: CommInfo,
    holds: (counts: CommReport, rank: number) => boolean,
  ): Promise<number[]> {
    return await this.#ask("calls", comm, async (ask) => {
      const checks = this.#others(comm).map(async (each) => {
        const report = await ask(each);
        return report !== undefined && holds(report, each) ? [] : [each];
      });
      return (await Promise.all(checks)).flat();
    });
  }

  /** Ranks that a batch of messages waits for; `undefined` where the store does not answer. */
  async forMessages(
    comm: CommInfo,
    remote: readonly RemoteTransfer[],
  ): Promise<Omit<MissingRanks, "haveDiverged"> | undefined> {
    const { ranks } = comm;
    const silent: number[] = [];
    return await this.#ask("messages", comm, async (ask, hasStore) => {
      const of = async (rank: number): Promise<MessageCounts> => {
        const report = await ask(ranks[rank] as number);
        if (report === undefined) silent.push(ranks[rank] as number);
        return { posted: report?.posted ?? [], waiting: report?.waiting ?? [] };
      };
      const own = ranks.indexOf(this.#membership.rank);
      const together = messagesOf(ranks.length, remote);
      const missing = await blockingRanks(ranks.length, of, own, together);
      return hasStore()
        ? { ranks: missing.map((rank) => ranks[rank] as number), silent }
        : undefined;
    });
  }

  /** Ranks that have ended the communicator, with their counters. */
  async findClosers(comm: CommInfo): Promise<(readonly [number, CommReport])[]> {
    return await this.#ask("all", comm, async (ask) => {
      const checks = this.#others(comm).map(async (each) => {
        const report = await ask(each);
        return report?.isOver === true ? [[each, report] as const] : [];
      });
      return (await Promise.all(checks)).flat();
    });
  }

  /** The open calls of all processes that answer, by rank. */
  async callOrders(isEcho: boolean): Promise<ReadonlyMap<number, string>> {
    const { rank: own, size } = this.#membership;
    const question = isEcho ? "echo" : "orders";
    const answers = Array.from({ length: size }, async (_, rank) => {
      if (rank === own) return [[rank, this.#status.reportOrders(true)] as const];
      try {
        const bounds = { timeoutMs: answerMs };
        return [[rank, await this.#membership.ask(rank, question, bounds)] as const];
      } catch {
        return [];
      }
    });
    return new Map((await Promise.all(answers)).flat());
  }

  #others({ ranks }: CommInfo): number[] {
    const { rank, size } = this.#membership;
    return ranks.filter((each) => each !== rank && each < size);
  }

  /** Asks ranks about a communicator, within bounds. */
  async #ask<T>(
    subject: string,
    comm: CommInfo,
    evaluate: (ask: Ask, hasStore: () => boolean) => Promise<T>,
  ): Promise<T> {
    const over = new AbortController();
    const timer = setTimeout(() => over.abort(), allMs).unref();
    const { signal } = over;
    setMaxListeners(0, signal);
    const key = this.#keyOf(comm);
    let hasStore = true;
    const ask: Ask = async (rank) => {
      if (rank === this.#membership.rank) return this.#status.reportOf(subject, comm);
      const question = `${subject} ${key}`;
      try {
        const answer = await this.#membership.ask(rank, question, { timeoutMs: answerMs, signal });
        return parseReport(answer, key);
      } catch (error) {
        const { code } = error as { code?: string };
        if (code === "ERR_COMM_RENDEZVOUS" || code === "ERR_COMM_ABORTED") hasStore = false;
        return undefined;
      }
    };
    try {
      return await evaluate(ask, () => hasStore);
    } finally {
      clearTimeout(timer);
      over.abort();
    }
  }
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
    messages
      .filter(([pair]) => pair < size ** 2)
      .map((message) => ({ message, by: otherOf(size, message[0], waiter) }));
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
