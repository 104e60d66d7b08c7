/** The plan of a call: program, fused folds, layout and arithmetic, made once for each shape and kept. */

import {
  type CollectiveName,
  type DType,
  InvalidArgumentError,
  type ReduceOp,
  type SpecifiedCollective,
  type SymmetricPlace,
  specifications,
} from "../../api/index.ts";
import { namesText } from "../../api/nearest.ts";
import { textOf } from "../../api/option-kinds.ts";
import { type Algorithm, buildProgram, type Cost } from "../algorithm.ts";
import { foldFor } from "../arithmetic/index.ts";
import {
  type AlgorithmChoice,
  algorithmsOf,
  builtCollectives,
  findAlgorithm,
} from "../catalogue.ts";
import { type FusedPlan, fuse } from "../fuse.ts";
import { type CallShape, type Layout, layoutOf } from "../layout.ts";
import type { PlanFolds } from "../nccl/index.ts";
import type { Program } from "../program.ts";
import { assertAlgorithm, soundProgram } from "./own-algorithm.ts";

/** A call as far as its plan depends on it. */
export interface PlanQuestion {
  readonly collective: SpecifiedCollective;
  readonly ranks: number;
  /** -1 where the collective has none. */
  readonly root: number;
  readonly dtype: DType | undefined;
  readonly op: ReduceOp | undefined;
  readonly count: number;
  /** The ranks keep the order of the devices they run on. */
  readonly ordered: boolean;
  /** Where both buffers lie in symmetric memory. */
  readonly place: SymmetricPlace | undefined;
}

/** How a call is done. */
export interface Plan {
  readonly name: string;
  readonly protocol: string | undefined;
  /** One sentence for people. */
  readonly summary: string;
  /** What is said about equality with NCCL. */
  readonly claim: string;
  /** Traces say that nothing is claimed: NCCL was to be followed and could not be, or the caller wrote the algorithm. */
  readonly unclaimed: boolean;
  /** The fastest way to make such a call, in words; left out where none was measured. */
  readonly fastest?: string | undefined;
  /** Why a call that would take this plan is refused; `undefined` when it is not. */
  readonly refusal: string | undefined;
  readonly ranks: number;
  /** Lanes of each rank. */
  readonly channels: number;
  /** Closed form of the cost, where there is one. */
  readonly cost: ((count: number) => Cost) | undefined;
  /** What a table of chunks and steps would tell, in fewer lines; `undefined` where the tables are what is shown. */
  readonly outline: readonly string[] | undefined;
  /** Made when it is first asked for, as are `fused` and layouts. UnsupportedError where it would be too large. */
  readonly program: Program;
  /** Predicting time needs none. */
  readonly fused: FusedPlan;
  /** Where the blocks and chunks of a call of that shape lie. */
  layout(shape: CallShape): Layout;
  /** How a rank's contributions are folded. */
  folds(dtype: DType, op: ReduceOp): PlanFolds;
}

/** Makes the plans of a world. */
export interface Planner {
  /** The plan of a call. */
  of(question: PlanQuestion): Plan;
  /** A reduce-scatter of blocks of different lengths is done as one reduce for each root. */
  reducesEachRoot(question: PlanQuestion): boolean;
}

/** Layouts kept per plan; the oldest goes first. */
const mostLayouts = 256;

/** Plans of the catalogue's algorithms, and of those that the caller wrote. */
export class CataloguePlanner {
  readonly #choice: AlgorithmChoice;
  readonly #plans = new Map<string, Plan>();

  constructor(choice: AlgorithmChoice) {
    this.#choice = choice;
  }

