/** The plan of a reduce-scatter of blocks of different lengths, for people: the reduces it consists of. */

import {
  bytesOf,
  type ChunkPlan,
  type Explanation,
  type Question,
  reduceOpName,
} from "../../api/index.ts";
import { largest } from "../../api/largest.ts";
import { evaluate } from "../timing.ts";
import { chunkHolding, explainPlan } from "./explain.ts";
import { microseconds } from "./explain-text.ts";
import { type Link, linkModel } from "./link.ts";
import type { Plan } from "./plan.ts";

/** The reduce to one root. */
interface Part {
  readonly root: number;
  readonly count: number;
  readonly plan: Plan;
}

/** Names of the plans of such a call. */
export function namesOf(plans: readonly Plan[]): string {
  return `${[...new Set(plans.map(({ name }) => name))].join(", ") || "nothing"} per root`;
}

/** Explains the reduces of all roots, `counts` elements each, done one after another; chunks are those of `rank`. */
export function explainReduces(
  question: Question,
  counts: readonly number[],
  planOf: (question: Question) => Plan,
  link: Link,
  rank: number,
): Explanation {
  const { dtype = "float32", op = "sum" } = question;
  const asked = (root: number): Question => {
    return { collective: "reduce", dtype, op, root, count: counts[root] ?? 0 };
  };
  const every = counts.map((count, root): Part => ({ root, count, plan: planOf(asked(root)) }));
  const parts = every.filter(({ count }) => count > 0);
  const plans = parts.map(({ plan }) => plan);
  const ranks = counts.length;
  const sums = sumsOf(parts, ranks, linkModel(link, bytesOf(dtype)));
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
    // A rank receives what is reduced to it.
    get chunks() {
      chunks ??= explainPlan((every[rank] as Part).plan, asked(rank), link, rank).chunks;
      return chunks;
    },
    steps: sums.steps,
    sentBytes: largest(sums.sent) * bytesOf(dtype),
    predictedNs: largest(sums.finished) / 1000,
    claim: (every[0] as Part).plan.claim,
    chunkOf: (element) => chunkHolding(explanation.chunks, element),
    toString: () =>
      textOf(explanation, parts, `${dtype}[${counts.join(", ")}] ${reduceOpName(op)}`),
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

function textOf(explanation: Explanation, parts: readonly Part[], what: string): string {
  const { algorithm, ranks, steps, sentBytes, predictedNs, claim } = explanation;
  return [
    `reduceScatterv ${what} on ${ranks} ranks: ${algorithm}`,
    "  one reduce for each root, one after another",
    `  ${steps} steps, at most ${sentBytes} bytes sent per rank, ${microseconds(predictedNs)} µs predicted`,
    `  ${claim}`,
    "",
    "reduces",
    ...parts.map(({ root, count, plan }) => `  root ${root}  ${count} elements  ${plan.name}`),
  ].join("\n");
}
