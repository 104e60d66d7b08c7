/** `twinccl explain`: predicts the plan of a call without running it. */
import {
  builtCollectives,
  differenceText,
  differing,
  elementHops,
  elementPlan,
  elementText,
  isTooLarge,
  type LibraryName,
  libraryOf,
  type NcclCollective,
  type NcclPlan,
  ncclEnvironment,
  ncclPlan,
  programName,
  resolvePin,
  type Topology,
  type TopologyOption,
  withRing,
} from "../algorithms/index.ts";
import {
  assertRingSize,
  copiedGather,
  isNcclCollective,
  machineOf,
  ncclCollectives,
  type SymmetricKernel,
} from "../algorithms/nccl/index.ts";
import { countText } from "../api/error-text.ts";
import {
  createWorld,
  type DType,
  type Explanation,
  namedReduceOps,
  type Question,
  type SpecifiedCollective,
} from "../api/index.ts";
import type { MeasuredCollective } from "../bench/index.ts";
import { algorithmChoice, algorithmFileHelp, algorithmHelp } from "./algorithms.ts";
import { maxRanks, opHelp, parseCollective, parseDtype, refuseUnused, rootOf } from "./args.ts";
import { variantBackend } from "./backends.ts";
import { type Command, type Context, UsageError } from "./context.ts";
import { machineHelp, machineNamed, machineOption } from "./machines.ts";
import { libraryNameOf, type NcclChoice, ncclChoice, ncclSettingsHelp } from "./nccl-settings.ts";
import { type OptionTable, oneOf, optionLines, type Parsed, parseOptions } from "./options.ts";
import { refuseOneRankEach } from "./placement.ts";

const options = {
  ranks: { short: "n", value: "N", help: "number of ranks (8)" },
  count: { value: "N", help: "elements as NCCL counts them; per peer for an all-to-all (1024)" },
  dtype: { short: "d", value: "TYPE", help: "element type (float32)" },
  op: { short: "o", value: "OP", help: opHelp },
  root: { short: "r", value: "RANK", help: "root (0)" },
  algorithm: { value: "NAME|FILE", help: algorithmHelp },
  like: {
    value: "LIBRARY",
    help: "follow this library's plans: nccl-2.27 to 2.30, torch-2.10 to 2.14",
  },
  ...machineOption,
  nccl: { value: "SETTINGS", help: "how NCCL is set up (default)" },
  against: { value: "SETTINGS", help: "compare NCCL's plan with the one under these settings" },
  element: { value: "I", help: "only element I of the output: its chunk, and how it is folded" },
  rank: { value: "RANK", help: "the rank of --element's output (0, or the root)" },
  backend: { value: "NAME", help: "sim or nccl (sim)" },
  json: { help: "print one JSON document" },
} as const satisfies OptionTable;

type ExplainOptions = Parsed<typeof options>;

/** The `explain` command. */
export const command: Command = {
  help: `Usage: twinccl explain COLLECTIVE [options]

Shows what a call would do: algorithm, chunks and the order in which each is folded, every rank's
steps, bytes sent, and the predicted time. Runs nothing.
COLLECTIVE: ${builtCollectives.join(" ")}

${optionLines(options)}
${algorithmFileHelp}
${machineHelp}
${ncclSettingsHelp}
Examples:
  twinccl explain all-reduce --count 1M
  twinccl explain all-reduce --ranks 4 --count 10 --algorithm ring
  twinccl explain all-reduce --ranks 4 --count 10 --algorithm ./line.mjs
  twinccl explain all-reduce --count 1M --element 5376
  twinccl explain reduce-scatter --topology h200-hosts --ranks 16
  twinccl explain all-reduce --topology graph.xml --ranks 16 --count 1M
  twinccl explain all-reduce --count 1M --against NCCL_MAX_NCHANNELS=4

Exit status: 0, or 2 for wrong usage and calls that are too large to be explained.
`,
  run: runExplain,
};

async function runExplain(args: readonly string[], context: Context): Promise<number> {
  const parsed = parseOptions(args, options, 1);
  const row = parseCollective(parsed.positionals[0], builtCollectives);
  if (builtCollectives.every((built) => built !== row.collective)) {
    throw new UsageError(`${row.collective} has no plan to explain`);
  }
  const size = parsed.integer("ranks", 8, 1, maxRanks);
  const question = questionOf(row, parsed, size);
  const plans = planPairOf(parsed, question, size);
  if (plans !== undefined) explainPlans(plans, parsed, size, context);
  else await explainCall(question, parsed, size, context);
  return 0;
}

