/**
 * Values as the verifier sees them: not numbers, but how a number came to be.
 *
 * A value is a rank's untouched chunk (`leaf`), that chunk as a partial of its own (`scaled`: a pre-multiplied sum
 * has multiplied it), a fold of two values, or a complete value (`final`). Equal values are stored once, so two
 * programs compute the same bits exactly when their values have the same number here, and `hash` gives that number a
 * name that is the same in every run. A fold does not distinguish its two operands, because every operator's bits are
 * the same either way round; that a leaf is folded in directly (one rounding for an average) is part of the value.
 */

/** Number of a value in its table. */
export type ValueId = number;

const kinds = { leaf: 0, scaled: 1, fold: 2, final: 3 } as const;

/** What a value is made of. */
export type Value =
  | { readonly kind: "leaf"; readonly rank: number; readonly chunk: number }
  | { readonly kind: "scaled" | "final"; readonly of: ValueId }
  | { readonly kind: "fold"; readonly left: ValueId; readonly right: ValueId };

/** Stores each distinct value once. */
export class ValueTable {
  readonly #kind: number[] = [];
  readonly #left: number[] = [];
  readonly #right: number[] = [];
  readonly #ranks: bigint[] = [];
  readonly #chunk: number[] = [];
  readonly #hash: string[] = [];
  readonly #index = new Map<number, ValueId>();

  /** A rank's own chunk. */
  leaf(rank: number, chunk: number): ValueId {
    return this.#store(kinds.leaf, rank, chunk, () => [1n << BigInt(rank), chunk]);
  }

  /** A lone contribution taken as a partial; partials stay what they are. */
  partial(value: ValueId): ValueId {
    if (this.#kind[value] !== kinds.leaf) return value;
    return this.#store(kinds.scaled, value, 0, () => [this.ranksOf(value), this.chunkOf(value)]);
  }

  /** The fold of two values, of which at most one may be a leaf. Answers a fault for values that cannot be folded. */
  fold(a: ValueId, b: ValueId): ValueId | { readonly fault: string } {
    if (this.chunkOf(a) !== this.chunkOf(b)) {
      return { fault: `folds chunk ${this.chunkOf(a)} with chunk ${this.chunkOf(b)}` };
    }
    if (this.#kind[a] === kinds.final || this.#kind[b] === kinds.final) {
      return { fault: "folds a value that was already complete" };
    }
    const both = this.ranksOf(a) & this.ranksOf(b);
    if (both !== 0n) return { fault: `counts the contribution of rank ${lowestBit(both)} twice` };
    const left = Math.min(a, b);
    const right = Math.max(a, b);
    const ranks = this.ranksOf(a) | this.ranksOf(b);
    return this.#store(kinds.fold, left, right, () => [ranks, this.chunkOf(a)]);
  }

  /** The complete value. */
  final(value: ValueId): ValueId {
    return this.#store(kinds.final, value, 0, () => [this.ranksOf(value), this.chunkOf(value)]);
  }

  /** What a value is made of. */
  describe(value: ValueId): Value {
    const left = this.#left[value] as number;
    const right = this.#right[value] as number;
    switch (this.#kind[value]) {
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

  isLeaf(value: ValueId): boolean {
    return this.#kind[value] === kinds.leaf;
  }

  isFinal(value: ValueId): boolean {
    return this.#kind[value] === kinds.final;
  }

  /** Ranks whose contribution is in, one bit each. */
  ranksOf(value: ValueId): bigint {
    return this.#ranks[value] as bigint;
  }

  /** Number of the input chunk that a value is about. */
  chunkOf(value: ValueId): number {
    return this.#chunk[value] as number;
  }

  /** The association hash: 16 hex digits that name how the value came to be, the same in every run. */
  hash(value: ValueId): string {
    const known = this.#hash[value];
    if (known !== undefined) return known;
    const left = this.#left[value] as number;
    const right = this.#right[value] as number;
    const kind = this.#kind[value] as number;
    let parts = [`${left}`, `${right}`];
    if (kind === kinds.fold) parts = [this.hash(left), this.hash(right)].sort();
    else if (kind !== kinds.leaf) parts = [this.hash(left)];
    const hash = hash64(`${kind}(${parts.join(",")})`);
    this.#hash[value] = hash;
    return hash;
  }

  #store(
    kind: number,
    left: number,
    right: number,
    facts: () => readonly [bigint, number],
  ): ValueId {
    const key = (left * 2 ** 24 + right) * 4 + kind;
    const known = this.#index.get(key);
    if (known !== undefined) return known;
    const id = this.#kind.length;
    const [ranks, chunk] = facts();
    this.#kind.push(kind);
    this.#left.push(left);
    this.#right.push(right);
    this.#ranks.push(ranks);
    this.#chunk.push(chunk);
    this.#index.set(key, id);
    return id;
  }
}

/** Position of the lowest bit that is set. */
export function lowestBit(bits: bigint): number {
  let position = 0;
  for (let rest = bits; (rest & 1n) === 0n; rest >>= 1n) position++;
  return position;
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
