/** The plan of a call: program, fused folds and layout, made once for each shape and kept. */
import {
  type Algorithm,
  type AlgorithmChoice,
  buildProgram,
  type CallShape,
  type FusedPlan,
  findAlgorithm,
  fuse,
  type Layout,
  layoutOf,
  type Program,
} from "../../algorithms/index.ts";
import {
  type CollectiveName,
  InvalidArgumentError,
  type SpecifiedCollective,
  specifications,
} from "../../api/index.ts";

/** How one collective is done among a number of ranks. */
export interface Plan {
  readonly algorithm: Algorithm;
  readonly program: Program;
  /** Made when it is first asked for: predicting time needs none. */
  readonly fused: FusedPlan;
  /** Layouts by count, for calls whose blocks are all alike. */
  readonly layouts: Map<number, Layout>;
}

/** Layouts kept per plan; the oldest goes first. */
const mostLayouts = 256;

/** The plans of one world. */
export class Plans {
  readonly #choice: AlgorithmChoice;
  readonly #plans = new Map<string, Plan>();

  constructor(choice: AlgorithmChoice) {
    this.#choice = choice;
  }

  /** The plan of a collective; programs of unrooted ones have root -1. */
  of(collective: SpecifiedCollective, ranks: number, root: number): Plan {
    const key = `${collective}/${ranks}/${root}`;
    const known = this.#plans.get(key);
    if (known !== undefined) return known;
    const algorithm = chosen(collective, this.#choice[collective]);
    const program = buildProgram(collective, algorithm, ranks, root);
    const plan = planOf(algorithm, program);
    this.#plans.set(key, plan);
    return plan;
  }
}

function planOf(algorithm: Algorithm, program: Program): Plan {
  let fused: FusedPlan | undefined;
  return {
    algorithm,
    program,
    layouts: new Map<number, Layout>(),
    get fused() {
      fused ??= fuse(program);
      return fused;
    },
  };
}

/** The layout of a call under a plan. */
export function planLayout(plan: Plan, shape: CallShape): Layout {
  if (shape.blocks !== undefined) return layoutOf(plan.program, shape);
  const known = plan.layouts.get(shape.count);
  if (known !== undefined) return known;
  const layout = layoutOf(plan.program, shape);
  const oldest = plan.layouts.keys().next();
  if (plan.layouts.size >= mostLayouts && !oldest.done) plan.layouts.delete(oldest.value);
  plan.layouts.set(shape.count, layout);
  return layout;
}

/** True when programs exist for a collective. */
export function isBuilt(collective: CollectiveName): collective is SpecifiedCollective {
  return Object.hasOwn(specifications, collective);
}

/** Refuses a choice that names a collective or algorithm which does not exist. */
export function checkChoice(choice: AlgorithmChoice): void {
  for (const [collective, name] of Object.entries(choice)) {
    if (!isBuilt(collective as CollectiveName)) {
      throw new InvalidArgumentError(
        { headline: `sim: algorithms.${collective}: there is no such collective` },
        { field: `algorithms.${collective}` },
      );
    }
    if (name !== undefined) chosen(collective as SpecifiedCollective, name);
  }
}

function chosen(collective: SpecifiedCollective, name: string | undefined): Algorithm {
  const algorithm = findAlgorithm(collective, name);
  if (algorithm !== undefined) return algorithm;
  throw new InvalidArgumentError(
    {
      headline: `sim: algorithms.${collective}: found "${name}", needs a name of the catalogue`,
      hint: "docs/algorithms.md lists them",
    },
    { field: `algorithms.${collective}` },
  );
}
