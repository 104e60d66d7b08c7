/**
 * The built-in comparison of two backends: every collective, dtype and operator, rank counts from one on, and element
 * counts around the edges of chunks.
 *
 * Copying collectives are compared on arbitrary bits, and so are folding ones if both backends explain the same plan. Otherwise
 * only exact numbers must agree.
 */
import { type BitDifference, firstDifference } from "../../api/bits.ts";
import { countText } from "../../api/error-text.ts";
import type { HostArray } from "../../api/index.ts";
import { type MeasuredCollective, questionOf } from "../../bench/collectives.ts";
import {
  type CallRange,
  type Case,
  callsOf,
  caseOf,
  heldBytes,
  type Output,
  questionOfCall,
} from "./cases.ts";
import { divergenceText, orderEndingAt } from "./divergence.ts";
import { openSide, type Side, type SideWorld } from "./sides.ts";

/** The compared calls. */
interface SweepOptions extends CallRange {
  readonly a: Side;
  readonly b: Side;
  readonly rows: readonly MeasuredCollective[];
  /** Rank counts range from 1 to this one. */
  readonly maxRanks: number;
  readonly onProgress: (text: string) => void;
  /** Called once both sides are open on so many ranks, before their first calls. */
  readonly onOpened?: (ranks: number) => void;
}

/** The findings on one collective. A result is the contents of one rank after one call, if any. */
export interface Comparison {
  readonly row: MeasuredCollective;
  results: number;
  identical: number;
  elements: number;
  /** Results of calls on arbitrary bits. */
  onBits: number;
  /** Calls that one of the backends does not support. */
  leftOut: number;
  /** The first difference in words. */
  first: string | undefined;
}

/** Every rank's output of every case, by rank and case. */
type Outputs = readonly (readonly Output[])[];

/** Most bytes of outputs held at once. */
const maxHeld = 2 ** 26;

/** Runs the comparison and yields the findings on each collective once the most ranks have made its calls. */
export async function* sweep(options: SweepOptions): AsyncGenerator<Comparison> {
  const found = options.rows.map((row): Comparison => {
    return { row, results: 0, identical: 0, elements: 0, onBits: 0, leftOut: 0, first: undefined };
  });
  for (let ranks = 1; ranks <= options.maxRanks; ranks++) {
    const worlds: SideWorld[] = [];
    try {
      for (const side of [options.a, options.b]) worlds.push(await openSide(side, ranks));
      const [a, b] = worlds as [SideWorld, SideWorld];
      options.onOpened?.(ranks);
      for (const comparison of found) {
        options.onProgress(`${comparison.row.collective} on ${ranks} of ${options.maxRanks} ranks`);
        for (const cases of batches(await casesOf(options, comparison.row, ranks, [a, b]))) {
          const outputs = [await a.outputs(cases), await b.outputs(cases)] as const;
          for (const [index, each] of cases.entries())
            compare(comparison, options, [a, b], each, index, outputs);
        }
        if (ranks === options.maxRanks) yield comparison;
      }
    } finally {
      for (const world of worlds) await world.close();
    }
  }
}

/** The cases of a collective: on arbitrary bits where it folds nothing, or both sides fold in the same order. */
async function casesOf(
  options: SweepOptions,
  row: MeasuredCollective,
  ranks: number,
  [a, b]: readonly [SideWorld, SideWorld],
): Promise<Iterable<Case>> {
  const calls = callsOf(row, ranks, options);
  const questions = row.reduces ? calls.map(questionOfCall) : [];
  const [plansOfA, plansOfB] = [await a.plans(questions), await b.plans(questions)];
  const placements = row.inPlace === undefined ? [false] : [false, true];
  return (function* () {
    for (const [at, call] of calls.entries()) {
      const plan = plansOfA[at];
      const isSame = !row.reduces || (plan !== undefined && plan === plansOfB[at]);
      const payload = isSame ? "bits" : "exact";
      for (const inPlace of placements) yield caseOf({ ...call, inPlace, payload });
    }
  })();
}

function* batches(cases: Iterable<Case>): Generator<Case[]> {
  let batch: Case[] = [];
  let held = 0;
  for (const each of cases) {
    batch.push(each);
    held += heldBytes(each);
    if (held < maxHeld) continue;
    yield batch;
    batch = [];
    held = 0;
  }
  if (batch.length > 0) yield batch;
}

function compare(
  comparison: Comparison,
  { a, b }: SweepOptions,
  worlds: readonly SideWorld[],
  each: Case,
  index: number,
  [outputsOfA, outputsOfB]: readonly [Outputs, Outputs],
): void {
  for (let rank = 0; rank < each.shape.ranks; rank++) {
    const left = outputsOfA[rank]?.[index];
    const right = outputsOfB[rank]?.[index];
    if (left === undefined || right === undefined) {
      if (rank === 0) comparison.leftOut++;
      continue;
    }
    // A rank without output has no result to compare; for a barrier, both returns count.
    if (left.length + right.length === 0 && each.row.moves) continue;
    const difference = firstDifference(left, right, left.BYTES_PER_ELEMENT);
    comparison.results++;
    comparison.elements += left.length;
    if (each.payload === "bits") comparison.onBits++;
    if (difference === undefined) comparison.identical++;
    else if (comparison.first === undefined) {
      const text = differenceText(each, rank, difference, a.name, b.name);
      const hop = hopText(worlds, each, rank, difference.element, right);
      comparison.first = hop === undefined ? text : `${text}; ${hop}`;
    }
  }
}

/** The hop of the common plan at which the second result diverges; no text without a common plan that is known here. */
function hopText(
  worlds: readonly SideWorld[],
  { row, shape, dtype, op, payload, input }: Case,
  rank: number,
  element: number,
  found: HostArray,
): string | undefined {
  const { collective } = row;
  const isOwned = collective === "reduceScatter" || collective === "reduce";
  if (!(isOwned || collective === "allReduce") || payload !== "bits") return undefined;
  if (element >= found.length) return undefined;
  // The explanation describes rank 0's block.
  const question = { ...questionOf(row, shape, dtype, op), ...(row.rooted && { root: 0 }) };
  const explain = worlds.find((world) => world.explain !== undefined)?.explain;
  if (explain === undefined) return undefined;
  const { chunk, order } = explain(question).chunkOf(element);
  const at = collective === "reduceScatter" ? rank * shape.count + element : element;
  const one = (array: HostArray, index: number): HostArray =>
    array.slice(index, index + 1) as HostArray;
  const parting = divergenceText({
    dtype,
    op,
    order: isOwned ? orderEndingAt(order, rank) : order,
    contributions: order.map((_, each) => one(input(each), at)),
    found: one(found, element),
  });
  return `chunk ${chunk}, ${parting}`;
}

function differenceText(
  { row, shape, dtype, op, inPlace, payload }: Case,
  rank: number,
  { element, length, a, b }: BitDifference,
  nameOfA: string,
  nameOfB: string,
): string {
  const what: string[] = [row.collective, dtype];
  if (row.reduces) what.push(op);
  const root = row.rooted ? `, root ${shape.root}` : "";
  const facts = `${countText(shape.ranks, "rank")}, count ${shape.count}${root}, ${inPlace ? "in place" : "out of place"}, ${payload === "bits" ? "arbitrary bits" : "exact numbers"}`;
  return `${what.join(" ")}, ${facts}: rank ${rank}, element ${element} of ${length}: ${a} on ${nameOfA}, ${b} on ${nameOfB}`;
}
