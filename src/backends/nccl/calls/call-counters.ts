/** The calls that one process has made on a communicator, in words for queries of other processes. */
import type { RemoteTransfer } from "../../../api/index.ts";

/** A message: the number of its pair of ranks, and its own among theirs. */
export type Message = readonly [pair: number, number: number];

/** A process's ends of messages. */
export interface MessageCounts {
  /** Number of messages made, by pair. */
  readonly posted: readonly (readonly [pair: number, count: number])[];
  /** Messages that were made together and waited, or wait still, for all of their peers: the first of each pair. */
  readonly waiting: readonly Message[];
}

/** Collective calls, and this process's ends of messages; what waits until others have come counts. */
export class CallCounters {
  /** Number of collective calls that were handed over. */
  submitted = 0;
  /** The number of the last call that this process compares, or has compared, with the other ranks' calls; plus one. */
  compared = 0;
  /** This process makes nothing more on it. */
  isOver = false;
  /** NCCL says that another process's end is gone. */
  disconnected = false;
  /** The number of the call for which this process waits, or waited to no end, to come together with others. */
  atBarrier: number | undefined;
  readonly #size: number;
  readonly #posted = new Map<number, number>();
  #waiting: ReadonlyMap<number, number> = new Map();

  /** On a communicator of so many ranks. */
  constructor(size: number) {
    this.#size = size;
  }

  /** Messages wait until their ranks have come together. */
  awaitPeers(halves: readonly RemoteTransfer[]): void {
    const messages = messagesOf(this.#size, halves);
    this.#count(messages);
    this.#waiting = firstOfEachPair(messages);
  }

  /** Messages were handed over. */
  messagesSubmitted(halves: readonly RemoteTransfer[]): void {
    this.#waiting = new Map();
    this.#count(messagesOf(this.#size, halves));
  }

  /** Messages could not be handed over: of each pair the first one is the next again. */
  messagesFailed(halves: readonly RemoteTransfer[]): void {
    this.#waiting = new Map();
    for (const [pair, number] of firstOfEachPair(messagesOf(this.#size, halves))) {
      this.#posted.set(pair, number);
    }
  }

  /** True when a message or call made here lacks a rank that left after so many: it will never be done. */
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

  /** Its ends of messages. */
  messageCounts(): MessageCounts {
    return { posted: [...this.#posted], waiting: [...this.#waiting] };
  }

  #count(messages: readonly Message[]): void {
    for (const [pair, number] of messages) this.#posted.set(pair, number + 1);
  }
}

/** On a communicator of so many ranks. */
export function messagesOf(size: number, halves: readonly RemoteTransfer[]): Message[] {
  return halves.map((half) => [pairNumber(size, pairOf(half)), half.number]);
}

/** The first of each pair. */
function firstOfEachPair(messages: readonly Message[]): Map<number, number> {
  return new Map(messages.toReversed());
}

/** A sender and its receiver. */
type Pair = readonly [from: number, to: number];

/** The sender and the receiver of a message. */
function pairOf({ direction, peer, call }: RemoteTransfer): Pair {
  return direction === "send" ? [call.rank, peer] : [peer, call.rank];
}

/** A number for a pair of ranks, of so many. */
function pairNumber(size: number, [from, to]: Pair): number {
  return from * size + to;
}

/** True when a rank is one of a pair with that number. */
function pairHasRank(size: number, pair: number, rank: number): boolean {
  return Math.floor(pair / size) === rank || pair % size === rank;
}
