/**
 * Sequences of C calls that are made any number of times. The cost of a foreign call through koffi grows with its arguments. The
 * helper's has none and runs the whole sequence from memory, at less than the cost of one foreign call of NCCL.
 */
import { type BoundCall, type Helper, headWords, listWords, writeCalls } from "./helper.ts";

/** Calls with all their arguments. */
export interface CallSequence {
  /** Makes the calls in order, up to the first that fails; throws its error. */
  run(): void;
}

/**
 * Runs before the list is written. By then the calls have taken much longer than writing takes, and more are likely.
 *
 * @internal
 */
export const runsBeforeList = 64;

/** Calls of functions that return a status, 0 for success. */
export class CallList<C extends BoundCall> implements CallSequence {
  readonly #calls: readonly C[];
  readonly #helper: Helper | undefined;
  readonly #fail: (status: number, call: C) => void;
  #runs = 0;
  /** Read by native code. The memory of an `ArrayBuffer` does not move. */
  #words: BigUint64Array | undefined;
  #address = 0n;

  /** `fail` throws the error of a call. Without a helper the calls are made one by one. */
  constructor(
    calls: readonly C[],
    helper: Helper | undefined,
    fail: (status: number, call: C) => void,
  ) {
    this.#calls = calls;
    this.#helper = helper;
    this.#fail = fail;
  }

  run(): void {
    const helper = this.#helper;
    if (helper === undefined || this.#words === undefined) {
      this.#runUnlisted();
      return;
    }
    helper.mailbox[0] = this.#address;
    const status = helper.run();
    if (status === 0) return;
    const failed = Number(this.#words[headWords - 1]);
    this.#fail(status, this.#calls[failed] as C);
  }

  #runUnlisted(): void {
    for (const each of this.#calls) {
      const status = made(each);
      if (status !== 0) this.#fail(status, each);
    }
    if (++this.#runs === runsBeforeList && this.#helper !== undefined) this.#write(this.#helper);
  }

  #write({ addressOf }: Helper): void {
    const words = new BigUint64Array(new ArrayBuffer(8 * listWords(this.#calls.length)));
    writeCalls(words, this.#calls);
    this.#address = addressOf(words.buffer);
    this.#words = words;
  }
}

/** Makes a call; returns its status. The arguments are passed one by one: a spread costs 10 ns more. */
function made({ call, args }: BoundCall): number {
  switch (args.length) {
    case 0:
      return call() as number;
    case 2:
      return call(args[0], args[1]) as number;
    case 6:
      return call(args[0], args[1], args[2], args[3], args[4], args[5]) as number;
    case 7:
      return call(args[0], args[1], args[2], args[3], args[4], args[5], args[6]) as number;
    default:
      return call(...args) as number;
  }
}
