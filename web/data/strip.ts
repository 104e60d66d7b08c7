/** A rank's memory as the page draws it: what each chunk holds, from when on, and which element a place stands for. */
import type { ChunkTable, Step, ValueId } from "twinccl/algorithms";
import type { State } from "../state.ts";
import type { Associations } from "./association.ts";
import { traits } from "./calls.ts";
import type { Structure } from "./structure.ts";

/** From when on a rank holds another value of a chunk. */
export interface Change {
  readonly atPs: number;
  readonly chunk: number;
  /** Ranks with contributions in it, in the order of folding. */
  readonly order: readonly number[];
  readonly final: boolean;
}

/** The memory of a rank: its output, or its input for collectives that reduce, at the root of a scatter, and where no output is. */
export interface Strip {
  readonly chunks: ChunkTable;
  /** Elements. */
  readonly length: number;
  /** The rank of all its values at the beginning; `undefined` for nothing yet. */
  readonly start: number | undefined;
  /** In the order of time. */
  readonly changes: readonly Change[];
}

/** A step that was taken: its rank, its time, and its result. */
export interface Taken {
  readonly rank: number;
  readonly atPs: number;
  readonly step: Step;
  readonly made: readonly ValueId[];
}

/** An element of a rank's output. */
export interface Target {
  readonly rank: number;
  readonly element: number;
}

/** The changes of a step in its rank's strip. */
export function changesOf(
  state: State,
  { execution, layout }: Structure,
  { rank, atPs, step, made }: Taken,
  associations: Associations,
): Change[] {
  if (traits(state).reduces) {
    // Of what a rank only hands on or keeps aside, nothing is shown.
    return made.flatMap((id) => {
      const order = associations.order(id);
      const final = associations.isFinal(id);
      if (!final && (order.length < 2 || !order.includes(rank))) return [];
      return [{ atPs, chunk: execution.values.chunkOf(id), order, final }];
    });
  }
  const toOutput = step.write >= 0 && (step.write & 3) === 1;
  if (!toOutput || !showsOutput(state, layout, rank)) return [];
  const chunk = step.write >> 2;
  return made.map((id, i) => {
    return { atPs, chunk: chunk + i, order: associations.order(id), final: true };
  });
}

/** The strip of a rank. */
export function stripOf(
  state: State,
  { layout }: Structure,
  rank: number,
  changes: readonly Change[],
): Strip {
  const input = traits(state).reduces || !showsOutput(state, layout, rank);
  const chunks = (input ? layout.in : layout.out)[rank] ?? noChunks;
  return {
    chunks,
    length: lengthOf(chunks),
    start: input ? rank : undefined,
    changes: [...changes].sort((a, b) => a.atPs - b.atPs),
  };
}

/** The element of an output that a place of a strip stands for. */
export function targetAt(state: State, { layout }: Structure, rank: number, place: number): Target {
  const { collective, ranks, root, count } = state;
  if (collective === "reduce") return { rank: root, element: place };
  if (collective === "gather" && rank !== root) {
    return { rank: root, element: rank * count + place };
  }
  const cutsUp = collective.startsWith("reduceScatter") || collective === "scatter";
  if (!cutsUp || (collective === "scatter" && rank !== root)) return { rank, element: place };
  let first = 0;
  for (let owner = 0; owner < ranks; owner++) {
    const length = lengthOf(layout.out[owner] ?? noChunks);
    if (place < first + length) return { rank: owner, element: place - first };
    first += length;
  }
  return { rank, element: 0 };
}

/** The place of an element of a rank's output in that rank's strip; `undefined` where it shows something else. */
export function placeOf(state: State, { layout }: Structure, target: Target): number | undefined {
  const { collective, root } = state;
  const { rank, element } = target;
  if (collective === "scatter" && rank === root) return rank * state.count + element;
  if (!collective.startsWith("reduceScatter")) return element;
  const before = layout.out.slice(0, rank).map(lengthOf);
  return before.reduce((sum, length) => sum + length, element);
}

/** Elements of a table. */
function lengthOf({ offsets, lengths }: ChunkTable): number {
  let end = 0;
  offsets.forEach((offset, i) => {
    end = Math.max(end, offset + (lengths[i] ?? 0));
  });
  return end;
}

const noChunks: ChunkTable = { offsets: new Float64Array(), lengths: new Float64Array() };

function showsOutput(
  { collective, root }: State,
  layout: Structure["layout"],
  rank: number,
): boolean {
  if (collective === "scatter" && rank === root) return false;
  return (layout.out[rank] ?? noChunks).offsets.length > 0;
}
