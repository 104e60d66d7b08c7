/**
 * The state of each communicator in every process of a job, as far as it has come to this process.
 *
 * A process that aborts a communicator, or closes one without the others, announces it with its counters: the news comes over the
 * connection to the store, and stays here. Counters that change with each call are not announced; they answer questions of other
 * processes. Ranks are those of the job.
 */
import type { CommInfo, RemoteEnd, RemoteTransfer } from "../api/backend-entry.ts";
import { firstLine } from "../api/error-text.ts";
import {
  decode,
  encode,
  type Field,
  FrameError,
  flag,
  line,
  listOf,
  type MessageOf,
  optional,
  text,
  whole,
} from "./frames.ts";
import { limits } from "./protocol.ts";
import type { Membership } from "./rendezvous.ts";

/** A message: the number of its pair of ranks, and its number within the pair. */
export type Message = readonly [pair: number, number: number];

/** Counters of the message ends of a process. */
export interface MessageCounts {
  /** Messages posted, by pair. */
  readonly posted: readonly (readonly [pair: number, count: number])[];
  /** The batch at a barrier, or last at one without success: the first message of each pair. */
  readonly waiting: readonly Message[];
}

/** Collective calls and message ends of this process. Calls at a barrier count. */
export class CallCounters {
  #submitted = 0;
  /** Calls compared across ranks so far: the number of the last one, plus one. */
  compared = 0;
  /** True once this process takes no more calls on the communicator. */
  isOver = false;
  #disconnected = false;
  /** The number of the call at a barrier, or last at one without success. */
  atBarrier: number | undefined;
  readonly #size: number;
  readonly #posted = new Map<number, number>();
  #waiting: ReadonlyMap<number, number> = new Map();

  /** Questions for a later number of submitted calls. */
  #awaited: { readonly number: number; readonly resolve: () => void }[] = [];
  /** Called when the backend reports that another process has ended its part. */
  onDisconnect: (() => void) | undefined;

  /** `size` is the number of ranks of the communicator. */
  constructor(size: number) {
    this.#size = size;
  }

  /** Collective calls submitted. */
  get submitted(): number {
    return this.#submitted;
  }

