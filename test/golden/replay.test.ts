/**
 * Recorded results of real NCCL, replayed: a sample, or all of them with TWINCCL_GOLDEN=all. `npm run ok` has the command
 * `golden check` run all of them through `createWorld`.
 */

import { sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { isSymmetric, sentBlocks } from "../../src/golden/case.ts";
import { check } from "../../src/golden/check.ts";
import { type GoldenRecord, idOf } from "../../src/golden/format.ts";
import { Replay, recordsOf } from "./replay.ts";

const everything = process.env["TWINCCL_GOLDEN"] === "all";

/** Input elements that a sample may regenerate, for each file; large cases are left to the full run. */
const sampleElements = 2e6;

/** Small cases of a sample; every file but the longest is within it. */
const sampleCases = 100;

const files = [
  ["nccl-2.28.9-h200x8.jsonl", 1686],
  ["nccl-2.28.9-h200x8-settings.jsonl", 4080],
  ["nccl-2.28.9-h200x4.jsonl", 6000],
  ["nccl-2.28.9-h200-hosts.jsonl", 6658],
  ["nccl-2.28.3-hosts-16-channels.jsonl", 700],
  ["nccl-2.28.3-hosts-10-channels.jsonl", 700],
  ["nccl-2.28.3-hosts-of-2.jsonl", 1367],
  ["nccl-2.28.3-hosts-of-2-balanced.jsonl", 350],
  ["nccl-2.28.3-hosts-of-2-split.jsonl", 350],
  ["nccl-2.28.3-hosts-of-2-tree.jsonl", 350],
  ["nccl-2.28.9-hosts-of-2.jsonl", 878],
  ["nccl-2.28.9-hosts-of-4.jsonl", 676],
] as const;

test.each(files)(
  "%s",
  (name, total) => {
    const { cases, head } = recordsOf(name);
    expect(cases).toHaveLength(total);
    const chosen = everything ? cases : sample(cases);
    const replay = new Replay(head.topology);
    const wrong = chosen.filter((golden) => !replay.agrees(golden)).map(idOf);
    expect(wrong.slice(0, 10)).toEqual([]);
    expect(wrong).toHaveLength(0);
  },
  600_000,
);

test.each(files)(
  "%s through createWorld",
  async (name) => {
    const { cases, head } = recordsOf(name);
    const { topology } = head;
    const chosen = everything ? cases : sample(cases, 1e6);
    const found = await check(chosen, (plan) => sim({ like: "nccl-2.28", topology, plan }));
    if (everything) console.log(`${name}: ${found.identical} of ${found.cases} identical`);
    expect(found.mismatches.slice(0, 10)).toEqual([]);
    expect(found).toMatchObject({ cases: chosen.length, identical: chosen.length });
    expect(found.planDifferences).toEqual([]);
  },
  600_000,
);

/** Small or symmetric cases, and of the others those at even distances that the budget allows. */
function sample(cases: readonly GoldenRecord[], budget = sampleElements): GoldenRecord[] {
  const elements = (golden: GoldenRecord): number =>
    golden.ranks * golden.count * sentBlocks(golden);
  const always = (golden: GoldenRecord): boolean =>
    isSymmetric(golden) || elements(golden) < 40_000;
  const large = cases.filter((golden) => !always(golden));
  const work = large.reduce((sum, golden) => sum + elements(golden), 0);
  const stride = Math.ceil(work / budget);
  const small = cases.filter(always);
  const step = Math.ceil(small.length / sampleCases);
  return [...small.filter((_, i) => i % step === 0), ...large.filter((_, i) => i % stride === 0)];
}
