/** The plan of a call, described without running it: chunks and their folds, cost and predicted time. */

import type { CommInfo } from "../../api/backend-entry.ts";
import { reduceOpName } from "../../api/backend-entry.ts";
import { blockLengths } from "../../api/collectives/call-layout.ts";
import { countText } from "../../api/error-text.ts";
import {
  bytesOf,
  type ChunkPlan,
  CommError,
  type Explanation,
  InvalidArgumentError,
  type Question,
  type Specification,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "../../api/index.ts";
import { largest } from "../../api/largest.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import type { Cost } from "../algorithm.ts";
import { assertArgument, assertInteger, hasFields } from "../arguments.ts";
import type { FusedFold, Operand } from "../fuse.ts";
import { allToAllvBlocks, type CallShape, type Layout, rowBlocks } from "../layout.ts";
import { isTooLarge } from "../limits.ts";
import { operatorSign } from "../nccl/index.ts";
import type { Program } from "../program.ts";
import { evaluate, type Link, linkModel } from "../timing.ts";
import { explanationText, predictionText } from "./explain-text.ts";
import { isBuilt, type MachineTime, machineText, type Plan } from "./plan.ts";

/** The clock of an explanation. */
interface ExplainedClock {
  readonly link: Link;
  /** The time on a measured machine, which goes before that on the link. */
  readonly time: () => MachineTime | undefined;
}

/** The machine of a time in words, or a link. */
function clockText(time: MachineTime | undefined, link: Link): string {
  return time === undefined ? linkText(link) : machineText(time);
}

/** A link in words. */
export function linkText({ latencyPs, gigabytesPerSecond }: Link): string {
  return `links of ${latencyPs / 1000} ns and ${gigabytesPerSecond} GB/s`;
}

/**
 * Explains a call under a plan. Chunks are those of the output of `reader`. Where that rank has no output they are the root's,
 * and rank 0's where all outputs are equal.
 *
 * All parts are computed on demand: a program of many ranks takes long, its folds longer. For a program that is too large to be
 * built, steps and bytes are the closed form's; the other parts throw an UnsupportedError.
 */
export function explainPlan(
  plan: Plan,
  question: Question,
  { link, time }: ExplainedClock,
  reader: number,
): Explanation {
  const { collective } = question;
  const { ranks } = plan;
  const rank = rankWithOutput(question, ranks, reader);
  const bytes = question.dtype === undefined ? 1 : bytesOf(question.dtype);
  const layout = memoized(() => plan.layout(shapeOf(question, plan.program)));
  const start = new Float64Array(ranks);
  const timing = memoized(() => evaluate(plan.program, layout(), start, linkModel(link, bytes)));
  const rounds = memoized(() => {
    const { finished } = evaluate(plan.program, layout(), start, unitTimeModel);
    return largest(finished, 0);
  });
  const onMachine = memoized(time);
  const refusal = memoized(() => refusalOf(plan));
  const closed = (): Cost | undefined => refusal() && plan.cost?.(question.count ?? 0);
  const chunks = memoized(() => chunkPlans(plan, layout(), question, rank));
  const explanation: Explanation = {
    collective,
    algorithm: plan.name,
    protocol: plan.protocol,
    channels: plan.channels,
    ranks,
    rank,
    get chunks() {
      return chunks();
    },
    get steps() {
      return closed()?.steps ?? rounds();
    },
    get sentBytes() {
      const cost = closed();
      return bytes * (cost === undefined ? largest(timing().sentElements, 0) : cost.sentElements);
    },
    get predictedNs() {
      return onMachine()?.ns ?? largest(timing().finished, 0) / 1000;
    },
    get predictedFor() {
      return clockText(onMachine(), link);
    },
    claim: plan.claim,
    fastest: plan.fastest,
    chunkOf: (element) => chunkHolding(explanation.chunks, element),
    toString: () => explanationText(explanation, question, { plan, layout, refusal: refusal() }),
  };
  return explanation;
}

const unitTimeModel = { latency: 0, occupancy: () => 1 } as const;

/** The reason why the program of a plan is too large to be built; `undefined` where it is not. */
function refusalOf(plan: Plan): CommError | undefined {
  try {
    return plan.program && undefined;
  } catch (error) {
    if (isTooLarge(error) && plan.cost !== undefined && error instanceof CommError) return error;
    throw error;
  }
}

function memoized<T>(make: () => T): () => T {
  let cached: { readonly value: T } | undefined;
  return () => {
    cached ??= { value: make() };
    return cached.value;
  };
}

function shapeOf(question: Question, program: Program): CallShape {
  const count = question.count ?? 0;
  if (!Number.isSafeInteger(count) || count < 0) {
    throw invalid("explain", "count", textOf(count), "an integer of at least 0");
  }
  if (question.counts === undefined) return { count };
  const blocks =
    program.collective === "allToAllv"
      ? allToAllvBlocks(question.counts)
      : rowBlocks(program, question.counts[0] ?? []);
  return { count, blocks };
}

/** True when every rank has the same output, which is described once, for rank 0. */
function isSameOnAll({ outBlocks, expected }: Specification): boolean {
  const blocks = outBlocks(2, 0, 0);
  if (blocks === 0 || blocks !== outBlocks(2, 1, 0)) return false;
  const outputOf = (rank: number): string =>
    JSON.stringify(Array.from({ length: blocks }, (_, block) => expected(2, rank, block, 0)));
  return outputOf(0) === outputOf(1);
}

/** The rank itself, or the root of a call in which it has no output. */
function rankWithOutput({ collective, root = 0 }: Question, ranks: number, rank: number): number {
  const specification = specifications[collective as SpecifiedCollective];
  if (isSameOnAll(specification)) return 0;
  const { rooted, outBlocks } = specification;
  return rooted && outBlocks(ranks, rank, root) === 0 ? root : rank;
}

/** Output chunks of a rank with their folds. */
function chunkPlans(plan: Plan, layout: Layout, question: Question, rank: number): ChunkPlan[] {
  const { program, fused } = plan;
  const symbol = operatorSign(question.op);
  const found: ChunkPlan[] = [];
  for (const group of fused.groups) {
    for (const fold of group) {
      const target = fold.targets.find((place) => place.rank === rank);
      if (target === undefined) continue;
      found.push({
        chunk: target.chunk,
        offset: layout.out[rank]?.offsets[target.chunk] ?? 0,
        length: layout.out[rank]?.lengths[target.chunk] ?? 0,
        order: orderOf(fold, group),
        fold: specifications[program.collective].reduces
          ? foldText(fold, group, symbol)
          : copyText(fold),
      });
    }
  }
  return found.sort((a, b) => a.chunk - b.chunk);
}

function orderOf(fold: FusedFold, group: readonly FusedFold[]): number[] {
  return fold.operands.flatMap((operand) =>
    operand.kind === "fold"
      ? orderOf(group[operand.fold] as FusedFold, group)
      : [operand.place.rank],
  );
}

function foldText(fold: FusedFold, group: readonly FusedFold[], symbol: string): string {
  const texts = fold.operands.map((operand) => operandText(operand, group, symbol));
  const [first = "", ...rest] = texts;
  return rest.reduce(
    (text, next, index) =>
      index === 0 ? `${text} ${symbol} ${next}` : `(${text}) ${symbol} ${next}`,
    first,
  );
}

function operandText(operand: Operand, group: readonly FusedFold[], symbol: string): string {
  if (operand.kind === "fold")
    return `(${foldText(group[operand.fold] as FusedFold, group, symbol)})`;
  return `r${operand.place.rank}`;
}

function copyText({ operands }: FusedFold): string {
  const [operand] = operands;
  if (operand === undefined || operand.kind === "fold") return "";
  return `copy of r${operand.place.rank} in[${operand.place.chunk}]`;
}

/** The chunk that holds an element. */
function chunkHolding(chunks: readonly ChunkPlan[], element: number): ChunkPlan {
  if (!Number.isSafeInteger(element) || element < 0) {
    throw invalid("explain", "element", textOf(element), "an integer of at least 0");
  }
  const chunk = chunks.find(({ offset, length }) => element >= offset && element < offset + length);
  if (chunk !== undefined) return chunk;
  throw new InvalidArgumentError(
    { headline: `explain: element ${element} lies in no chunk of the output` },
    { field: "element" },
  );
}

/**
 * Explains a call of a backend that has no messages and folds in the order of ranks, such as one on host memory. Every output
 * block is a chunk; time and bytes are 0.
 *
 * @throws UnsupportedError for a call without a specification, such as `send`.
 * @example
 * explain: (question, comm, rank) => explainInRankOrder(question, comm, rank),
 */
export function explainInRankOrder(
  question: Question,
  comm: CommInfo,
  caller: number,
): Explanation {
  const subject = "explainInRankOrder";
  const isQuestion = hasFields(question, { collective: "string" });
  assertArgument(
    isQuestion,
    subject,
    "question",
    question,
    "an object with the collective of a call",
  );
  assertArgument(Array.isArray(comm?.ranks), subject, "comm", comm, "the facts of a communicator");
  assertInteger(subject, "caller", caller, 0, comm.ranks.length - 1);
  const { collective, dtype, op, count = 0, root = 0, counts } = question;
  if (!isBuilt(collective)) throw unexplained(collective);
  const { expected, reduces } = specifications[collective];
  const ranks = comm.ranks.length;
  const rank = rankWithOutput(question, ranks, caller);
  const rows = collective === "allToAllv" ? { traffic: counts } : { counts: counts?.[0] };
  const lengths = blockLengths(collective, { ranks, root, count, ...rows }, rank).recv;
  let offset = 0;
  const chunks = lengths.map((length, chunk): ChunkPlan => {
    const blocks = expected(ranks, rank, chunk, root);
    const operands = blocks.map((from): Operand => {
      return { kind: "contribution", place: { rank: from.rank, chunk: from.block } };
    });
    const fold = { operands, final: true, reduces, targets: [] };
    const text = reduces ? foldText(fold, [], operatorSign(op)) : copyText(fold);
    const order = blocks.map((from) => from.rank);
    offset += length;
    return { chunk, offset: offset - length, length, order, fold: text };
  });
  const claim = reduces
    ? "folds in the order of ranks, no claim is made about NCCL's bits"
    : "copies bytes, as every plan does: the same result as NCCL's";
  const heading = [collective, dtype, op && reduceOpName(op)].filter(Boolean).join(" ");
  return {
    ...{ collective, algorithm: "rank-order", protocol: undefined, channels: 1, ranks, rank },
    ...{ chunks, steps: 0, sentBytes: 0, predictedNs: 0, claim },
    chunkOf: (element) => chunkHolding(chunks, element),
    toString: () =>
      [
        `${heading} on ${countText(ranks, "rank")}: in the order of ranks`,
        `  ${claim}`,
        ...chunks.map(
          ({ chunk, length, fold }) => `  chunk ${chunk}  ${countText(length, "element")}  ${fold}`,
        ),
      ].join("\n"),
  };
}

/** The refusal to explain, or to estimate, a call without a plan of its own. */
export function unexplained(collective: string): UnsupportedError {
  return new UnsupportedError({
    headline: `${collective}: it has no plan of its own`,
    hint: "messages go to their peers unchanged; ask about each collective call of a group or recording",
  });
}

// The plan of a reduce-scatter of blocks of different lengths: the reduces it consists of.

/** The reduce to one root. */
interface Part {
  readonly root: number;
  readonly count: number;
  readonly plan: Plan;
  readonly time: () => MachineTime | undefined;
}

/** Names of the plans of such a call. */
export function namesOf(plans: readonly Plan[]): string {
  return `${[...new Set(plans.map(({ name }) => name))].join(", ") || "nothing"} per root`;
}

/** Explains the successive reduces of all roots, `counts` elements each; chunks are those of `rank`. */
export function explainReduces(
  question: Question,
  counts: readonly number[],
  partOf: (question: Question) => Pick<Part, "plan" | "time">,
  link: Link,
  rank: number,
): Explanation {
  const { dtype = "float32", op = "sum" } = question;
  const questionFor = (root: number): Question => {
    return { collective: "reduce", dtype, op, root, count: counts[root] ?? 0 };
  };
  const every = counts.map((count, root): Part => ({ root, count, ...partOf(questionFor(root)) }));
  const parts = every.filter(({ count }) => count > 0);
  const plans = parts.map(({ plan }) => plan);
  const ranks = counts.length;
  const sums = sumsOf(parts, ranks, linkModel(link, bytesOf(dtype)));
  const times = parts.map(({ time }) => time());
  const [first] = times;
  let chunks: readonly ChunkPlan[] | undefined;
  const explanation: Explanation = {
    collective: "reduceScatterv",
    algorithm: namesOf(plans),
    protocol: plans.every(({ protocol }) => protocol === plans[0]?.protocol)
      ? plans[0]?.protocol
      : undefined,
    channels: largest(
      plans.map(({ channels }) => channels),
      1,
    ),
    ranks,
    rank,
    // A rank receives the reduce of which it is the root.
    get chunks() {
      const { plan, time } = every[rank] as Part;
      chunks ??= explainPlan(plan, questionFor(rank), { link, time }, rank).chunks;
      return chunks;
    },
    steps: sums.steps,
    sentBytes: largest(sums.sent) * bytesOf(dtype),
    predictedNs:
      first === undefined
        ? largest(sums.finished) / 1000
        : times.reduce((sum, each) => sum + (each?.ns ?? 0), 0),
    predictedFor: clockText(first, link),
    claim: (every[0] as Part).plan.claim,
    chunkOf: (element) => chunkHolding(explanation.chunks, element),
    toString: () =>
      reducesText(explanation, parts, `${dtype}[${counts.join(", ")}] ${reduceOpName(op)}`),
  };
  return explanation;
}

function sumsOf(
  parts: readonly Part[],
  ranks: number,
  model: ReturnType<typeof linkModel>,
): { steps: number; sent: number[]; finished: Float64Array } {
  let steps = 0;
  let finished: Float64Array = new Float64Array(ranks);
  const sent = new Array<number>(ranks).fill(0);
  for (const { plan, count } of parts) {
    const layout = plan.layout({ count });
    const timing = evaluate(plan.program, layout, finished, model);
    const unit = { latency: 0, occupancy: () => 1 };
    steps += largest(evaluate(plan.program, layout, new Float64Array(ranks), unit).finished);
    finished = timing.finished;
    for (let rank = 0; rank < ranks; rank++) {
      sent[rank] = (sent[rank] as number) + (timing.sentElements[rank] as number);
    }
  }
  return { steps, sent, finished };
}

function reducesText(explanation: Explanation, parts: readonly Part[], what: string): string {
  const { algorithm, ranks, steps, sentBytes, claim } = explanation;
  return [
    `reduceScatterv ${what} on ${countText(ranks, "rank")}: ${algorithm}`,
    "  one reduce for each root, one after another",
    `  ${countText(steps, "step")}, at most ${countText(sentBytes, "byte")} sent per rank, ${predictionText(explanation)}`,
    `  ${claim}`,
    "",
    "reduces",
    ...parts.map(
      ({ root, count, plan }) => `  root ${root}  ${countText(count, "element")}  ${plan.name}`,
    ),
  ].join("\n");
}