  set submitted(count: number) {
    this.#submitted = count;
    if (this.#awaited.length > 0) this.#resolveAwaited();
  }

  /** True once the backend has reported that another process has ended its part. */
  get disconnected(): boolean {
    return this.#disconnected;
  }

  set disconnected(isSo: boolean) {
    const isNew = isSo && !this.#disconnected;
    this.#disconnected = isSo;
    if (isNew) this.onDisconnect?.();
  }

  /** Resolves once call `number` is submitted. */
  passed(number: number): Promise<void> {
    if (this.#submitted > number) return Promise.resolve();
    return new Promise((resolve) => this.#awaited.push({ number, resolve }));
  }

  #resolveAwaited(): void {
    const due = this.#awaited.filter(({ number }) => this.#submitted > number);
    this.#awaited = this.#awaited.filter(({ number }) => this.#submitted <= number);
    for (const { resolve } of due) resolve();
  }

  /** Messages wait at a barrier. */
  awaitPeers(remote: readonly RemoteTransfer[]): void {
    const messages = messagesOf(this.#size, remote);
    this.#count(messages);
    this.#waiting = firstOfEachPair(messages);
  }

  /** Messages were submitted. */
  messagesSubmitted(remote: readonly RemoteTransfer[]): void {
    this.#waiting = new Map();
    this.#count(messagesOf(this.#size, remote));
  }

  /** The pairs of messages, by number. */
  pairsOf(remote: readonly RemoteTransfer[]): readonly number[] {
    return messagesOf(this.#size, remote).map(([pair]) => pair);
  }

  /** Messages of these pairs, of which others were submitted before, were submitted. */
  messagesRepeated(pairs: readonly number[]): void {
    if (this.#waiting.size > 0) {
      // They were counted when they began to wait.
      this.#waiting = new Map();
      return;
    }
    for (const pair of pairs) this.#posted.set(pair, (this.#posted.get(pair) ?? 0) + 1);
  }

  /** Messages failed to submit: the first of each pair is the next one again. */
  messagesFailed(remote: readonly RemoteTransfer[]): void {
    this.#waiting = new Map();
    for (const [pair, number] of firstOfEachPair(messagesOf(this.#size, remote))) {
      this.#posted.set(pair, number);
    }
  }

  /** True where a message or call of this process needs more of a rank than it had posted when it left. */
  dependsOn(rank: number, there: LastCounts): boolean {
    const posted = new Map(there.posted);
    const isAhead = ([pair, count]: readonly [number, number]): boolean =>
      pairHasRank(this.#size, pair, rank) && count > (posted.get(pair) ?? 0);
    const calls = Math.max(madeOf(this), (this.atBarrier ?? -1) + 1);
    return calls > there.made || [...this.#posted].some(isAhead);
  }

  /** The message ends. */
  messageCounts(): MessageCounts {
    return { posted: [...this.#posted], waiting: [...this.#waiting] };
  }

  #count(messages: readonly Message[]): void {
    for (const [pair, number] of messages) this.#posted.set(pair, number + 1);
  }
}

/** The messages of ends, in a communicator of `size` ranks. */
export function messagesOf(size: number, remote: readonly RemoteTransfer[]): Message[] {
  return remote.map((transfer) => [pairNumber(size, pairOf(transfer)), transfer.number]);
}

/** The first message of each pair. */
function firstOfEachPair(messages: readonly Message[]): Map<number, number> {
  return new Map(messages.toReversed());
}

/** A sender and its receiver. */
type Pair = readonly [from: number, to: number];

/** The sender and the receiver of a message. */
function pairOf({ direction, peer, call }: RemoteTransfer): Pair {
  return direction === "send" ? [call.rank, peer] : [peer, call.rank];
}

/** The number of a pair in a communicator of `size` ranks. */
function pairNumber(size: number, [from, to]: Pair): number {
  return from * size + to;
}

/** True when a rank is one of a pair with that number. */
function pairHasRank(size: number, pair: number, rank: number): boolean {
  return Math.floor(pair / size) === rank || pair % size === rank;
}

/** The last counters of a process on a communicator: collective calls that it made, and its messages. */
type LastCounts = Pick<EndNews, "made" | "posted">;

/** Collective calls made: a capture, and a call that differs from those of other ranks, is compared and never submitted. */
function madeOf({
  submitted = 0,
  compared = 0,
}: Pick<CommReport, "submitted" | "compared">): number {
  return Math.max(submitted, compared);
}

/** Counters of collective calls: see `CallCounters`. */
type CallCounts = Pick<CallCounters, "submitted" | "compared" | "atBarrier" | "isOver">;

const count = whole(0, Number.MAX_SAFE_INTEGER);
const twoCounts: Field<Message> = {
  read: (json) => {
    if (!Array.isArray(json) || json.length !== 2) throw new FrameError("two numbers");
    return [count.read(json[0]), count.read(json[1])];
  },
};
const counts = listOf(twoCounts, limits.valueBytes);
/** Most characters of a reason for the others; longer ones are cut. */
const longestReason = 1_000;
/** The key of a communicator. */
const comm = text(limits.keyBytes);

/** News of the end of a communicator in a process. */
const news = {
  /** `aborted` is the reason; left out where it was closed. `hadWork`: calls were under way on the device. */
  ended: {
    ...{ comm, aborted: optional(line(4 * longestReason)), hadWork: optional(flag) },
    ...{ made: count, posted: counts },
  },
};

type EndNews = MessageOf<typeof news>;

/** Answers: the counters of a process on a communicator; those that a question is not about are left out. */
const reports = {
  report: {
    ...{ comm, submitted: optional(count), compared: optional(count), atBarrier: optional(count) },
    ...{ isOver: optional(flag), posted: optional(counts), waiting: optional(counts) },
  },
};

export type CommReport = Partial<Omit<MessageOf<typeof reports>, "kind" | "comm">>;

/** The report about a communicator in an answer, which has a line for each; `undefined` for anything else. */
export function parseReport(answer: string, key: string): CommReport | undefined {
  try {
    const all = answer.split("\n").map((each) => decode(reports, Buffer.from(each)));
    return all.find((each) => each.comm === key) ?? {};
  } catch {
    return undefined;
  }
}

function reportText(key: string, report: CommReport): string {
  const message = { kind: "report", comm: key, ...report } as MessageOf<typeof reports>;
  return String(encode(reports, message));
}

/** The known ends of one communicator in other processes. */
interface RemoteEnds {
  /** The first process that aborted it. */
  aborted: { readonly rank: number; readonly why: string } | undefined;
  /** True once a process has aborted it with work under way. */
  hadWork: boolean;
  /** Counters of processes that closed it. */
  readonly closed: Map<number, LastCounts>;
}

/** Counters are kept of this many communicators that are over. */
const maxRetired = 64;

/** The table of one process. `keyOf` gives a communicator the same key in every process. */
export class CommStatus {
  /** Reports the open calls of this process. */
  reportOrders: (isEcho: boolean) => string = () => "{}";
  readonly #membership: Membership;
  readonly #keyOf: (comm: CommInfo) => string;
  /** Counters of this process, by the key of the communicator: the world has several `CommInfo` objects. */
  readonly #counters = new Map<string, CallCounters>();
  readonly #retired: string[] = [];
  readonly #remoteEnds = new Map<string, RemoteEnds>();
  /** Ranks of the next generation, which began without this process. */
  #next: readonly number[] | undefined;
  readonly #listeners = new Set<() => void>();
  /** Questions about communicators that this process has not made yet. */
  readonly #awaited = new Map<string, Set<(counters: CallCounters) => void>>();

  constructor(membership: Membership, keyOf: (comm: CommInfo) => string) {
    this.#membership = membership;
    this.#keyOf = keyOf;
    membership.onNews((news, rank) => {
      const end = parseEndNews(news);
      if (end !== undefined) this.#noteEnd(rank, end);
    });
    membership.onQuestion((question) => this.#answer(question));
    membership.onNextGeneration((ranks) => {
      this.#next = ranks;
      this.#notify();
    });
  }

  /** The counters of a communicator, the same object until long after it is over. */
  countersOf(comm: CommInfo): CallCounters {
    const key = this.#keyOf(comm);
    let counters = this.#counters.get(key);
    if (counters === undefined) {
      counters = new CallCounters(comm.ranks.length);
      this.#counters.set(key, counters);
      for (const resolve of this.#awaited.get(key) ?? []) resolve(counters);
      this.#awaited.delete(key);
    }
    return counters;
  }

  /** The counters of a communicator that has some. */
  ownCounters(comm: CommInfo): CallCounters | undefined {
    return this.#counters.get(this.#keyOf(comm));
  }

  /** The communicator takes no more calls. Its counters still answer questions, for a while. */
  retire(comm: CommInfo): void {
    const counters = this.ownCounters(comm);
    if (counters !== undefined) counters.isOver = true;
    this.#retired.push(this.#keyOf(comm));
    if (this.#retired.length <= maxRetired) return;
    const oldest = this.#retired.shift() as string;
    this.#counters.delete(oldest);
    this.#remoteEnds.delete(oldest);
  }

  /** This process has aborted its end, or is about to. */
  announceAborted(comm: CommInfo, reason: unknown, hadWork = false): void {
    // The others have the first reason already.
    const isKnown = this.#remoteEnds.get(this.#keyOf(comm))?.aborted !== undefined;
    if (isKnown && !hadWork) return;
    this.#announce(comm, firstLine(reason).slice(0, longestReason), hadWork);
  }

  /** This process has closed the communicator without the others. */
  announceClosed(comm: CommInfo): void {
    this.#announce(comm, undefined);
  }

  #announce(comm: CommInfo, aborted: string | undefined, hadWork?: boolean): void {
    const { rank, size } = this.#membership;
    const others = comm.ranks.filter((each) => each !== rank && each < size);
    const counters = this.ownCounters(comm);
    const made = madeOf(counters ?? {});
    const posted = aborted === undefined ? (counters?.messageCounts().posted ?? []) : [];
    const key = this.#keyOf(comm);
    const end = { kind: "ended", comm: key, aborted, hadWork, made, posted } as const;
    const bytes = encode(news, end);
    // Counters of too many messages are not announced: questions of the others get what they need.
    if (bytes.length <= limits.valueBytes) this.#membership.announce(others, String(bytes));
  }

  /** Notes the end of a communicator in another process. */
  #noteEnd(rank: number, { comm, aborted, hadWork, made, posted }: Omit<EndNews, "kind">): void {
    const known = this.#remoteEnds.get(comm);
    const ends = known ?? { aborted: undefined, hadWork: false, closed: new Map() };
    this.#remoteEnds.set(comm, ends);
    ends.hadWork ||= hadWork === true;
    if (aborted === undefined) ends.closed.set(rank, { made, posted });
    else ends.aborted ??= { rank, why: aborted };
    this.#notify();
  }

  /** Notes a process that has closed a communicator and did not announce it. */
  noteClosed(comm: CommInfo, rank: number, report: CommReport): void {
    const counts = { made: madeOf(report), posted: report.posted ?? [] };
    this.#noteEnd(rank, { comm: this.#keyOf(comm), aborted: undefined, hadWork: false, ...counts });
  }

  /** Calls `listener` for every change of `endOf`. Returns a function that removes it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }

  /** The remote end that keeps calls of this process from completing. */
  endOf(comm: CommInfo): RemoteEnd | undefined {
    if (this.#next !== undefined) return { nextGeneration: this.#next };
    const ends = this.#remoteEnds.get(this.#keyOf(comm));
    if (ends === undefined) return undefined;
    const { aborted, closed } = ends;
    if (aborted !== undefined) return { rank: aborted.rank, aborted: aborted.why };
    const own = this.ownCounters(comm);
    for (const [rank, there] of closed) {
      if (own?.dependsOn(comm.ranks.indexOf(rank), there) === true)
        return { rank, aborted: undefined };
    }
    return undefined;
  }

  /** True where another process has aborted the communicator with work under way. */
  isBrokenOff(comm: CommInfo): boolean {
    return this.#remoteEnds.get(this.#keyOf(comm))?.hadWork === true;
  }

  /** True where another process has ended the communicator alone, or the job continues without this process. */
  isEndedElsewhere(comm: CommInfo): boolean {
    return this.#next !== undefined || this.#remoteEnds.has(this.#keyOf(comm));
  }

  /** The last status of this process: all its counters, as of communicators that are over. */
  lastStatus(): string {
    const lines = Array.from(this.#counters, ([key, counters]) =>
      reportText(key, { ...countsOf(counters), ...counters.messageCounts(), isOver: true }),
    );
    return lines.join("\n");
  }

  /**
   * The answer to a question of another process: `calls KEY`, `messages KEY`, `all KEY` or `passed KEY NUMBER`; or `orders`, and
   * `echo` where the question follows one of this process.
   */
  async #answer(question: string): Promise<string> {
    const [subject, key = "", number] = question.split(" ", 3);
    if (subject === "orders" || subject === "echo") return this.reportOrders(subject === "echo");
    if (subject === "passed") await (await this.#madeCounters(key)).passed(Number(number));
    return reportText(key, this.#report(subject, key));
  }

  /** The report of this process about a communicator. */
  reportOf(subject: string, comm: CommInfo): CommReport {
    return this.#report(subject, this.#keyOf(comm));
  }

  #report(subject: string | undefined, key: string): CommReport {
    const counters = this.#counters.get(key);
    if (counters === undefined) return {};
    return {
      ...(subject !== "messages" && countsOf(counters)),
      ...(subject !== "calls" && counters.messageCounts()),
    };
  }

  #madeCounters(key: string): Promise<CallCounters> {
    const counters = this.#counters.get(key);
    if (counters !== undefined) return Promise.resolve(counters);
    return new Promise((resolve) => {
      const awaited = this.#awaited.get(key) ?? new Set();
      this.#awaited.set(key, awaited.add(resolve));
    });
  }
}

function countsOf({ submitted, compared, atBarrier, isOver }: CallCounters): CallCounts {
  return { submitted, compared, atBarrier, isOver };
}

/** The end that news announce; `undefined` for anything else. */
function parseEndNews(text: string): EndNews | undefined {
  try {
    return decode(news, Buffer.from(text));
  } catch {
    return undefined;
  }
}
