/**
 * The first difference of folds: between counts, between places of one call, and between two kinds of call.
 *
 * Each walk goes over the stretches of counts from small to large, so that what it finds is the smallest count, and in it the
 * first element. A walk that ends without a difference has compared every element of every count.
 */

import { firstDifference } from "./fold-class.ts";
import type { Calls, Counts, Stretch } from "./stretches.ts";

/** An element of a call. */
export interface Place {
  readonly calls: Calls;
  readonly count: number;
  readonly block: number;
  readonly element: number;
}

/** Two places with the same contributions and folds of different classes. */
export type Pair = readonly [Place, Place];

/** Smallest count of a range that has an element. */
function countWith(element: number, { from, row }: Counts): number {
  return Math.max(from, row * Math.floor(element / row + 1));
}

function nextCount(after: number, { row }: Counts): number {
  return row * Math.floor(after / row + 1);
}

/** One element under two counts: the same rank's element of the output. */
export function acrossCounts(calls: Calls): Pair | undefined {
  const { counts, request } = calls;
  const { dtype, topology } = request;
  let known: Stretch | undefined;
  for (let count = counts.from; count <= counts.to; ) {
    const stretch = calls.at(count);
    for (let block = 0; known !== undefined && block < calls.blocks; block++) {
      const segments = stretch.segments(block, topology.ranks);
      const before = known.segments(block, topology.ranks);
      const to = lastCount(known, counts);
      const element = firstDifference(before, segments, { shift: 0, to, dtype });
      if (element === undefined) continue;
      const small = { calls, count: countWith(element, counts), block, element };
      return [small, { calls, count, block, element }];
    }
    known = stretch;
    count = nextCount(stretch.to, counts);
  }
  return undefined;
}

/** Two places of one call, rows apart; of a reduce-scatter also in the blocks of two ranks. */
export function acrossPlaces(calls: Calls): Pair | undefined {
  const { counts, request } = calls;
  const { dtype, topology } = request;
  for (let count = counts.from; count <= counts.to; ) {
    const stretch = calls.at(count);
    const to = lastCount(stretch, counts);
    const first = stretch.segments(0, topology.ranks);
    for (let block = 1; block < calls.blocks; block++) {
      const others = stretch.segments(block, topology.ranks);
      const element = firstDifference(first, others, { shift: 0, to, dtype });
      if (element === undefined) continue;
      const found = countWith(element, { ...counts, from: count });
      const place = { calls, count: found, element };
      return [
        { ...place, block: 0 },
        { ...place, block },
      ];
    }
    // Blocks are equal, so one stands for all.
    const shift = counts.row;
    const element = firstDifference(first, first, { shift, to: to - shift, dtype });
    if (element !== undefined) {
      const found = countWith(element + shift, { ...counts, from: count });
      const place = { calls, count: found, block: 0 };
      return [
        { ...place, element },
        { ...place, element: element + shift },
      ];
    }
    count = nextCount(stretch.to, counts);
  }
  return undefined;
}

/** One element under two kinds of call with equal counts. The ranks that only one has contribute the neutral element. */
export function betweenCalls(one: Calls, other: Calls): Pair | undefined {
  const { counts, request } = one;
  const present = Math.min(request.topology.ranks, other.request.topology.ranks);
  const blocks = Math.min(one.blocks, other.blocks);
  for (let count = counts.from; count <= counts.to; ) {
    const [a, b] = [one.at(count), other.at(count)];
    const equalTo = equalUpTo(a, b);
    const to = equalTo ?? Math.min(a.to, b.to);
    for (let block = 0; equalTo === undefined && block < blocks; block++) {
      // The other call may be refused, as one over LL with its small chunks.
      const right = b.segments(block, present);
      const left = a.segments(block, present);
      const within = { shift: 0, to: lastCount({ to }, counts), dtype: request.dtype };
      const element = firstDifference(left, right, within);
      if (element === undefined) continue;
      const place = { count: countWith(element, { ...counts, from: count }), block, element };
      return [
        { calls: one, ...place },
        { calls: other, ...place },
      ];
    }
    count = nextCount(to, counts);
  }
  return undefined;
}

/** The count up to which two calls have equal plans; `undefined` where that is not known. */
function equalUpTo(a: Stretch, b: Stretch): number | undefined {
  const at = a.words.findIndex(({ word }, i) => word === b.words[i]?.word);
  const [own, other] = [a.words[at], b.words[at]];
  return own && other && Math.min(own.to, other.to);
}

/** Largest count of a stretch. */
function lastCount({ to }: Pick<Stretch, "to">, { row }: Counts): number {
  return row * Math.floor(to / row);
}
