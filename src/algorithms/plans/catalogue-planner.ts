/** Plans of the catalogue's algorithms, and of the caller's own algorithms, which are verified before use. */
import { countText } from "../../api/error-text.ts";
import {
  type CollectiveName,
  type DType,
  InvalidArgumentError,
  type ReduceOp,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "../../api/index.ts";
import { namesText } from "../../api/nearest.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
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
import { type Verdict, verifyProgram } from "../verify/verify.ts";
import { isBuilt, type Plan, type PlanQuestion } from "./plan.ts";

/** Layouts cached per plan; the oldest is evicted first. */
const maxLayouts = 256;

/** Caches the plans of the catalogue's and the caller's algorithms. */
export class CataloguePlanner {
  readonly #choice: AlgorithmChoice;
  readonly #subject: string;
  readonly #plans = new Map<string, Plan>();

  constructor(choice: AlgorithmChoice, subject: string) {
    this.#choice = choice;
    this.#subject = subject;
  }

  /** The plan of a call. `why` is the reason for no claim; `unclaimed` is true if a claim was requested. */
  of({ collective, ranks, root }: PlanQuestion, why: string, unclaimed = false): Plan {
    const key = `${collective}/${ranks}/${root}/${why}`;
    const known = this.#plans.get(key);
    if (known !== undefined) return known;
    const algorithm = chosen(collective, this.#choice[collective], this.#subject);
    const isOwn = typeof this.#choice[collective] === "object";
    const plan = new CataloguePlan(
      { algorithm, isOwn, subject: this.#subject },
      { collective, ranks, root },
      why,
      unclaimed || isOwn,
    );
    this.#plans.set(key, plan);
    return plan;
  }
}

/** The facts that decide a program. */
type ProgramQuestion = Pick<PlanQuestion, "collective" | "ranks" | "root">;

/** The algorithm of a plan. */
interface Chosen {
  readonly algorithm: Algorithm;
  /** True for an algorithm of the caller. */
  readonly isOwn: boolean;
  /** Begins the errors of an algorithm of the caller. */
  readonly subject: string;
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
  /** The error of an earlier attempt to build the program, kept because the attempt takes long. */
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
    const { algorithm, isOwn, subject } = this.#chosen;
    if (this.#refused !== undefined) throw this.#refused;
    try {
      const where = `${subject}: algorithms.${collective}: `;
      this.#program ??= isOwn
        ? soundProgram(collective, algorithm, ranks, root, where)
        : buildProgram(collective, algorithm, ranks, root);
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
    if (this.#layouts.size >= maxLayouts && !oldest.done) this.#layouts.delete(oldest.value);
    this.#layouts.set(shape.count, layout);
    return layout;
  }

  folds(dtype: DType, op: ReduceOp): PlanFolds {
    const fold = foldFor(dtype, op, this.#question.ranks, "fused");
    return { fold, separate: undefined, accumulator: "element" };
  }
}

/** Throws for a choice that names an unknown collective or algorithm. `subject` begins the errors. */
export function checkChoice(choice: AlgorithmChoice, subject: string): void {
  for (const [collective, name] of Object.entries(choice)) {
    if (!isBuilt(collective as CollectiveName)) {
      throw new InvalidArgumentError(
        {
          headline: `${subject}: algorithms.${collective}: it is not known here, needs one of ${namesText(collective, builtCollectives)}`,
        },
        { field: `algorithms.${collective}` },
      );
    }
    if (name !== undefined) chosen(collective as SpecifiedCollective, name, subject);
  }
}

function chosen(
  collective: SpecifiedCollective,
  choice: AlgorithmChoice[SpecifiedCollective] | undefined,
  subject: string,
): Algorithm {
  if (typeof choice === "object" && choice !== null) {
    assertAlgorithmFields(collective, choice, `${subject}: algorithms.${collective}.`);
    return choice;
  }
  const algorithm = findAlgorithm(collective, choice);
  if (algorithm !== undefined) return algorithm;
  const names = algorithmsOf(collective).map(({ name }) => name);
  throw invalid(
    subject,
    `algorithms.${collective}`,
    textOf(choice),
    `one of ${namesText(String(choice), names)}, or an algorithm`,
    "docs/algorithms.md describes them, and how to write one",
  );
}

/** Number of problems in the error for an unsound algorithm. */
const maxProblems = 8;

/**
 * Checks the fields of an algorithm. `where` names its option or file.
 *
 * @throws InvalidArgumentError that names the first field that is missing.
 */
export function assertAlgorithmFields(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  where = `sim: algorithms.${collective}.`,
): void {
  const needs: Readonly<Partial<Record<keyof Algorithm, "string" | "function">>> = {
    ...{ name: "string", summary: "string", credits: "function", chunksPerBlock: "function" },
    ...{ cost: "function", write: "function" },
    ...(specifications[collective].reduces && { order: "function" }),
  };
  for (const [key, type] of Object.entries(needs)) {
    const found = typeof Reflect.get(algorithm, key);
    if (found === type) continue;
    throw new InvalidArgumentError(
      {
        headline: `${where}${key}: found ${found}, needs a ${type}`,
        hint: "docs/algorithms.md describes how to write an algorithm",
      },
      { field: `algorithms.${collective}` },
    );
  }
}

/**
 * The program of a caller's algorithm, after verification: an unsound one would give wrong results, or a deadlock.
 * `where` names its option or file.
 *
 * @throws InvalidArgumentError when it is unsound, or cannot be written for that number of ranks.
 */
export function soundProgram(
  collective: SpecifiedCollective,
  algorithm: Algorithm,
  ranks: number,
  root: number,
  where = `sim: algorithms.${collective}: `,
): Program {
  const what = `${where}"${algorithm.name}"`;
  const field = `algorithms.${collective}`;
  const on = `${countText(ranks, "rank")}${root < 0 ? "" : `, root ${root}`}`;
  let verdict: Verdict;
  try {
    verdict = verifyProgram(buildProgram(collective, algorithm, ranks, root), algorithm);
  } catch (error) {
    if (error instanceof UnsupportedError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const headline = `${what} cannot be written for ${on}: ${why.split("\n", 1)[0]}`;
    throw new InvalidArgumentError({ headline }, { field, collective, size: ranks, cause: error });
  }
  const { program, problems } = verdict;
  if (problems.length === 0) return program;
  throw new InvalidArgumentError(
    {
      headline: `${what} is not sound on ${on}`,
      table: problems.slice(0, maxProblems).map(({ pass, text }) => [pass, text]),
      hint: "verifyAlgorithm() of twinccl/algorithms lists all its problems",
    },
    { field, collective, size: ranks },
  );
}
