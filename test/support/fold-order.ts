/**
 * In which order the papers fold, written down by hand: a few lines for each algorithm, from its description alone.
 *
 * An order is the tree of what a rank computes. `alone`: a rank's contribution is sent, or kept, as a partial of its
 * own. `meets`: a rank folds its own contribution into a partial that reached it; where there is a scalar, it multiplies
 * and adds in one rounding. `joined`: two partials are folded.
 */

/** The derivation of an element. */
export type FoldOrder =
  | { readonly alone: number }
  | { readonly partial: FoldOrder; readonly meets: number }
  | { readonly left: FoldOrder; readonly right: FoldOrder };

/** The position of one element in a call's result. */
export interface Element {
  /** -1 without one. */
  readonly root: number;
  /** The rank that owns the element's block in a reduce-scatter; 0 for other collectives. */
  readonly block: number;
  /** Its chunk when the block is cut into so many, as even as possible, longer ones first. */
  chunkOf(chunks: number): number;
}

type Order = (ranks: number, element: Element) => FoldOrder;

const alone = (rank: number): FoldOrder => ({ alone: rank });
const meets = (partial: FoldOrder, rank: number): FoldOrder => ({ partial, meets: rank });
const joined = (left: FoldOrder, right: FoldOrder): FoldOrder => ({ left, right });

/** The first rank sends its contribution, each of the others folds its own into what comes. */
function along([first, ...others]: readonly number[]): FoldOrder {
  return others.reduce(meets, alone(first!));
}

/** Ranks once round the ring, ending at `last`. */
function round(ranks: number, last: number): number[] {
  return upTo(ranks).map((hop) => (last + 1 + hop) % ranks);
}

const upTo = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

/**
 * A hypercube has 2^k corners. Beyond that many ranks, the first ranks pair up: the odd one sends to the even one,
 * which folds it with its own contribution and stands for both.
 */
function corners(ranks: number): FoldOrder[] {
  let size = 1;
  while (2 * size <= ranks) size *= 2;
  const pairs = ranks - size;
  const paired = upTo(pairs).map((pair) => meets(alone(2 * pair + 1), 2 * pair));
  return [...paired, ...upTo(ranks - 2 * pairs).map((rank) => alone(2 * pairs + rank))];
}

/** Thakur, Rabenseifner and Gropp 2005: partners at distance 1, then 2, 4, … fold what they have. */
function nearestFirst(partials: readonly FoldOrder[]): FoldOrder {
  if (partials.length === 1) return partials[0]!;
  const pairs = upTo(partials.length / 2);
  return nearestFirst(pairs.map((pair) => joined(partials[2 * pair]!, partials[2 * pair + 1]!)));
}

/** Rabenseifner 2004: partners half of the cube apart, then a quarter, … fold the half of the data they keep. */
function farthestFirst(partials: readonly FoldOrder[]): FoldOrder {
  const half = partials.length / 2;
  if (half < 1) return partials[0]!;
  return farthestFirst(
    upTo(half).map((place) => joined(partials[place]!, partials[place + half]!)),
  );
}

/**
 * Sanders, Speck and Träff 2009, NCCL: rank 0 stands over a binary tree of the ranks from 1 on, in order from left to
 * right: the middle one on top, a half on either side, and where there is no such rank, the half on its left instead.
 * A rank folds its own contribution into what its left child sends, then that with what its right child sends. The
 * second half of the data has the tree mirrored for an even number of ranks, moved on by one for an odd number.
 */
function twoTrees(ranks: number, half: "first" | "second"): FoldOrder {
  const named = (rank: number): number => {
    if (half === "first") return rank;
    return ranks % 2 === 0 ? ranks - 1 - rank : (rank + 1) % ranks;
  };
  /** Ranks above `low`, less than 2^height of them. */
  const between = (low: number, height: number): FoldOrder | undefined => {
    if (height === 0) return undefined;
    const top = low + 2 ** (height - 1);
    const left = between(low, height - 1);
    if (top >= ranks) return left;
    const held = left === undefined ? alone(named(top)) : meets(left, named(top));
    const right = between(top, height - 1);
    return right === undefined ? held : joined(held, right);
  };
  const below = between(0, 31);
  return below === undefined ? alone(named(0)) : meets(below, named(0));
}

/**
 * Thakur, Rabenseifner and Gropp 2005, from the root on: at distance 1, 2, 4, … the rank farther from the root sends
 * its partial to the nearer one. The first partial that comes meets the own contribution.
 */
function binomial(ranks: number, root: number): FoldOrder {
  const held: (FoldOrder | undefined)[] = upTo(ranks).map(() => undefined);
  const rankAt = (place: number): number => (root + place) % ranks;
  for (let distance = 1; distance < ranks; distance *= 2) {
    for (let near = 0; near + distance < ranks; near += 2 * distance) {
      const far = near + distance;
      const sent = held[far] ?? alone(rankAt(far));
      const own = held[near];
      held[near] = own === undefined ? meets(sent, rankAt(near)) : joined(own, sent);
    }
  }
  return held[0] ?? alone(root);
}

/** Every order, by collective and algorithm. */
const orders: Readonly<Record<string, Readonly<Record<string, Order>>>> = {
  allReduce: {
    // Patarasuk and Yuan 2009: chunk c goes once round and ends at rank c.
    ring: (ranks, { chunkOf }) => along(round(ranks, chunkOf(ranks))),
    // NCCL's Tree on one node: from the far end of the chain to rank 0.
    chain: (ranks) => along(upTo(ranks).reverse()),
    // Four pieces of each half are under way.
    "double-tree": (ranks, { chunkOf }) => twoTrees(ranks, chunkOf(8) < 4 ? "first" : "second"),
    "halving-doubling": (ranks) => farthestFirst(corners(ranks)),
    "recursive-doubling": (ranks) => nearestFirst(corners(ranks)),
    // Rank 0 loops over the ranks; each comes as a partial, so every product is rounded before it is added.
    linear: (ranks) => upTo(ranks).map(alone).reduce(joined),
  },
  reduce: {
    // Pješivac-Grbović et al. 2007: from the rank after the root to the root.
    chain: (ranks, { root }) => along(round(ranks, root)),
    binomial: (ranks, { root }) => binomial(ranks, root),
  },
  reduceScatter: {
    // The first half of the ring all-reduce: the block of rank d ends at rank d.
    ring: (ranks, { block }) => along(round(ranks, block)),
    "recursive-halving": (ranks) => farthestFirst(corners(ranks)),
  },
  reduceScatterv: { ring: (ranks, { block }) => along(round(ranks, block)) },
};

/** The order of an algorithm. Throws where none was written down. */
export function orderOf(collective: string, algorithm: string): Order {
  const order = orders[collective]?.[algorithm];
  if (order !== undefined) return order;
  throw new Error(`${collective} by ${algorithm}: no fold order is written down for it`);
}
