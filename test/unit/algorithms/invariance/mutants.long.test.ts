/** Every rule of the proof is exposed by calls of the simulation: broken on purpose, some answer contradicts them. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Answer } from "twinccl/algorithms";
import * as algorithms from "twinccl/algorithms";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { buildModules } from "../../../support/build-modules.ts";
import { type DrawnQuestion, judge, questionOf } from "./cases.ts";
import type { RunKind } from "./runs.ts";

type Build = Pick<typeof algorithms, "invariance" | "topologies">;

/** A rule, its file in `dist/algorithms/invariance`, the text in it, and the text in its place. */
const mutants: readonly (readonly [rule: string, file: string, from: string, to: string])[] = [
  ["the ends of stretches", "stretches.js", "  return low;\n", "  return high;\n"],
  [
    "the last part of a ring",
    "stretches.js",
    "cut.loop === undefined ? cut.to :",
    "true ? cut.to :",
  ],
  ["the choice of NCCL", "stretches.js", "if (wins || from === to)", "if (true)"],
  ["channels of several chains", "stretches.js", "fold !== undefined && fold !== own", "false"],
  [
    "the paths in a cut",
    "stretches.js",
    "[algorithm, protocol, parts, paths, buffers]",
    "[algorithm]",
  ],
  ["each stretch after the one before", "differences.js", "known = stretch;", "known ??= stretch;"],
  [
    "places a row apart",
    "differences.js",
    "const shift = counts.row;",
    "const shift = 2 * counts.row;",
  ],
  [
    "every rank's block",
    "differences.js",
    "let block = 1; block",
    "let block = calls.blocks; block",
  ],
  ["equal cuts alone as equal plans", "differences.js", "a.cut === b.cut && ", ""],
  ["absent ranks", "fold-class.js", "associationOf(among(order, present),", "associationOf(order,"],
  ["absent ranks in a known class", "fold-class.js", "{present} $", "{0} $"],
  [
    "sums and products of floats alone",
    "fold-class.js",
    'op !== "max" &&',
    'op !== "max" && op !== "prod" &&',
  ],
  [
    "rounding by position",
    "fold-class.js",
    "isFusedAt((element - origin) * bytes) ? fold : separate",
    "fold",
  ],
];

const built = mkdtempSync(join(tmpdir(), "twinccl-mutants-"));
beforeAll(() => buildModules(built));
afterAll(() => rmSync(built, { recursive: true }));

async function buildWith(file: string, from: string, to: string): Promise<Build> {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-mutant-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  cpSync(built, folder, { recursive: true, verbatimSymlinks: true });
  const path = join(folder, "dist/algorithms/invariance", file);
  const text = readFileSync(path, "utf8");
  expect(text.split(from), `${file} has the text once`).toHaveLength(2);
  writeFileSync(
    path,
    text.replace(from, () => to),
  );
  const index = pathToFileURL(join(folder, "dist/algorithms/index.js")).href;
  return (await import(/* @vite-ignore */ index)) as Build;
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