/** The backend's explanation of a call. */
async function explainCall(
  question: Question,
  parsed: ExplainOptions,
  size: number,
  context: Context,
): Promise<void> {
  if (parsed.has("rank")) throw new UsageError("--rank goes with --element of NCCL's plan");
  const element = elementOf(parsed);
  const collective = question.collective as SpecifiedCollective;
  // Settings belong to a named library, even if it is also the default one.
  const settings =
    parsed.has("nccl") || parsed.has("topology")
      ? {
          like: libraryFor(parsed, size),
          topology: machineIn(parsed),
          plan: ncclChoice("--nccl", parsed.text("nccl")).setup,
        }
      : { like: parsed.text("like") };
  const worlds = { ranks: size, roots: [question.root ?? 0] };
  const chosen = await algorithmChoice(collective, parsed.text("algorithm"), worlds);
  const name = parsed.text("backend") ?? "sim";
  refuseOneRankEach("--backend", name, "sim, which follows the same plans");
  const backend = await variantBackend(await context.backends(), "--backend", name, {
    algorithms: chosen.algorithms,
    ...settings,
  });
  context.progress(`explaining ${collective} on ${countText(size, "rank")}`);
  const world = await createWorld({ backend, size });
  try {
    const explanation = world.explain(question);
    const isJson = parsed.has("json");
    context.out(
      isJson ? jsonText(question, explanation, element) : plainText(explanation, element),
    );
    // The explanation has its own facts, except for the unverified ranks.
    if (!isJson && chosen.verifiedRanks !== undefined && chosen.verifiedRanks < size)
      context.out(`\n${chosen.note}\n`);
  } finally {
    await world.close();
  }
}

function elementOf(parsed: ExplainOptions): number | undefined {
  return parsed.has("element") ? parsed.integer("element", 0) : undefined;
}

function questionOf(row: MeasuredCollective, parsed: ExplainOptions, size: number): Question {
  refuseUnused(row, parsed, ["root", "op", "dtype", "count"]);
  const { collective, moves, reduces, rooted } = row;
  const root = rootOf(row, parsed.integer("root", 0), size);
  return {
    collective,
    dtype: moves ? parseDtype(parsed.text("dtype") ?? "float32") : undefined,
    op: reduces ? oneOf("--op", parsed.text("op") ?? "sum", namedReduceOps) : undefined,
    count: moves ? parsed.count("count", 1024) : undefined,
    root: rooted ? root : undefined,
    symmetric: ncclChoice("--nccl", parsed.text("nccl")).symmetric,
  };
}

/** NCCL's plan of a call. */
interface CallPlan {
  readonly plan: NcclPlan;
  /** Of an all-gather in symmetric memory the kernel that copies the blocks of the plan's Ring. */
  readonly kernel: SymmetricKernel | undefined;
}

/** NCCL's plan of the call, and the plan that it is compared with. */
interface PlanPair {
  readonly own: CallPlan;
  readonly other: CallPlan | undefined;
}

/** The library of the predicted plans: the named one, or the simulation's default. */
function libraryFor(parsed: ExplainOptions, size: number): LibraryName | undefined {
  const like = parsed.text("like");
  const chosen = parsed.has("algorithm") || parsed.has("backend");
  const name = (["like", "topology"] as const).find((each) => parsed.has(each));
  if (chosen && name !== undefined) {
    throw new UsageError(`--${name} goes with neither --algorithm nor --backend`);
  }
  if (like !== undefined) return libraryNameOf("--like", like);
  const isKnown = !chosen && (size <= maxDefaultRanks || name !== undefined);
  return isKnown ? "nccl-2.28" : undefined;
}

/** The machine of `--topology`. */
function machineIn(parsed: ExplainOptions): TopologyOption {
  return machineNamed("--topology", parsed.text("topology") ?? "h200x8");
}

/** Largest world that follows NCCL by default. */
const maxDefaultRanks = 8;

