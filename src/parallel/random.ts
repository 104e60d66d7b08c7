/**
 * Random numbers that can be stopped and resumed: each is a function of a key and of how many were drawn before it.
 *
 * Two streams with different keys are independent: drawing from one does not move another. The key states the purpose of the
 * numbers: `new Random(seed, rank)`, `new Random(seed, epoch, layer)`.
 */
import { mix32 } from "../api/bits.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { assertCount } from "./argument-checks.ts";
import { assertState, assertStateList, type RankStateful, type State } from "./state.ts";

/**
 * A stream of random numbers, fixed by its key.
 *
 * @throws InvalidArgumentError for a key part that is not a safe integer.
 * @example
 * const random = new Random(7, comm.rank);
 * const weight = random.normal() * 0.02;
 */
export class Random implements RankStateful {
  #low: number;
  #high: number;
  #drawn = 0;

  constructor(...key: readonly number[]) {
    let low = 0x9e3779b9;
    let high = 0x85ebca6b;
    for (const part of key) {
      if (!Number.isSafeInteger(part)) {
        throw invalid("Random", "key", textOf(part), "safe integers");
      }
      for (const word of [part | 0, Math.floor(part / 2 ** 32) | 0]) {
        low = mix32(low ^ word);
        high = mix32(high ^ Math.imul(word, 0x9e3779b1) ^ low);
      }
    }
    this.#low = low;
    this.#high = high;
  }

  /** 32 random bits, as an integer from 0. */
  word(): number {
    const drawn = this.#drawn++;
    const inner = mix32(this.#low ^ drawn);
    return mix32(inner ^ this.#high ^ Math.floor(drawn / 2 ** 32));
  }

  /** A number from 0 (included) to 1 (excluded), a multiple of 2^-53; takes two words. */
  uniform(): number {
    const high = this.word() >>> 5;
    return (high * 2 ** 26 + (this.word() >>> 6)) / 2 ** 53;
  }

  /** An integer from 0 to `bound` (excluded), with equal probability. `bound` is at most 2^32. */
  below(bound: number): number {
    if (!Number.isSafeInteger(bound) || bound < 1 || bound > 2 ** 32) {
      throw invalid("below", "bound", textOf(bound), "an integer from 1 to 2^32");
    }
    // Words past the last multiple of the bound would favour small results.
    const limit = 2 ** 32 - (2 ** 32 % bound);
    let word = this.word();
    while (word >= limit) word = this.word();
    return word % bound;
  }

  /** A number of the normal distribution with mean 0 and deviation 1 (Box and Muller); takes four words. */
  normal(): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return radius * Math.cos(2 * Math.PI * this.uniform());
  }

  state(): State {
    return { values: { low: this.#low, high: this.#high, drawn: this.#drawn }, tensors: {} };
  }

  restore(state: State): void {
    assertState("restore", state);
    const { low, high, drawn } = state.values;
    const found = Object.entries({ low, high, drawn }).map(
      ([name, each]) => `${name} ${textOf(each)}`,
    );
    const words = [low, high].every(
      (each) => Number.isInteger(each) && (each as number) >= 0 && (each as number) < 2 ** 32,
    );
    if (!words || !Number.isSafeInteger(drawn) || (drawn as number) < 0) {
      throw invalid("restore", "state", found.join(", "), "the state of a Random");
    }
    this.#low = low as number;
    this.#high = high as number;
    this.#drawn = drawn as number;
  }

  /** Rank r continues the stream of rank r; a new rank keeps its initial stream. */
  reshard(states: readonly State[], rank: number): void {
    assertStateList("reshard", states);
    assertCount("reshard", "rank", rank, 0);
    const state = states[rank];
    if (state !== undefined) this.restore(state);
  }
}
