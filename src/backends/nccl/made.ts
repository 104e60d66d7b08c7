/** What one process has made on a communicator, in words that others may ask for. */
import type { HalfTransfer, Waiting } from "../../api/index.ts";
import { numberOf, pairOf } from "./pairs.ts";

/** A message: the number of its pair of ranks, and its own among theirs. */
export type Message = readonly [pair: number, number: number];

/** A process's ends of messages. */
export interface Ends {
  /** How many it has made, by pair. */
  readonly made: readonly (readonly [pair: number, count: number])[];
  /** Those that are not done, in the order of the stream; some are under way at once. */
  readonly open: readonly (readonly Message[])[];
}

/** Collective calls, and this process's ends of messages; what waits until others have come counts. */
export class Made {
  /** How many collective calls. */
  calls = 0;
  readonly #size: number;
  readonly #made = new Map<number, number>();
  readonly #underWay = new Set<readonly HalfTransfer[]>();
  #waiting: readonly HalfTransfer[] = [];

  /** On a communicator of so many ranks. */
  constructor(size: number) {
    this.#size = size;
  }

  /** Messages wait until their ranks have come together. */
  await(halves: readonly HalfTransfer[]): void {
    this.#count(halves);
    this.#waiting = halves;
  }

  /** Messages were handed over. Gives who is to be told when they are done, in the place of `waiting`. */
  handOver(halves: readonly HalfTransfer[], waiting: Waiting): Waiting {
    this.#count(halves);
    this.#waiting = [];
    this.#underWay.add(halves);
    const settled = (error?: unknown): void => {
      // What failed keeps others waiting for good.
      if (error === undefined) this.#underWay.delete(halves);
      waiting.settled(error);
    };
    return { takesMore: false, settled };
  }

  /** Messages could not be handed over: of each pair the first one is the next again. */
  refuse(halves: readonly HalfTransfer[]): void {
    this.#waiting = [];
    for (const [pair, number] of messagesOf(this.#size, halves.toReversed())) {
      this.#made.set(pair, number);
    }
  }

  /** Its ends of messages. */
  ends(): Ends {
    const open = [...this.#underWay, this.#waiting].map((halves) => messagesOf(this.#size, halves));
    return { made: [...this.#made], open };
  }

  #count(halves: readonly HalfTransfer[]): void {
    for (const [pair, number] of messagesOf(this.#size, halves)) this.#made.set(pair, number + 1);
  }
}

/** On a communicator of so many ranks. */
export function messagesOf(size: number, halves: readonly HalfTransfer[]): Message[] {
  return halves.map((half) => [numberOf(size, pairOf(half)), half.number]);
}