function planPairOf(
  parsed: ExplainOptions,
  question: Question,
  size: number,
): PlanPair | undefined {
  const library = libraryFor(parsed, size);
  const { collective, dtype } = question;
  const isPlanned = isNcclCollective(collective) && dtype !== undefined;
  const setting = (["nccl", "against"] as const).find((name) => parsed.has(name));
  if (setting !== undefined && library === undefined) {
    throw new UsageError(
      `--${setting} needs NCCL's plan: up to 8 ranks or --topology, without --algorithm and --backend`,
    );
  }
  if (setting !== undefined && !isPlanned) {
    throw new UsageError(
      `--${setting}: NCCL's plan is known of ${ncclCollectives.join(", ")}, not of ${collective}`,
    );
  }
  const against = parsed.text("against");
  const needsPlan = against !== undefined || parsed.has("element");
  if (library === undefined || !isPlanned || !needsPlan) return undefined;
  const machine = { library, topology: machineOf(machineIn(parsed))(size) };
  const call = { ...question, collective, dtype };
  const own = planOf(call, machine, ncclChoice("--nccl", parsed.text("nccl")));
  const setup = ncclChoice("--against", against);
  const other = against === undefined ? undefined : planOf(call, machine, setup);
  return { own, other };
}

/** One element under NCCL's plan or both plans, or the difference of the two. */
function explainPlans(
  { own, other }: PlanPair,
  parsed: ExplainOptions,
  size: number,
  { out }: Context,
): void {
  const { plan } = own;
  const element = elementOf(parsed);
  if (parsed.has("json") && other !== undefined) {
    throw new UsageError("--json goes with one plan, not with --against");
  }
  if (element === undefined) {
    if (parsed.has("rank")) throw new UsageError("--rank goes with --element");
    if (other !== undefined) out(againstLines(own, other));
    return;
  }
  const rank = parsed.integer("rank", Math.max(0, plan.root), 0, size - 1);
  const target: Target = targetOf(plan, rank, element);
  if (parsed.has("json")) out(`${JSON.stringify(elementDocument(own, target, rank), null, 2)}\n`);
  else
    for (const each of other === undefined ? [own] : [own, other])
      out(elementLines(each, target, rank));
}

function plainText(explanation: Explanation, element: number | undefined): string {
  if (element === undefined) {
    const text = `${explanation}\n`.replace("chunkOf(element) tells", "--element I tells");
    const hasNoProtocol = explanation.protocol === undefined;
    return hasNoProtocol
      ? text
      : `${text}\n--element I shows where an element lies and what each hop rounds\n`;
  }
  const { chunk, offset, length, order, fold } = explanation.chunkOf(element);
  return [
    `element ${element} lies in chunk ${chunk}: elements ${offset}..${offset + length - 1}`,
    `value: ${fold}`,
    `order: ${order.join(", ")}`,
    "",
  ].join("\n");
}

