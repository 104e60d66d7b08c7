/**
 * The assignment of rows to experts. An expert takes as many rows as its capacity, of all ranks together. Rank 0's come first,
 * in the order of tokens and choices, then rank 1's. So the dropped rows do not depend on the division of tokens.
 */
import { type Part, partOf } from "../tensor/split.ts";

/** The rows that one rank sends and receives. */
export interface Placement {
  /** This rank's kept (token, choice) pairs, by expert, in their order. */
  readonly kept: Int32Array;
  /** Rows that each rank keeps for each expert. */
  readonly keptBy: readonly (readonly number[])[];
  /** Rows that were dropped, of all ranks, by expert. */
  readonly dropped: readonly number[];
  /** The experts of this rank. */
  readonly own: Part;
  /** Rows for each rank, and from each. */
  readonly sendRows: readonly number[];
  readonly recvRows: readonly number[];
}

/** Divides the experts' capacity; `counts` are the requested rows of each rank, by expert. */
export function placementOf(
  chosen: Int32Array,
  counts: readonly (readonly number[])[],
  capacity: number,
  rank: number,
): Placement {
  const size = counts.length;
  const requested = counts[rank] as readonly number[];
  const experts = requested.length;
  const keptBy = counts.map(() => new Array<number>(experts).fill(0));
  const dropped = new Array<number>(experts).fill(0);
  for (let expert = 0; expert < experts; expert++) {
    let free = capacity;
    for (const [each, table] of keptBy.entries()) {
      const requestedRows = counts[each]?.[expert] as number;
      const keptRows = Math.min(requestedRows, free);
      table[expert] = keptRows;
      free -= keptRows;
      dropped[expert] = (dropped[expert] as number) + requestedRows - keptRows;
    }
  }
  const partOfRank = (each: number): Part => partOf(experts, { rank: each, size });
  const rowsFor = (from: number, to: number): number => {
    const { begin, end } = partOfRank(to);
    return (keptBy[from] as number[]).slice(begin, end).reduce((sum, rows) => sum + rows, 0);
  };
  return {
    kept: firstOfEach(chosen, keptBy[rank] as number[]),
    keptBy,
    dropped,
    own: partOfRank(rank),
    sendRows: counts.map((_, to) => rowsFor(rank, to)),
    recvRows: counts.map((_, from) => rowsFor(from, rank)),
  };
}

/** The first pairs of every expert, as many as it keeps from this rank. */
function firstOfEach(chosen: Int32Array, keeps: readonly number[]): Int32Array {
  const ends: number[] = [];
  let total = 0;
  const bounds = keeps.map((each) => {
    ends.push(total);
    total += each;
    return total;
  });
  const kept = new Int32Array(total);
  for (let pair = 0; pair < chosen.length; pair++) {
    const expert = chosen[pair] as number;
    const at = ends[expert] as number;
    if (at === bounds[expert]) continue;
    kept[at] = pair;
    ends[expert] = at + 1;
  }
  return kept;
}

/**
 * For every row in the order of experts and then ranks: its place in the order of arrival, ranks and then experts. `own` are
 * this rank's experts.
 */
export function arrivalOrder({ keptBy, own }: Placement): { order: Int32Array; rows: number[] } {
  const begins: number[][] = [];
  let total = 0;
  for (const table of keptBy) {
    const begin: number[] = [];
    for (let expert = own.begin; expert < own.end; expert++) {
      begin.push(total);
      total += table[expert] as number;
    }
    begins.push(begin);
  }
  const order = new Int32Array(total);
  const rows: number[] = [];
  let at = 0;
  for (let expert = own.begin; expert < own.end; expert++) {
    const before = at;
    for (const [rank, table] of keptBy.entries()) {
      const first = begins[rank]?.[expert - own.begin] as number;
      for (let row = 0; row < (table[expert] as number); row++) order[at++] = first + row;
    }
    rows.push(at - before);
  }
  return { order, rows };
}
