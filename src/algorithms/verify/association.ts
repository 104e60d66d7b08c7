/** Does a program fold in the order that its algorithm's header states? */
import { specifications } from "../../api/collectives/index.ts";
import type { Algorithm } from "../algorithm.ts";
import type { Folds } from "../association.ts";
import type { Program } from "../program.ts";
import type { Execution } from "./execution.ts";
import type { Problem } from "./problem.ts";
import type { ValueId, ValueTable } from "./values.ts";

/** Outputs that were folded in another order than stated; of a sound program, whose ranks agree on every chunk. */
export function associationProblems(
  program: Program,
  { order }: Algorithm,
  { values, outputs }: Execution,
): Problem[] {
  const { collective, ranks, root, chunksPerBlock } = program;
  const { reduces } = specifications[collective];
  if (!reduces) return [];
  if (order === undefined) {
    return [{ pass: "association", text: "the header states no order of folding" }];
  }
  const problems: Problem[] = [];
  const report = (text: string): void => void problems.push({ pass: "association", text });
  const stated: ValueId[] = [];
  for (let rank = 0; rank < ranks; rank++) {
    const chunks = outputs[rank] as Int32Array;
    for (let out = 0; out < chunks.length; out++) {
      // Of a sound program, so it is about the input chunk that is wanted here.
      const value = chunks[out] as ValueId;
      const source = values.chunkOf(value);
      let wanted = stated[source];
      if (wanted === undefined) {
        const chunk = source % chunksPerBlock;
        const place = { ranks, root, block: (source - chunk) / chunksPerBlock, chunk };
        wanted = values.final(order(foldsOf(values, source, report), place));
        stated[source] = wanted;
      }
      if (wanted === value) continue;
      report(`out[${out}] of rank ${rank} was folded in another order than the header states`);
    }
  }
  return problems;
}

/** The verbs of an order, making values of one input chunk. */
function foldsOf(
  values: ValueTable,
  chunk: number,
  report: (text: string) => void,
): Folds<ValueId> {
  const folded = (left: ValueId, right: ValueId): ValueId => {
    const value = values.fold(left, right);
    if (typeof value === "number") return value;
    report(`the header's order ${value.fault}`);
    return left;
  };
  return {
    own: (rank) => values.partial(values.leaf(rank, chunk)),
    into: (partial, rank) => folded(partial, values.leaf(rank, chunk)),
    join: folded,
  };
}