function jsonText(
  { collective, dtype, op, count, root }: Question,
  explanation: Explanation,
  element: number | undefined,
): string {
  // JSON omits the two functions.
  const facts =
    element === undefined ? factsOf(explanation) : { element, ...explanation.chunkOf(element) };
  const document = { collective, dtype, op, count, root, ...facts };
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** The fields of an explanation, without those that need a program that is too large; `tooLarge` is the reason. */
function factsOf(explanation: Explanation): object {
  const facts: Record<string, unknown> = {};
  for (const name of Object.keys(explanation) as (keyof Explanation)[]) {
    try {
      facts[name] = explanation[name];
    } catch (error) {
      if (!isTooLarge(error)) throw error;
      facts["tooLarge"] = (error as Error).message.split("\n")[0];
    }
  }
  return facts;
}

/** A library, and the ranks' machine. */
interface Machine {
  readonly library: LibraryName;
  readonly topology: Topology;
}

/** A call whose plan by NCCL is known. */
interface PlannedCall extends Question {
  readonly collective: NcclCollective;
  readonly dtype: DType;
}

/** The plan that `sim({ like, topology, plan })` follows for a call. */
function planOf(
  { collective, dtype, op, count = 0, root }: PlannedCall,
  { library, topology }: Machine,
  { setup, symmetric }: NcclChoice,
): CallPlan {
  const { rings, variables = {}, ...settings } = resolvePin(setup);
  assertRingSize({ rings }, topology.ranks);
  const plan = ncclPlan({
    version: libraryOf(library)?.version ?? "",
    topology: rings === undefined || "xml" in rings ? topology : withRing(topology, rings),
    collective,
    dtype,
    op,
    count,
    root,
    settings,
    forced: ncclEnvironment(variables).forced(collective),
    symmetric: symmetric ? { send: 0, recv: 0 } : undefined,
  });
  return { plan, kernel: symmetric ? copiedGather(plan, settings)?.kernel : undefined };
}

/** An element of a rank's output: block and element of the plan. */
interface Target {
  readonly block: number;
  readonly element: number;
}

/** The block that holds element `element` of the output of `rank`. */
function targetOf(plan: NcclPlan, rank: number, element: number): Target {
  const { collective, count, ranks, root } = plan;
  if (collective === "reduce" && rank !== root) {
    throw new UsageError(`--rank: found ${rank}, but only the root, rank ${root}, has an output`);
  }
  const blocks = collective === "allGather" ? ranks : 1;
  if (element >= blocks * count) {
    const range = count === 0 ? "the output is empty" : `needs 0..${blocks * count - 1}`;
    throw new UsageError(`--element: found ${element}, ${range}`);
  }
  if (collective === "reduceScatter") return { block: rank, element };
  return { block: Math.floor(element / count), element: element % count };
}

/** One element: its position, its fold, and the rounding of every hop. */
function elementLines(call: CallPlan, target: Target, rank: number): string {
  const { plan } = call;
  const { piece } = elementPlan(plan, target.element, target.block);
  const { block, channel, loop, chunk, offset, length } = piece;
  const what = `${plan.collective} ${plan.dtype}[${plan.count}]`;
  const own = plan.collective === "allGather" ? ` of block ${block}` : "";
  const channels = `channel ${channel} of ${plan.channels}, loop ${loop}, chunk ${chunk}`;
  const where =
    plan.algorithm === "Copy"
      ? "one rank alone"
      : plan.algorithm === "Symmetric"
        ? `range ${chunk}`
        : channels;
  const [, ...defects] = elementText(plan, target.element, target.block).split("; NCCL ");
  return [
    `element ${target.element}${own} of ${what} on rank ${rank}: ${planName(call)}`,
    `  ${where}: elements ${offset}..${offset + length - 1}`,
    ...elementHops(plan, target.element, target.block).map((hop, i) => `  ${i + 1}  ${hop}`),
    ...defects.map((defect) => `  NCCL ${defect}`),
    "",
  ].join("\n");
}

/** The same as data. */
function elementDocument(
  { plan, kernel }: CallPlan,
  { block, element }: Target,
  rank: number,
): object {
  const { piece, rounding, defined } = elementPlan(plan, element, block);
  const { channels } = plan;
  const algorithm = kernel === undefined ? plan.algorithm : "Symmetric";
  const protocol = kernel ?? plan.protocol;
  const hops = elementHops(plan, element, block);
  return { element, rank, algorithm, protocol, channels, ...piece, rounding, hops, defined };
}

/** Number of elements that two plans of a call fold or round differently, and the first of them under both. */
function againstLines(own: CallPlan, other: CallPlan): string {
  const difference = differing(own.plan, other.plan);
  const { first } = difference;
  const lines = [
    `plan     ${planName(own)}`,
    `against  ${planName(other)}`,
    differenceText(difference),
  ];
  if (first !== undefined) {
    const described = ({ channels }: NcclPlan, text: string): string =>
      text.replace(/^element \d+: /, "").replace(/^(channel \d+),/, `$1 of ${channels},`);
    for (const [name, each] of [
      ["plan   ", own.plan],
      ["against", other.plan],
    ] as const) {
      lines.push(`  ${name}  ${described(each, elementText(each, first.element, first.block))}`);
    }
  }
  return `${lines.join("\n")}\n`;
}

function planName({ plan, kernel }: CallPlan): string {
  const { channels, version, topology } = plan;
  const unit = plan.algorithm === "Symmetric" ? "block" : "channel";
  const over =
    plan.algorithm === "Copy" ? "" : ` over ${channels} ${unit}${channels === 1 ? "" : "s"}`;
  const copied = kernel === undefined ? "" : `Symmetric ${kernel} with the blocks of `;
  return `${copied}${programName(plan)}${over}, as NCCL ${version} on ${topology}`;
}
