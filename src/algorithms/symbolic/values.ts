/**
 * Values of a symbolic execution, identified by their derivation.
 *
 * A value is a rank's input chunk (`leaf`) or that chunk as a partial (`scaled`: a pre-multiplied sum has multiplied it). Or it
 * is a fold of two values, or a complete value (`final`). Equal values are stored once, so two programs compute the same bits
 * exactly when their values have the same number. `hash` names that number, with the same name in every run. A fold does not
 * distinguish its operands, because every operator is commutative bit by bit. A leaf that is folded in directly (one rounding
 * for an average) differs from one that is a partial first.
 */
import { assertInteger } from "../arguments.ts";
import { none } from "../program.ts";

/** Number of a value in its table. Operands have lower numbers than their results. */
export type ValueId = number;

const kinds = { leaf: 0, scaled: 1, fold: 2, final: 3 } as const;

/** The derivation of a value. */
export type Value =
  | { readonly kind: "leaf"; readonly rank: number; readonly chunk: number }
  | { readonly kind: "scaled" | "final"; readonly of: ValueId }
  | { readonly kind: "fold"; readonly left: ValueId; readonly right: ValueId };

/** Fields of a value, adjacent in memory because they are read together. */
const field = {
  kind: 0,
  left: 1,
  right: 2,
  chunk: 3,
  /** Contributing ranks, as the number of a set. */
  ranks: 4,
  /** The newest value that has this one as its later operand; from there, the list of older such values. */
  newest: 5,
  older: 6,
} as const;

/** Integers a value. */
const valueWidth = 8;

/** Initial capacity of a table. */
export interface Room {
  readonly values: number;
  /** Leaves of each rank. */
  readonly leaves: number;
}

/** Most ranks of a table. */
const maxRanks = 2 ** 20;

const initialCapacity: Room = { values: 256, leaves: 4 };

/** Stores each distinct value once. */
export class ValueTable {
  #size = 0;
  #values: Int32Array;
  /** By rank and chunk, `#leavesPerRank` entries per rank: the value's number plus one; 0 for none. */
  #leaves: Int32Array;
  #leavesPerRank: number;
  readonly #ranks: number;
  readonly #hash: string[] = [];
  readonly #sets: RankSets;

  constructor(ranks: number, capacity: Room = initialCapacity) {
    assertInteger("ValueTable", "ranks", ranks, 1, maxRanks);
    this.#sets = new RankSets(ranks);
    this.#values = new Int32Array(Math.max(1, capacity.values) * valueWidth);
    this.#ranks = ranks;
    this.#leavesPerRank = capacity.leaves;
    this.#leaves = new Int32Array(ranks * capacity.leaves);
  }

  /** Number of values so far. */
  get size(): number {
    return this.#size;
  }

