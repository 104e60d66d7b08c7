/** An explanation as lines of text: tables where they are short, else a summary. */

import { reduceOpName } from "../../api/backend-entry.ts";
import { countText } from "../../api/error-text.ts";
import {
  type CommError,
  type Explanation,
  type Question,
  type SpecifiedCollective,
  specifications,
} from "../../api/index.ts";
import { largest } from "../../api/largest.ts";
import type { Layout } from "../layout.ts";
import { type Program, stepAt, stepText } from "../program.ts";
import type { Plan } from "./plan.ts";

/** The facts of an explanation. */
interface Explained {
  readonly plan: Plan;
  readonly layout: () => Layout;
  /** The reason why the program is too large to be built. */
  readonly refusal: CommError | undefined;
}

/** All facts about a call. */
export function explanationText(
  explanation: Explanation,
  question: Question,
  { plan, layout, refusal }: Explained,
): string {
  const { collective, algorithm, ranks, claim } = explanation;
  const what: string[] = [collective];
  if (question.dtype !== undefined) what.push(`${question.dtype}[${question.count ?? 0}]`);
  if (question.op !== undefined) what.push(reduceOpName(question.op));
  const { rooted } = specifications[collective as SpecifiedCollective];
  if (rooted) what.push(`root ${question.root ?? 0}`);
  const head = [
    `${what.join(" ")} on ${countText(ranks, "rank")}: ${algorithm}`,
    `  ${plan.summary}`,
  ];
  if (refusal !== undefined)
    return [...head, ...closedFormLines(explanation, claim, refusal)].join("\n");
  const { steps, sentBytes } = explanation;
  return [
    ...head,
    `  ${countText(steps, "step")}, at most ${countText(sentBytes, "byte")} sent per rank, ${predictionText(explanation)}`,
    `  ${claim}`,
    ...(explanation.fastest === undefined
      ? []
      : [`  fastest, as measured: ${explanation.fastest}`]),
    ...(plan.outline ?? [...chunkTable(explanation, layout()), ...stepTable(plan.program)]),
  ].join("\n");
}

/** The predicted time with its machine. */
export function predictionText({ predictedNs, predictedFor }: Explanation): string {
  const on = predictedFor === undefined ? "" : ` for ${predictedFor}`;
  return `${microseconds(predictedNs)} µs predicted${on}`;
}

/** Virtual time is counted in picoseconds, so there are six digits. */
function microseconds(ns: number): number {
  return Number((ns / 1000).toFixed(6));
}

/** The lines of a program that is too large to be built. */
function closedFormLines(
  { steps, sentBytes }: Explanation,
  claim: string,
  { message }: CommError,
): string[] {
  const bytes = Math.ceil(sentBytes);
  return [
    `  ${countText(steps, "step")}, about ${bytes} bytes sent per rank: the algorithm's closed form`,
    `  ${claim}`,
    "",
    "no predicted time, chunks or steps, which need the whole program",
    `  ${message.split("\n")[0]}`,
  ];
}

/** Contributions in the folds of a table of chunks, at most; a larger one would fill screens with folds. */
const maxContributions = 4096;

function chunkTable(explanation: Explanation, layout: Layout): string[] {
  const { rank } = explanation;
  const count = layout.out[rank]?.lengths.length ?? 0;
  if (count === 0) return [];
  if (count * explanation.ranks > maxContributions) {
    return [
      "",
      `${countText(count, "chunk")} of the output of rank ${rank}: chunkOf(element) tells how one is made`,
    ];
  }
  const rows = explanation.chunks.map(({ chunk, offset, length, fold }) => [
    `${chunk}`,
    length === 0 ? "empty" : `${offset}..${offset + length - 1}`,
    fold,
  ]);
  return [
    "",
    `chunks of the output of rank ${rank}`,
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
  const widths = [0, 1, 2].map((column) => largest(rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}`.trimEnd(),
  );
}
