/** Counters of the calls that one process has submitted on a communicator, for queries of other processes. */
import type { RemoteTransfer } from "../api/backend-entry.ts";

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
  awaitPeers(halves: readonly RemoteTransfer[]): void {
    const messages = messagesOf(this.#size, halves);
    this.#count(messages);
    this.#waiting = firstOfEachPair(messages);
  }

  /** Messages were submitted. */
  messagesSubmitted(halves: readonly RemoteTransfer[]): void {
    this.#waiting = new Map();
    this.#count(messagesOf(this.#size, halves));
  }

  /** Messages failed to submit: the first of each pair is the next one again. */
  messagesFailed(halves: readonly RemoteTransfer[]): void {
    this.#waiting = new Map();
    for (const [pair, number] of firstOfEachPair(messagesOf(this.#size, halves))) {
      this.#posted.set(pair, number);
    }
  }

  /** True where a message or call of this process needs more of a rank than it had posted when it left. */
  dependsOn(
    rank: number,
    there: { readonly submitted: number; readonly posted: MessageCounts["posted"] },
  ): boolean {
    const posted = new Map(there.posted);
    const isAhead = ([pair, count]: readonly [number, number]): boolean =>
      pairHasRank(this.#size, pair, rank) && count > (posted.get(pair) ?? 0);
    const calls = Math.max(this.submitted, this.compared, (this.atBarrier ?? -1) + 1);
    return calls > there.submitted || [...this.#posted].some(isAhead);
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
export function messagesOf(size: number, halves: readonly RemoteTransfer[]): Message[] {
  return halves.map((half) => [pairNumber(size, pairOf(half)), half.number]);
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
