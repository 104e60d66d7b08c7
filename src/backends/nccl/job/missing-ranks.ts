/** The ranks that keep a rank waiting: ranks of other processes are queried for their calls. All ranks here are those of the job. */
import type { CommInfo, MissingRanks, RemoteTransfer } from "../../../api/index.ts";
import {
  CallCounters,
  type Message,
  type MessageCounts,
  messagesOf,
} from "../calls/call-counters.ts";
import type { Membership } from "../rendezvous/index.ts";
import { type RankAnswers, StatusQuery } from "./status-query.ts";

/** A process's words about a communicator, by its key: an answer, or a farewell for all communicators. */
type CommReports = Readonly<Record<string, Partial<MessageCounts & CallCounts>>>;

/** Collective calls, and whether any follow: see `Made`. */
type CallCounts = Pick<CallCounters, "submitted" | "compared" | "atBarrier" | "isOver">;

/** Asks, and answers others, on behalf of one process. */
export class MissingRankFinder {
  readonly #membership: Membership;
  readonly #keyOf: (comm: CommInfo) => string;
  readonly #counters: ReadonlyMap<string, CallCounters>;
  readonly #statusQuery: StatusQuery;

  /** `keyOf` names a communicator alike in every process; `made` are those that this one has made something on, by name. */
  constructor(
    membership: Membership,
    keyOf: (comm: CommInfo) => string,
    made: ReadonlyMap<string, CallCounters>,
  ) {
    this.#membership = membership;
    this.#keyOf = keyOf;
    this.#counters = made;
    this.#statusQuery = new StatusQuery(membership, (about) => JSON.stringify(this.#report(about)));
  }

  /**
   * Ranks of a communicator that keep this one waiting with call `number`, or do not answer. Where this rank compares a call
   * with theirs, that one keeps it and all behind it; those that compare it too have come. All have, and one waits, or
   * waited, to come together for it: another gave it up before, or what they connect or register is not alike.
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

  /** Ranks that have not handed call `number` over, compared or not, or do not answer. */
  notSubmitted(comm: CommInfo, number: number): Promise<number[]> {
    return this.#ranksFailing(comm, ({ submitted }) => submitted > number);
  }

  /** The other ranks for which a condition does not hold, or that do not answer. */
  async #ranksFailing(
    comm: CommInfo,
    holds: (counts: Omit<CallCounts, "isOver">) => boolean,
  ): Promise<number[]> {
    const { rank, size } = this.#membership;
    const others = comm.ranks.filter((each) => each !== rank && each < size);
    const key = this.#keyOf(comm);
    const lacking = await this.#statusQuery.query(`calls ${key}`, async (answers) => {
      const asked = others.map(async (each) => {
        const { submitted = 0, compared = 0, atBarrier } = await reportOf(answers, each, key);
        return holds({ submitted, compared, atBarrier }) ? [] : [each];
      });
      return (await Promise.all(asked)).flat();
    });
    return lacking ?? others;
  }

  /** Ranks without which messages that were made together cannot go on; `undefined` where the store does not answer. */
  forMessages(comm: CommInfo, halves: readonly RemoteTransfer[]): Promise<number[] | undefined> {
    const { ranks } = comm;
    const key = this.#keyOf(comm);
    return this.#statusQuery.query(`messages ${key}`, async (answers) => {
      const of = async (rank: number): Promise<MessageCounts> => {
        const words = await reportOf(answers, ranks[rank] as number, key);
        return { posted: [], waiting: [], ...words };
      };
      const own = ranks.indexOf(this.#membership.rank);
      const together = messagesOf(ranks.length, halves);
      const missing = await blockingRanks(ranks.length, of, own, together);
      return missing.map((rank) => ranks[rank] as number);
    });
  }

  /** A rank that has closed a communicator without what this one has made there; `undefined` where none says so. */
  findCloser(comm: CommInfo, own: CallCounters): Promise<number | undefined> {
    const { rank, size } = this.#membership;
    const key = this.#keyOf(comm);
    return this.#statusQuery.query(`all ${key}`, async (answers) => {
      const asked = comm.ranks.map(async (each, at) => {
        if (each === rank || each >= size) return [];
        const { submitted = 0, posted = [], isOver } = await reportOf(answers, each, key);
        return isOver === true && own.dependsOn(at, { submitted, posted }) ? [each] : [];
      });
      return (await Promise.all(asked)).flat()[0];
    });
  }

  /** Stops answering. The calls that this process has made by now are left for later questions. */
  end(): void {
    this.#statusQuery.end();
  }

  #report(about?: string): CommReports {
    const all = [...this.#counters];
    if (about === undefined) {
      return Object.fromEntries(
        all.map(([key, made]) => [key, { ...reportFrom(made), isOver: true }]),
      );
    }
    const [subject, asked] = about.split(" ", 2);
    const made = asked === undefined ? undefined : this.#counters.get(asked);
    if (asked === undefined || made === undefined) return {};
    if (subject === "all") return { [asked]: reportFrom(made) };
    return { [asked]: subject === "calls" ? countsOf(made) : made.messageCounts() };
  }
}

function countsOf({ submitted, compared, atBarrier, isOver }: CallCounters): CallCounts {
  return { submitted, compared, atBarrier, isOver };
}

function reportFrom(made: CallCounters): CallCounts & MessageCounts {
  return { ...countsOf(made), ...made.messageCounts() };
}

/** A rank's words about a communicator. */
async function reportOf(
  answers: RankAnswers,
  rank: number,
  key: string,
): Promise<CommReports[string]> {
  const words = await answers(rank);
  return words === undefined ? {} : ((JSON.parse(words) as CommReports)[key] ?? {});
}

/** A message with a wait, and the rank at its other end. */
interface AwaitedMessage {
  readonly message: Message;
  readonly by: number;
}

/**
 * Ranks of a communicator of so many that have not made the other ends of messages that `rank` has made together. Where all
 * have, those that keep one of these waiting until they have come together. `of` gives what a rank says.
 *
 * @internal
 */
export async function blockingRanks(
  size: number,
  of: (rank: number) => Promise<MessageCounts>,
  rank: number,
  together: readonly Message[],
): Promise<number[]> {
  const wantedBy = (asker: number, messages: readonly Message[]): AwaitedMessage[] =>
    messages.map((message) => ({ message, by: otherOf(size, message[0], asker) }));
  const heard = new Map<number, RankMessages>();
  let wanted = wantedBy(rank, together);
  while (wanted.length > 0) {
    const fresh = new Set(wanted.map(({ by }) => by).filter((by) => !heard.has(by)));
    const told = await Promise.all(Array.from(fresh, async (by) => [by, await of(by)] as const));
    for (const [by, { posted, waiting }] of told) heard.set(by, { made: new Map(posted), waiting });
    const lacks = ({ message: [pair, number], by }: AwaitedMessage): boolean =>
      (heard.get(by)?.made.get(pair) ?? 0) <= number;
    const missing = new Set(wanted.filter(lacks).map(({ by }) => by));
    if (missing.size > 0) return [...missing].sort((a, b) => a - b);
    const next = [...fresh].filter((by) => by !== rank);
    wanted = next.flatMap((by) => wantedBy(by, heard.get(by)?.waiting ?? []));
  }
  return [];
}

/** The words of a rank. */
interface RankMessages {
  readonly made: ReadonlyMap<number, number>;
  readonly waiting: readonly Message[];
}

/** The rank at the other end of a pair's messages. */
function otherOf(size: number, pair: number, rank: number): number {
  const [from, to] = [Math.floor(pair / size), pair % size];
  return from === rank ? to : from;
}
