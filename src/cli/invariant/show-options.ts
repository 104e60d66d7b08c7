/** The options of `twinccl invariant` about calls on a backend, and the text of what those calls show. */
import {
  type InvarianceQuestion,
  type LibraryName,
  libraryOf,
  type TopologyOption,
} from "../../algorithms/index.ts";
import { machineOf } from "../../algorithms/nccl/index.ts";
import { alignedTable, countText } from "../../api/error-text.ts";
import type { NamedReduceOp } from "../../api/index.ts";
import type { GoldenCollective } from "../../golden/case.ts";
import { UsageError } from "../context.ts";
import { type OptionTable, oneOf, type Parsed } from "../options.ts";
import type { Shown, ShownOn, ShownQuestion } from "./show.ts";

/** Rows of the command's table. */
export const showOptions = {
  backend: { value: "NAME", help: "make the calls of the answers on sim, tcp or nccl" },
  launch: { help: "nccl: a process for each rank, on imitated hosts as the machine has" },
  sizes: { value: "N", help: "--backend: calls of drawn sizes (8)" },
  seed: { value: "N", help: "--backend: fixes the drawn sizes (0)" },
} as const satisfies OptionTable;

type ShowOptions = Pick<Parsed<typeof showOptions>, "text" | "has" | "integer">;

/** The question of the command line, with machines and libraries as their options name them. */
export interface Asked {
  readonly question: InvarianceQuestion & {
    readonly ranks: readonly number[];
    readonly op: NamedReduceOp | undefined;
  };
  readonly machines: readonly TopologyOption[];
  readonly libraries: readonly LibraryName[];
}

/**
 * The backend of the calls; `undefined` without `--backend`.
 *
 * @throws UsageError for options that the backend does not have.
 */
export function shownOn(
  { question, machines, libraries }: Asked,
  parsed: ShowOptions,
): ShownOn | undefined {
  const name = parsed.text("backend");
  if (name === undefined) {
    for (const option of ["launch", "sizes", "seed"] as const) {
      if (parsed.has(option)) throw new UsageError(`--${option} goes with --backend`);
    }
    return undefined;
  }
  const backend = oneOf("--backend", name, ["sim", "tcp", "nccl"]);
  const { op, collective, ranks } = question;
  if (op === undefined) throw new UsageError(`--backend: ${collective} copies, nothing is folded`);
  if (backend === "sim" && parsed.has("launch")) {
    throw new UsageError("--launch: sim has all ranks in one process, needs nccl or tcp");
  }
  const [option = "h200x8"] = machines;
  const [like = "nccl-2.28"] = libraries;
  const topology = machineOf(option);
  const launched = backend === "tcp" || parsed.has("launch");
  if (backend === "nccl" && !launched && ranks.some((each) => topology(each).nodes > 1)) {
    throw new UsageError("--backend nccl: ranks on hosts of their own are processes: add --launch");
  }
  return { backend, launched, like, option, topology, version: libraryOf(like)?.version ?? "" };
}

/** The question in the form of calls. */
export function shownQuestion({ question }: Asked, parsed: ShowOptions): ShownQuestion {
  const { collective, ranks, dtype, op = "sum", root, variables = {} } = question;
  return {
    ...{ ranks: [...new Set(ranks)].sort((a, b) => a - b), dtype, op, root, variables },
    collective: collective as GoldenCollective,
    sizes: parsed.integer("sizes", 8, 0, 10_000),
    seed: parsed.integer("seed", 0),
  };
}

/** The findings in words. */
export function shownText({ backend, answers, omitted, sizes, plans }: Shown): string {
  const rows = answers.map(({ question, predicted, found }) => {
    const isAs = predicted.every((bits, at) => bits === found[at]);
    const bits = found.map((each) => each ?? "nothing").join(" and ");
    return [question, bits, isAs ? "as predicted" : `predicted ${predicted.join(" and ")}`];
  });
  const left = omitted.map(({ question, reason }) => [question, "not shown", reason]);
  const { drawn, calls, elements, differing, first } = sizes;
  const equal = `${elements - Math.min(elements, differing)} of ${elements}`;
  const as = differing === 0 ? "as promised" : "as promised, the first that is not:";
  return [
    `shown on ${backend}`,
    ...alignedTable([...rows, ...left]).map((line) => `  ${line}`),
    `  ${countText(calls, "call")} of ${countText(drawn, "drawn size")}: ${equal} elements ${as}`,
    ...(first === undefined ? [] : [`    ${first}`]),
    ...(plans === undefined ? [] : [`  plans: ${plans.predicted} of ${plans.logged} as predicted`]),
    "",
  ].join("\n");
}