  /** `why` says why nothing is claimed, and `unclaimed` that something was to be. */
  of({ collective, ranks, root }: PlanQuestion, why: string, unclaimed = false): Plan {
    const key = `${collective}/${ranks}/${root}/${why}`;
    const known = this.#plans.get(key);
    if (known !== undefined) return known;
    const algorithm = chosen(collective, this.#choice[collective]);
    const isOwn = typeof this.#choice[collective] === "object";
    const plan = new CataloguePlan(
      { algorithm, isOwn },
      { collective, ranks, root },
      why,
      unclaimed || isOwn,
    );
    this.#plans.set(key, plan);
    return plan;
  }
}

/** What a program depends on. */
type ProgramQuestion = Pick<PlanQuestion, "collective" | "ranks" | "root">;

/** What a plan is made from. */
interface Chosen {
  readonly algorithm: Algorithm;
  /** The caller wrote it. */
  readonly isOwn: boolean;
}

class CataloguePlan implements Plan {
  readonly name: string;
  readonly protocol = undefined;
  readonly summary: string;
  readonly claim: string;
  readonly unclaimed: boolean;
  readonly refusal = undefined;
  readonly ranks: number;
  readonly channels: number;
  readonly cost: (count: number) => Cost;
  readonly outline = undefined;
  readonly #chosen: Chosen;
  readonly #question: ProgramQuestion;
  readonly #layouts = new Map<number, Layout>();
  #program: Program | undefined;
  /** Why the program cannot be made: finding that out takes long enough for once. */
  #refused: unknown;
  #fused: FusedPlan | undefined;

  constructor(from: Chosen, question: ProgramQuestion, why: string, unclaimed: boolean) {
    const { collective, ranks } = question;
    const { algorithm } = from;
    const { reduces } = specifications[collective];
    this.name = algorithm.name;
    this.unclaimed = unclaimed && reduces;
    this.claim = reduces
      ? `a generic plan, no claim is made about NCCL's bits: ${why}`
      : "copies bytes, as every plan does: the same result as NCCL's";
    this.summary = algorithm.summary;
    this.ranks = ranks;
    this.channels = algorithm.channels ?? 1;
    this.cost = (count) => algorithm.cost({ ranks, count });
    this.#chosen = from;
    this.#question = question;
  }

  get program(): Program {
    const { collective, ranks, root } = this.#question;
    const { algorithm, isOwn } = this.#chosen;
    if (this.#refused !== undefined) throw this.#refused;
    try {
      const build = isOwn ? soundProgram : buildProgram;
      this.#program ??= build(collective, algorithm, ranks, root);
      return this.#program;
    } catch (error) {
      this.#refused = error;
      throw error;
    }
  }

  get fused(): FusedPlan {
    this.#fused ??= fuse(this.program);
    return this.#fused;
  }

  layout(shape: CallShape): Layout {
    if (shape.blocks !== undefined) return layoutOf(this.program, shape);
    const known = this.#layouts.get(shape.count);
    if (known !== undefined) return known;
    const layout = layoutOf(this.program, shape);
    const oldest = this.#layouts.keys().next();
    if (this.#layouts.size >= mostLayouts && !oldest.done) this.#layouts.delete(oldest.value);
    this.#layouts.set(shape.count, layout);
    return layout;
  }

  folds(dtype: DType, op: ReduceOp): PlanFolds {
    const fold = foldFor(dtype, op, this.#question.ranks, "fused");
    return { fold, separate: undefined, accumulator: "element" };
  }
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
        {
          headline: `sim: algorithms.${collective}: it is not known here, needs one of ${namesText(collective, builtCollectives)}`,
        },
        { field: `algorithms.${collective}` },
      );
    }
    if (name !== undefined) chosen(collective as SpecifiedCollective, name);
  }
}

function chosen(
  collective: SpecifiedCollective,
  choice: AlgorithmChoice[SpecifiedCollective] | undefined,
): Algorithm {
  if (typeof choice === "object" && choice !== null) {
    assertAlgorithm(collective, choice);
    return choice;
  }
  const algorithm = findAlgorithm(collective, choice);
  if (algorithm !== undefined) return algorithm;
  const names = algorithmsOf(collective).map(({ name }) => name);
  throw new InvalidArgumentError(
    {
      headline: `sim: algorithms.${collective}: found ${textOf(choice)}, needs one of ${namesText(String(choice), names)}, or an algorithm`,
      hint: "docs/algorithms.md tells what they do, and how to write one",
    },
    { field: `algorithms.${collective}` },
  );
}
