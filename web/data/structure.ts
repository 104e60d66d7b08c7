/** The plan of a call taken apart: its program, where chunks lie, and what every step makes. */
import {
  allToAllvBlocks,
  type CallShape,
  type Execution,
  execute,
  type Layout,
  type Plan,
  type PlanFolds,
  type Program,
  plannersOf,
  planOf,
  rowBlocks,
} from "twinccl/algorithms";
import { isSymmetric, planOptions } from "../plans.ts";
import type { State } from "../state.ts";
import { blockCounts, moves, operatorOf, traits } from "./calls.ts";

/** A plan and everything that follows from it. */
export interface Structure {
  readonly plan: Plan;
  readonly program: Program;
  readonly layout: Layout;
  readonly execution: Execution;
  /** Of collectives that reduce. */
  readonly folds: PlanFolds | undefined;
}

/** The structure of a state's call: the same plan that `sim` takes for it. */
export function structureOf(state: State): Structure {
  const { collective, ranks, root, dtype, count } = state;
  const { reduces } = traits(state);
  const op = reduces ? operatorOf(state) : undefined;
  const plan = planOf(plannersOf(planOptions(state))(ranks), {
    collective,
    ranks,
    root,
    dtype: moves(state) ? dtype : undefined,
    op,
    count,
    ordered: true,
    place: isSymmetric(state) ? { send: 0, recv: 0 } : undefined,
  });
  const { program } = plan;
  return {
    plan,
    program,
    layout: plan.layout(shapeOf(state, program)),
    execution: execute(program, false),
    folds: op === undefined ? undefined : plan.folds(dtype, op),
  };
}

function shapeOf(state: State, program: Program): CallShape {
  const counts = blockCounts(state);
  const { count } = state;
  if (counts === undefined) return { count };
  const blocks =
    state.collective === "allToAllv"
      ? allToAllvBlocks(counts)
      : rowBlocks(program, counts[0] ?? []);
  return { count, blocks };
}
