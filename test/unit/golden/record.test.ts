/** Recording from the simulation gives what NCCL gave, and what was recorded is what a check wants. */
import { readFileSync } from "node:fs";
import type { Backend } from "twinccl";
import { failAt, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import type { NcclSetup } from "../../../src/golden/case.ts";
import { check } from "../../../src/golden/check.ts";
import { defaultHead, type GoldenRecord, headLine, lineOf } from "../../../src/golden/format.ts";
import { readRecords } from "../../../src/golden/read.ts";
import { record } from "../../../src/golden/record.ts";
import { corrupting } from "../bench/corrupting-backend.ts";

const simLikeNccl = (plan: NcclSetup): Backend => sim({ like: "nccl-2.28", plan });

/** Small calls of every kind out of the recorded files. */
const real = ["nccl-2.28.9-h200x8.jsonl", "nccl-2.28.9-h200x8-settings.jsonl"].flatMap((name) => {
  const text = readFileSync(new URL(`../../golden/${name}`, import.meta.url), "utf8");
  const small = readRecords(text, name).cases.filter((golden) => golden.count < 3000);
  return small.filter((_, at) => at % Math.ceil(small.length / 60) === 0);
});

test("a recording of the simulation holds NCCL's results", async () => {
  expect(real.length).toBeGreaterThan(100);
  const { records, failures } = await record(real, { backendFor: simLikeNccl });
  expect(failures).toEqual([]);
  expect(records.map(lineOf)).toEqual(real.map(lineOf));
});

test("a check of what was recorded finds it identical, bits and plans included", async () => {
  const { records } = await record(real, {
    backendFor: simLikeNccl,
    bitsUpTo: 64,
    planOf: (_, outcome) => outcome.plan(),
  });
  expect(records.some(({ bits }) => bits !== undefined)).toBe(true);
  const text = [headLine(defaultHead), ...records.map(lineOf)].join("\n");
  const { cases } = readRecords(text, "made here");
  expect(cases).toEqual(records.map((each) => ({ ...each, ...JSON.parse(JSON.stringify(each)) })));
  const report = await check(cases, simLikeNccl);
  expect(report).toMatchObject({ cases: real.length, identical: real.length, mismatches: [] });
  expect(report.plans).toBeGreaterThan(50);
  expect(report.planDifferences).toEqual([]);
});

/** A call of two ranks, with what the simulation gives for it. */
async function recorded(change: Partial<GoldenRecord>, bitsUpTo: number): Promise<GoldenRecord> {
  const line = `{"n":2,"ap":"Ring-LL","coll":"allReduce","dt":"i8","op":"sum","count":5,"cls":"norm","h":"0123456789abcdef"}`;
  const [golden] = readRecords(line, "f").cases;
  const { records } = await record([{ ...golden!, ...change }], {
    backendFor: simLikeNccl,
    bitsUpTo,
  });
  return records[0]!;
}

const broken = (rank: number) => (): Backend => corrupting(sim({ like: "nccl-2.28" }), rank);

test("a mismatch names rank, element and both bits from the file's bits", async () => {
  const golden = await recorded({ collective: "reduceScatter" }, 8);
  const { identical, mismatches } = await check([golden], broken(1));
  expect(identical).toBe(0);
  const [{ rank, element, wantHash, haveHash, plan } = {}] = mismatches;
  expect({ rank, plan }).toEqual({
    rank: 1,
    plan: { algorithm: "Ring", protocol: "LL", channels: 1 },
  });
  expect(wantHash).toBe(golden.hashes[1]);
  expect(haveHash).toMatch(/^[0-9a-f]{16}$/);
  expect(haveHash).not.toBe(wantHash);
  const last = golden.bits?.[1]?.slice(-2);
  expect(element).toMatchObject({ element: 4, length: 5, want: `0x${last}` });
  expect(element?.have).not.toBe(element?.want);
});

test("of an all-reduce another correct rank gives the bits", async () => {
  const golden = await recorded({ dtype: "float32" }, 0);
  expect(golden.bits).toBeUndefined();
  const { mismatches } = await check([golden], broken(1));
  expect(mismatches[0]).toMatchObject({ rank: 1, element: { element: 4, length: 5 } });
  expect(mismatches[0]?.element?.want).toMatch(/^0x[0-9a-f]{8}$/);
});

test("with hashes alone no element is named", async () => {
  const golden = { ...(await recorded({}, 0)), hashes: "0000000000000000" };
  const { mismatches } = await check([golden], simLikeNccl);
  expect(mismatches[0]).toMatchObject({ rank: 0, wantHash: golden.hashes, element: undefined });
});

test("another plan than the reported one is an error", async () => {
  const plan = { algorithm: "Ring", protocol: "LL", channels: 2 };
  const golden = { ...(await recorded({}, 0)), plan };
  const report = await check([golden], simLikeNccl);
  expect(report).toMatchObject({ identical: 1, plans: 1 });
  expect(report.planDifferences).toMatchObject([
    { plan: { ...plan, channels: 1 }, recordedPlan: plan },
  ]);
});

test("a refused case does not end the others", async () => {
  const good = await recorded({}, 0);
  const tooMany = { ...good, ranks: 9 };
  const report = await check([good, tooMany, good], simLikeNccl);
  expect(report).toMatchObject({ cases: 3, identical: 2, mismatches: [] });
  expect(report.refusals).toMatchObject([{ index: 1 }]);
  expect(report.refusals[0]?.reason).toContain("topology h200x8: found 9 ranks, has 8 GPUs");
  const { records, failures } = await record([tooMany, good], { backendFor: simLikeNccl });
  expect(records).toEqual([{ ...good, bits: undefined, plan: undefined }]);
  expect(failures[0]?.reason).toContain("found 9 ranks");
});

test("after a call that failed the next one has a world of its own", async () => {
  const good = await recorded({}, 0);
  const healthy = sim({ like: "nccl-2.28" });
  const faulty = sim({ like: "nccl-2.28", faults: [failAt(0, 0)] });
  let worlds = 0;
  const backend: Backend = {
    ...healthy,
    open: (request) => (worlds++ === 0 ? faulty : healthy).open(request),
  };
  const report = await check([good, good, good], () => backend);
  expect(report).toMatchObject({ identical: 2, refusals: [{ index: 0 }] });
  expect(report.refusals[0]?.reason).toMatch(/fault/);
  expect(worlds).toBe(2);
});

test("an all-reduce on which ranks disagree is not recorded", async () => {
  const good = await recorded({}, 0);
  const { records, failures } = await record([good], { backendFor: broken(1) });
  expect(records).toEqual([]);
  expect(failures[0]?.reason).toBe("ranks 0 and 1 hold different results");
});
