/** Checks every output chunk against the specification: each contribution once, complete, and the same bits on all ranks. */
import { specifications } from "../../api/collectives/index.ts";
import type { InputBlock } from "../../api/collectives/spec.ts";
import { none, type Program } from "../program.ts";
import type { Execution } from "./execution.ts";
import type { Problem } from "./matching.ts";
import type { ValueId, ValueTable } from "./values.ts";

/** The required content of an output chunk. */
interface Need {
  /** Number of the input chunk. */
  readonly source: number;
  /** Ranks that contribute, as a set's number. */
  readonly ranks: number;
  readonly reduces: boolean;
}

/** Problems of the values that a program leaves in its outputs. */
export function contributionProblems(program: Program, execution: Execution): Problem[] {
  const { ranks, root, chunksPerBlock, collective } = program;
  const { expected, reduces } = specifications[collective];
  const { values, outputs } = execution;
  const problems: Problem[] = [];
  // Ranks that hold the same fold must hold it by the same association: the same bits everywhere.
  const norms: ValueId[] = [];
  let previous: readonly InputBlock[] | undefined;
  let all = none;
  for (let rank = 0; rank < ranks; rank++) {
    const chunks = outputs[rank] as Int32Array;
    for (let block = 0; block * chunksPerBlock < chunks.length; block++) {
      const sources = expected(ranks, rank, block, root);
      const first = (sources[0]?.block ?? 0) * chunksPerBlock;
      // The specification returns the same array for equal requirements.
      if (sources !== previous) all = values.setOf(sources.map((source) => source.rank));
      previous = sources;
      for (let piece = 0; piece < chunksPerBlock; piece++) {
        const chunk = block * chunksPerBlock + piece;
        const value = chunks[chunk] as ValueId;
        const need = { source: first + piece, ranks: all, reduces };
        const text = fault(values, value, need) ?? orderFault(values, value, need, norms);
        if (text === undefined) continue;
        problems.push({ pass: "contribution", text: `out[${chunk}] of rank ${rank} ${text}` });
      }
    }
  }
  return problems;
}

function fault(values: ValueTable, value: ValueId, need: Need): string | undefined {
  if (value < 0) return "was never written";
  const { source, ranks, reduces } = need;
  if (values.chunkOf(value) !== source) {
    return `holds input chunk ${values.chunkOf(value)}, needs ${source}`;
  }
  const found = values.contributors(value);
  if (!values.sameSet(found, ranks)) {
    const lacking = values.firstLacking(ranks, found);
    return lacking === undefined
      ? `holds an extra contribution of rank ${values.firstLacking(found, ranks)}`
      : `lacks the contribution of rank ${lacking}`;
  }
  if (values.isFinal(value) === reduces) return undefined;
  return reduces ? "was never completed" : "was completed, but nothing was folded";
}

/** Compares a value with the first one of the same fold; every fold of a chunk is over the same ranks. */
function orderFault(
  values: ValueTable,
  value: ValueId,
  { source, ranks, reduces }: Need,
  norms: ValueId[],
): string | undefined {
  if (!reduces) return undefined;
  const norm = norms[source] ?? value;
  norms[source] = norm;
  if (norm === value || !values.sameSet(values.contributors(norm), ranks)) return undefined;
  return "was folded in another order than on another rank";
}
