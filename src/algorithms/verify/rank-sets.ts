/**
 * Sets of ranks by number, for very many sets: a number below `ranks` is the set of that rank alone, any other names a
 * row of bits in one growing array.
 */
import { none } from "../program.ts";

/** Number of a set. Two numbers may name the same set of several ranks; `equal` tells. */
export type RankSet = number;

/** The sets that occur among a number of ranks. */
export class RankSets {
  readonly #ranks: number;
  /** 32-bit words in a row. */
  readonly #words: number;
  #bits: Int32Array;
  #rows = 0;

  constructor(ranks: number) {
    this.#ranks = ranks;
    this.#words = Math.ceil(ranks / 32);
    this.#bits = new Int32Array(64 * this.#words);
  }

  /** The set of these ranks, at least one. */
  of(ranks: readonly number[]): RankSet {
    const [first, ...others] = ranks as readonly [number, ...number[]];
    if (others.length === 0) return first;
    const row = this.#newRow();
    for (const rank of ranks) this.#add(row, rank);
    return this.#ranks + this.#rows - 1;
  }

  /** Both sets together; -1 when they have a rank in common. */
  disjointUnion(a: RankSet, b: RankSet): RankSet {
    const row = this.#newRow();
    if (!this.#addAll(row, a) || !this.#addAll(row, b)) {
      this.#rows--;
      return none;
    }
    return this.#ranks + this.#rows - 1;
  }

  equal(a: RankSet, b: RankSet): boolean {
    if (a === b) return true;
    if (a < this.#ranks || b < this.#ranks) return false;
    const bits = this.#bits;
    const rowA = this.#row(a);
    const rowB = this.#row(b);
    for (let word = 0; word < this.#words; word++) {
      if (bits[rowA + word] !== bits[rowB + word]) return false;
    }
    return true;
  }

  has(set: RankSet, rank: number): boolean {
    if (set < this.#ranks) return set === rank;
    const word = this.#bits[this.#row(set) + (rank >> 5)] as number;
    return ((word >>> (rank & 31)) & 1) === 1;
  }

  /** The first rank that is in `set` and, where one is given, in `other` too (or, with `within` false, not). */
  first(set: RankSet, other = set, within = true): number | undefined {
    for (let rank = 0; rank < this.#ranks; rank++) {
      if (this.has(set, rank) && this.has(other, rank) === within) return rank;
    }
    return undefined;
  }

  /** Adds a set to a row; false when the row has one of its ranks. */
  #addAll(row: number, set: RankSet): boolean {
    if (set < this.#ranks) return this.#add(row, set);
    const bits = this.#bits;
    const from = this.#row(set);
    let both = 0;
    for (let word = 0; word < this.#words; word++) {
      const old = bits[row + word] as number;
      const more = bits[from + word] as number;
      both |= old & more;
      bits[row + word] = old | more;
    }
    return both === 0;
  }

  #add(row: number, rank: number): boolean {
    const at = row + (rank >> 5);
    const old = this.#bits[at] as number;
    const bit = 1 << (rank & 31);
    this.#bits[at] = old | bit;
    return (old & bit) === 0;
  }

  #row(set: RankSet): number {
    return (set - this.#ranks) * this.#words;
  }

  #newRow(): number {
    const row = this.#rows * this.#words;
    this.#rows++;
    if (row + this.#words > this.#bits.length) {
      const grown = new Int32Array(2 * this.#bits.length);
      grown.set(this.#bits);
      this.#bits = grown;
    }
    // A row that was given up before has bits left.
    this.#bits.fill(0, row, row + this.#words);
    return row;
  }
}
