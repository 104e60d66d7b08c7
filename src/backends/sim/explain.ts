/** The plan of a call for people: chunks and their fold orders, every rank's steps, cost and predicted time. */
import {
  allToAllvBlocks,
  type CallShape,
  evaluate,
  type FusedFold,
  type Layout,
  type Operand,
  type Program,
  rowBlocks,
  stepAt,
  stepText,
} from "../../algorithms/index.ts";
import {
  bytesOf,
  type ChunkPlan,
  type Explanation,
  InvalidArgumentError,
  type Question,
  reduceOpName,
  specifications,
} from "../../api/index.ts";
import { type Link, linkModel } from "./link.ts";
import type { Plan } from "./plan.ts";

/** Explains a call under a plan. */
export function explainPlan(plan: Plan, question: Question, link: Link): Explanation {
  const { program } = plan;
  const { ranks, collective, channels } = program;
  const bytes = question.dtype === undefined ? 1 : bytesOf(question.dtype);
  const layout = plan.layout(shapeOf(question, program));
  const start = new Float64Array(ranks);
  const timing = evaluate(program, layout, start, linkModel(link, bytes));
  const rounds = evaluate(program, layout, start, { latency: 0, occupancy: () => 1 });
  let chunks: readonly ChunkPlan[] | undefined;
  const explanation: Explanation = {
    collective,
    algorithm: plan.name,
    protocol: plan.protocol,
    channels,
    ranks,
    // Folds are read off the program only when somebody looks: of a large one that takes longer than all the rest.
    get chunks() {
      chunks ??= chunkPlans(plan, layout, question);
      return chunks;
    },
    steps: Math.max(...rounds.finished),
    sentBytes: Math.max(...timing.sentElements) * bytes,
    predictedNs: Math.max(...timing.finished) / 1000,
    claim: plan.claim,
    chunkOf: (element) => chunkHolding(explanation.chunks, element),
    toString: () => explanationText(explanation, question, plan, layout),
  };
  return explanation;
}

function shapeOf(question: Question, program: Program): CallShape {
  const count = question.count ?? 0;
  if (!Number.isSafeInteger(count) || count < 0) {
    throw new InvalidArgumentError(
      { headline: `explain: count: found ${String(count)}, needs an integer of at least 0` },
      { field: "count" },
    );
  }
  if (question.counts === undefined) return { count };
  const blocks =
    program.collective === "allToAllv"
      ? allToAllvBlocks(question.counts)
      : rowBlocks(program, question.counts[0] ?? []);
  return { count, blocks };
}

/** Output chunks of rank 0 with their folds (of the root's, where it has more to tell). */
function chunkPlans(plan: Plan, layout: Layout, question: Question): ChunkPlan[] {
  const { program, fused } = plan;
  const rank = 0;
  const symbol = operatorSymbol(question);
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

function operatorSymbol({ op }: Question): string {
  if (op === "prod") return "×";
  return op === "min" || op === "max" ? op : "+";
}

/** The chunk that holds an element. */
export function chunkHolding(chunks: readonly ChunkPlan[], element: number): ChunkPlan {
  if (!Number.isSafeInteger(element) || element < 0) {
    throw new InvalidArgumentError(
      {
        headline: `explain: element: found ${String(element)}, needs an integer of at least 0`,
      },
      { field: "element" },
    );
  }
  const chunk = chunks.find(({ offset, length }) => element >= offset && element < offset + length);
  if (chunk !== undefined) return chunk;
  throw new InvalidArgumentError(
    { headline: `explain: element ${element} lies in no chunk of the output` },
    { field: "element" },
  );
}

function explanationText(
  explanation: Explanation,
  question: Question,
  { program, summary }: Plan,
  layout: Layout,
): string {
  const { collective, algorithm, ranks, steps, sentBytes, predictedNs, claim } = explanation;
  const what: string[] = [collective];
  if (question.dtype !== undefined) what.push(`${question.dtype}[${question.count ?? 0}]`);
  if (question.op !== undefined) what.push(reduceOpName(question.op));
  if (program.root >= 0) what.push(`root ${program.root}`);
  return [
    `${what.join(" ")} on ${ranks} ranks: ${algorithm}`,
    `  ${summary}`,
    `  ${steps} steps, at most ${sentBytes} bytes sent per rank, ${predictedNs / 1000} µs predicted`,
    `  ${claim}`,
    ...chunkTable(explanation, layout),
    ...stepTable(program),
  ].join("\n");
}

/** Contributions in the folds of a table of chunks, at most; a larger one would fill screens with folds. */
const mostContributions = 4096;

function chunkTable(explanation: Explanation, layout: Layout): string[] {
  const count = layout.out[0]?.lengths.length ?? 0;
  if (count === 0) return [];
  if (count * explanation.ranks > mostContributions) {
    return ["", `${count} chunks of the output of rank 0: chunkOf(element) tells how one is made`];
  }
  const rows = explanation.chunks.map(({ chunk, offset, length, fold }) => [
    `${chunk}`,
    length === 0 ? "empty" : `${offset}..${offset + length - 1}`,
    fold,
  ]);
  return [
    "",
    "chunks of the output of rank 0",
    ...table([["chunk", "elements", "value"], ...rows]),
  ];
}

/** Steps of a lane that are shown from its beginning and from its end, when it has many. */
const shownSteps = 32;

/** All steps of a small program; the first and last rank's of a large one. */
function stepTable(program: Program): string[] {
  const { ranks, channels, starts } = program;
  const shown = ranks <= 8 ? Array.from({ length: ranks }, (_, rank) => rank) : [0, ranks - 1];
  const lines: string[] = ["", ranks <= 8 ? "steps" : `steps of ranks 0 and ${ranks - 1}`];
  for (const rank of shown) {
    for (let channel = 0; channel < channels; channel++) {
      const lane = rank * channels + channel;
      const first = starts[lane] as number;
      lines.push(channels === 1 ? `  rank ${rank}` : `  rank ${rank} channel ${channel}`);
      lines.push(...laneLines(program, first, starts[lane + 1] as number));
    }
  }
  return lines;
}

function laneLines(program: Program, first: number, end: number): string[] {
  const lines: string[] = [];
  const hidden = end - first - 2 * shownSteps;
  for (let step = first; step < end; step++) {
    if (hidden > 0 && step === first + shownSteps) {
      lines.push(`        ${hidden} more steps`);
      step += hidden;
    }
    lines.push(`    ${String(step - first + 1).padStart(2)}  ${stepText(stepAt(program, step))}`);
  }
  return lines;
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = [0, 1, 2].map((column) =>
    Math.max(...rows.map((row) => row[column]?.length ?? 0)),
  );
  return rows.map((row) =>
    `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd(),
  );
}