  /** A rank's own chunk. */
  leaf(rank: number, chunk: number): ValueId {
    // Leaves of a rank that does not exist are not shared.
    if (rank < 0 || rank >= this.#ranks) return this.#store(kinds.leaf, rank, chunk, chunk, rank);
    if (chunk >= this.#leavesPerRank)
      this.#growLeaves(Math.max(chunk + 1, 2 * this.#leavesPerRank));
    const at = rank * this.#leavesPerRank + chunk;
    const known = this.#leaves[at] as number;
    if (known > 0) return known - 1;
    const id = this.#store(kinds.leaf, rank, chunk, chunk, rank);
    this.#leaves[at] = id + 1;
    return id;
  }

  /** Raises the capacity to `leaves` per rank. */
  #growLeaves(leaves: number): void {
    const old = this.#leavesPerRank;
    const more = new Int32Array(this.#ranks * leaves);
    for (let rank = 0; rank < this.#ranks; rank++) {
      more.set(this.#leaves.subarray(rank * old, (rank + 1) * old), rank * leaves);
    }
    this.#leaves = more;
    this.#leavesPerRank = leaves;
  }

  /** A contribution as a partial; partials are unchanged. */
  partial(value: ValueId): ValueId {
    return this.isLeaf(value) ? this.#derive(kinds.scaled, value) : value;
  }

  /** The complete value. */
  final(value: ValueId): ValueId {
    return this.#derive(kinds.final, value);
  }

  /** The fold of two values, of which at most one may be a leaf. Returns a fault for values that cannot be folded. */
  fold(a: ValueId, b: ValueId): ValueId | { readonly fault: string } {
    const left = Math.min(a, b);
    const right = Math.max(a, b);
    const known = this.#find(kinds.fold, left, right);
    if (known !== none) return known;
    const chunk = this.chunkOf(a);
    if (chunk !== this.chunkOf(b)) {
      return { fault: `folds chunk ${chunk} with chunk ${this.chunkOf(b)}` };
    }
    if (this.isFinal(a) || this.isFinal(b)) {
      return { fault: "folds a value that was already complete" };
    }
    const ranks = this.#sets.disjointUnion(this.contributors(a), this.contributors(b));
    if (ranks === none) {
      const twice = this.#sets.first(this.contributors(a), this.contributors(b));
      return { fault: `counts the contribution of rank ${twice} twice` };
    }
    return this.#link(this.#store(kinds.fold, left, right, chunk, ranks), right);
  }

  /** The derivation of a value. */
  describe(value: ValueId): Value {
    const left = this.leftOf(value);
    const right = this.rightOf(value);
    switch (this.#of(value, field.kind)) {
      case kinds.leaf:
        return { kind: "leaf", rank: left, chunk: right };
      case kinds.scaled:
        return { kind: "scaled", of: left };
      case kinds.final:
        return { kind: "final", of: left };
      default:
        return { kind: "fold", left, right };
    }
  }

  /** True for a fold of two values. */
  isFold(value: ValueId): boolean {
    return this.#of(value, field.kind) === kinds.fold;
  }

  /** The rank of a leaf, the earlier operand of a fold, the operand of any other value. */
  leftOf(value: ValueId): number {
    return this.#of(value, field.left);
  }

  /** The later operand of a fold. */
  rightOf(value: ValueId): number {
    return this.#of(value, field.right);
  }

  /** True for a rank's input chunk. */
  isLeaf(value: ValueId): boolean {
    return this.#of(value, field.kind) === kinds.leaf;
  }

  /** True for a complete value. */
  isFinal(value: ValueId): boolean {
    return this.#of(value, field.kind) === kinds.final;
  }

  /** Number of the input chunk that a value is derived from. */
  chunkOf(value: ValueId): number {
    return this.#of(value, field.chunk);
  }

  /** Contributing ranks, as the number of a set. */
  contributors(value: ValueId): number {
    return this.#of(value, field.ranks);
  }

  /** Number of the set of these ranks. */
  setOf(ranks: readonly number[]): number {
    return this.#sets.of(ranks);
  }

  /** True when two numbers name the same set. */
  sameSet(a: number, b: number): boolean {
    return this.#sets.equal(a, b);
  }

  /** The first rank of one set that the other lacks. */
  firstMissing(set: number, other: number): number | undefined {
    return this.#sets.first(set, other, false);
  }

  /** The association hash: 16 hex digits that name the derivation of the value, the same in every run. */
  hash(value: ValueId): string {
    // Lower numbers first, so that operands have theirs; no recursion, because chains are long.
    for (let id = this.#hash.length; id <= value; id++) {
      const left = this.leftOf(id);
      const right = this.rightOf(id);
      const kind = this.#of(id, field.kind);
      let parts = [`${left}`, `${right}`];
      if (kind === kinds.fold) parts = [this.#hash[left] ?? "", this.#hash[right] ?? ""].sort();
      else if (kind !== kinds.leaf) parts = [this.#hash[left] ?? ""];
      this.#hash.push(hash64(`${kind}(${parts.join(",")})`));
    }
    return this.#hash[value] ?? "nothing";
  }

  #derive(kind: number, of: ValueId): ValueId {
    const known = this.#find(kind, of, of);
    if (known !== none) return known;
    return this.#link(this.#store(kind, of, of, this.chunkOf(of), this.contributors(of)), of);
  }

  /** The value of that kind with these operands, `right` being the later one; -1 when there is none yet. */
  #find(kind: number, left: ValueId, right: ValueId): ValueId {
    const values = this.#values;
    let id = values[right * valueWidth + field.newest] ?? none;
    while (id !== none) {
      const at = id * valueWidth;
      if (values[at + field.left] === left && values[at + field.kind] === kind) return id;
      id = values[at + field.older] as number;
    }
    return none;
  }

  /** Adds a value to the list of its later operand. */
  #link(value: ValueId, of: ValueId): ValueId {
    const values = this.#values;
    const newest = of * valueWidth + field.newest;
    values[value * valueWidth + field.older] = values[newest] as number;
    values[newest] = value;
    return value;
  }

  #store(kind: number, left: number, right: number, chunk: number, ranks: number): ValueId {
    const id = this.#size++;
    const at = id * valueWidth;
    if (at === this.#values.length) this.#values = longer(this.#values, 2 * at);
    const values = this.#values;
    values[at + field.kind] = kind;
    values[at + field.left] = left;
    values[at + field.right] = right;
    values[at + field.chunk] = chunk;
    values[at + field.ranks] = ranks;
    values[at + field.newest] = none;
    values[at + field.older] = none;
    return id;
  }

  #of(value: ValueId, which: number): number {
    return this.#values[value * valueWidth + which] as number;
  }
}

function longer(column: Int32Array, length: number): Int32Array<ArrayBuffer> {
  const copy = new Int32Array(length);
  copy.set(column);
  return copy;
}

/** One hash of several texts, in their order. */
export function hashAll(texts: readonly string[]): string {
  return hash64(texts.join(","));
}

/** Two rounds of FNV-1a with a final mix, as 16 hex digits. */
function hash64(text: string): string {
  return hash32(text, 0x811c9dc5) + hash32(text, 0x9e3779b9);
}

function hash32(text: string, seed: number): string {
  let hash = seed;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d);
  hash = Math.imul(hash ^ (hash >>> 15), 0x846ca68b);
  return ((hash ^ (hash >>> 16)) >>> 0).toString(16).padStart(8, "0");
}

/** Number of a set. Two numbers can name the same set of several ranks; `equal` compares the sets. */
type RankSet = number;

/**
 * Sets of ranks by number, for very many sets. A number below `ranks` is the set of that single rank, any other is a row of
 * bits in one growing array.
 */
class RankSets {
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

  /** The set of one or more ranks. */
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
    // A discarded row still has bits.
    this.#bits.fill(0, row, row + this.#words);
    return row;
  }
}
