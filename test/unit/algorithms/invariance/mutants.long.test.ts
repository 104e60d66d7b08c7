/** Every rule of the proof is exposed by calls of the simulation: broken on purpose, some answer contradicts them. */
import { posix } from "node:path";
import type { Answer } from "twinccl/algorithms";
import * as algorithms from "twinccl/algorithms";
import { expect, test } from "vitest";
import { mutated } from "../../../support/mutated.ts";
import { type DrawnQuestion, judge, questionOf } from "./cases.ts";
import type { RunKind } from "./runs.ts";

type Build = Pick<typeof algorithms, "invariance" | "topologies">;

/** A rule, its file in `src/algorithms/invariance`, the text in it, and the text in its place. */
const mutants: readonly (readonly [rule: string, file: string, from: string, to: string])[] = [
  ["the ends of stretches", "stretches.ts", "  return low;\n", "  return high;\n"],
  [
    "the last part of a ring",
    "stretches.ts",
    "cut.loop === undefined ? cut.to :",
    "true ? cut.to :",
  ],
  ["the choice of NCCL", "stretches.ts", "if (wins || from === to)", "if (true)"],
  ["channels of several chains", "stretches.ts", "fold !== undefined && fold !== own", "false"],
  [
    "the paths in a cut",
    "stretches.ts",
    "[algorithm, protocol, topology.nodes, parts, paths, buffers]",
    "[algorithm]",
  ],
  ["each stretch after the one before", "differences.ts", "known = stretch;", "known ??= stretch;"],
  [
    "places a row apart",
    "differences.ts",
    "const shift = counts.row;",
    "const shift = 2 * counts.row;",
  ],
  [
    "every rank's block",
    "differences.ts",
    "let block = 1; block",
    "let block = calls.blocks; block",
  ],
  ["equal words alone as equal plans", "differences.ts", "word === b.words[i]?.word", "true"],
  [
    "the paths in a partition",
    "stretches.ts",
    "topology.nodes, this.#channels]",
    "topology.nodes]",
  ],
  [
    "the version in a partition",
    "stretches.ts",
    "minimumTraffic, trafficStep, buffSize",
    "buffSize",
  ],
  ["absent ranks", "fold-class.ts", "associationOf(among(order, present),", "associationOf(order,"],
  ["absent ranks in a known class", "fold-class.ts", "{present} $", "{0} $"],
  [
    "sums and products of floats alone",
    "../nccl/differing.ts",
    'op !== "max" &&',
    'op !== "max" && op !== "prod" &&',
  ],
  [
    "rounding by position",
    "fold-class.ts",
    "isFusedAt((element - origin) * bytes) ? fold : separate",
    "fold",
  ],
];

function buildWith(name: string, from: string, to: string): Promise<Build> {
  const file = posix.join("algorithms/invariance", name);
  return mutated({ file, from, to }, ["algorithms/index.ts"]);
}

const kind = { collective: "allReduce", dtype: "bfloat16", op: "sum", hosts: false } as const;
const ring = { NCCL_ALGO: "ring", NCCL_PROTO: "LL" };
const tree = { NCCL_ALGO: "allreduce:tree" };
const counts = (from: number, to: number, row = 1) => ({
  ...{ from, to, row },
  ...({ more: 8, library: "nccl-2.29", seed: 1 } as const),
});
const small: RunKind = {
  ...{ ...kind, ranks: 3, dtype: "float16" },
  variables: { ...ring, NCCL_MIN_CTAS: "1", NCCL_MAX_NCHANNELS: "1" },
};
const three: RunKind = { ...kind, ranks: 3, variables: tree };

/** Questions beside the breakpoints of every rule. */
const questions: readonly DrawnQuestion[] = [
  { ask: "size", kind: small, ...counts(2300, 2312) },
  { ask: "size", kind: { ...small, op: "prod" }, ...counts(2300, 2312) },
  { ask: "size", kind: three, ...counts(15_360, 20_480, 5120) },
  { ask: "size", kind: three, ...counts(5120, 20_480, 5120) },
  { ask: "position", kind: three, ...counts(20_480, 20_480) },
  { ask: "position", kind: { ...kind, ranks: 8, variables: ring }, ...counts(5120, 10_240, 5120) },
  {
    ask: "position",
    kind: { ...kind, collective: "reduceScatter", ranks: 4, variables: {} },
    ...counts(8, 8),
  },
  {
    ask: "position",
    kind: {
      ...{ ...kind, ranks: 5, dtype: "float32", op: "avg" },
      variables: { ...tree, NCCL_PROTO: "LL128" },
    },
    ...counts(240, 241),
  },
  {
    ask: "size",
    kind: { ...kind, ranks: 4, dtype: "float32", hosts: true, variables: {} },
    ...counts(370, 384),
  },
  { ask: "channels", kind: { ...kind, ranks: 8, variables: ring }, ...counts(35_840, 35_840) },
  { ask: "version", kind: { ...kind, ranks: 8, variables: ring }, ...counts(46_080, 46_080) },
  { ask: "ranks", kind: { ...kind, ranks: 4, variables: tree }, ...counts(100, 101) },
];

function answerOf(build: Build, question: DrawnQuestion): Answer {
  return build.invariance(questionOf(question, build)).answers[0] as Answer;
}

async function contradictions(build: Build): Promise<string[]> {
  const found: string[] = [];
  for (const question of questions) {
    const contradiction = await judge(question, answerOf(build, question), 12);
    if (contradiction !== undefined) found.push(`${question.ask}: ${contradiction}`);
  }
  return found;
}

test("the proof itself is not contradicted", async () => {
  expect(await contradictions(algorithms)).toEqual([]);
}, 120_000);

test.each(mutants)(
  "without %s",
  async (_, file, from, to) => {
    expect(await contradictions(await buildWith(file, from, to))).not.toEqual([]);
  },
  120_000,
);
