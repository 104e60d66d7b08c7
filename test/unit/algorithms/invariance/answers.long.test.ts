/** Answers for settings that are in use, with the facts that other tests of NCCL's plans state. */
import { InvalidArgumentError, UnsupportedError } from "twinccl";
import {
  type Answer,
  type Dependence,
  type Forced,
  h200x8,
  type InvarianceQuestion,
  invariance,
  type MachineProfile,
  machineProfiles,
  type PricedTimes,
  timeOf,
  topologies,
  withRing,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { isAll } from "../../../support/seed.ts";

const counts = { from: 5120, to: 10 * 2 ** 20 };
const usual: InvarianceQuestion = { collective: "allReduce", ranks: 8, dtype: "bfloat16", counts };
const tree = { NCCL_ALGO: "allreduce:tree" };

const verdicts = (more: Partial<InvarianceQuestion> = {}): Record<string, boolean> =>
  Object.fromEntries(
    invariance({ ...usual, ...more }).answers.map(({ question, isInvariant }) => [
      question,
      isInvariant,
    ]),
  );

const answer = (ask: Dependence, more: Partial<InvarianceQuestion> = {}): Answer =>
  invariance({ ...usual, ...more, ask: [ask] }).answers[0] as Answer;

const all = { size: true, position: true, channels: true, protocol: true };
const none = { size: false, position: false, channels: false, protocol: false };

describe("a sum over a Tree", () => {
  test.each(isAll ? [2, 4, 5, 6, 7, 8] : [2, 5, 8])("of %i ranks depends on nothing", (ranks) => {
    expect(verdicts({ ranks, variables: tree })).toEqual(all);
  });

  test("of 3 ranks depends on the channel, unless there is one", () => {
    expect(verdicts({ ranks: 3, variables: tree })).toEqual(none);
    const one = { ...tree, NCCL_MAX_NCHANNELS: "1" };
    const pinned = { ...all, channels: false, protocol: true };
    expect(verdicts({ ranks: 3, variables: one })).toEqual(pinned);
    // The first six channels have one chain.
    const six = { ...tree, NCCL_MAX_NCHANNELS: "6" };
    expect(verdicts({ ranks: 3, variables: six })).toEqual(pinned);
    const seven = { ...tree, NCCL_MAX_NCHANNELS: "7" };
    expect(verdicts({ ranks: 3, variables: seven })).toEqual({ ...none });
  });

  test("is the same in a padded group, but not of a ring", () => {
    expect(answer("ranks", { ranks: [4, 8], variables: tree }).isInvariant).toBe(true);
    const ring = answer("ranks", { ranks: [4, 8], variables: { NCCL_ALGO: "Ring" } });
    expect(ring.isInvariant).toBe(false);
    expect(ring.folds?.map(({ ranks }) => ranks)).toEqual([4, 8]);
  });
});

test("an average over a Tree depends on the protocol: LL128 rounds the product", () => {
  expect(verdicts({ op: "avg", variables: tree })).toEqual({
    ...all,
    size: false,
    protocol: false,
  });
  const simple = { ...tree, NCCL_PROTO: "Simple" };
  expect(verdicts({ op: "avg", variables: simple })).toEqual({ ...all, protocol: false });
  expect(answer("ranks", { ranks: [4, 8], op: "avg", variables: tree }).reason).toMatch(/divides/);
});

describe("a Ring", () => {
  test.each(isAll ? [3, 4, 8] : [3, 8])("of %i ranks depends on everything", (ranks) => {
    expect(verdicts({ ranks, variables: { NCCL_ALGO: "Ring" } })).toEqual(none);
  });

  test("of 2 ranks sums a + b, which has one order", () => {
    expect(verdicts({ ranks: 2 })).toEqual(all);
  });

  test("moves element 100,000 from r0 at 20 rows to r1 at 184", () => {
    const variables = { NCCL_ALGO: "Ring", NCCL_PROTO: "Simple", NCCL_MAX_NCHANNELS: "1" };
    const { folds, witness } = answer("size", { row: 5120, variables });
    expect(folds?.map(({ count, element, order }) => [count, element, order[0]])).toEqual([
      [5120, 640, 2],
      [10_240, 640, 1],
    ]);
    expect(witness).toEqual({
      contributions: [512, 1, -512, 0, 0, 0, 0, 0],
      results: ["0x3f80", "0x0000"],
    });
  });

  test("folds the blocks of a reduce-scatter differently, whatever is set", () => {
    const question = { ...usual, collective: "reduceScatter" } as const;
    expect(verdicts(question)).toEqual({ ...all, position: false });
    const { folds } = answer("position", question);
    expect(folds?.map(({ block, order }) => [block, order[0]])).toEqual([
      [0, 1],
      [1, 2],
    ]);
    expect(invariance({ ...question, ask: [] }).cheapest).toEqual([]);
    expect(verdicts({ ...question, ranks: 2 })).toEqual(all);
  });

  test("reduces to one rank in one order", () => {
    expect(verdicts({ collective: "reduce" })).toEqual(all);
  });
});

test.each([
  [{ dtype: "int32" } as const, "integers"],
  [{ op: "max" } as const, "minimum and maximum"],
  [{ collective: "broadcast" } as const, "copied"],
])("%o: bits of every order are equal", (more, reason) => {
  const { answers } = invariance({ ...usual, ...more });
  expect(answers.map(({ isInvariant }) => isInvariant)).toEqual([true, true, true, true]);
  expect(answers[0]?.reason).toContain(reason);
});

test("another machine is another order", () => {
  const permuted = (ranks: number) => withRing(h200x8(ranks), [0, 2, 1, 3].slice(0, ranks));
  const question = { ranks: 4, topology: [h200x8, permuted] };
  const ring = { NCCL_ALGO: "Ring" };
  const { isInvariant, folds } = answer("hosts", { ...question, variables: ring });
  expect(isInvariant).toBe(false);
  expect(folds?.map(({ order }) => order.join(""))).toEqual(["2301", "1302"]);
  expect(answer("hosts", { ...question, variables: tree }).isInvariant).toBe(true);
});

test("versions with one partition fold alike", () => {
  expect(answer("version", { version: ["2.28", "2.28.9"] }).isInvariant).toBe(true);
});

describe("the cheapest settings", () => {
  const settings = (more: Partial<InvarianceQuestion>): unknown =>
    invariance({ ...usual, ...more, ask: [] }).cheapest.map(({ variables }) => variables);

  test("are those with the fewest variables", () => {
    expect(settings({})).toEqual([tree]);
    expect(settings({ ranks: 2 })).toEqual([{}]);
    expect(settings({ ranks: 3 })).toEqual([{ ...tree, NCCL_MAX_NCHANNELS: "1" }]);
    expect(settings({ ranks: [4, 8] })).toEqual([tree]);
    // They begin with NCCL's defaults, whatever the question sets.
    const one = { NCCL_MAX_NCHANNELS: "1" };
    expect(settings({ ranks: 3, variables: one })).toEqual([{ ...tree, ...one }]);
    expect(settings({ op: "avg" })).toHaveLength(3);
  });

  test("have the times of the measured machine, with the reason where they are extrapolated", () => {
    const profile = machineProfiles["h200x8"] as MachineProfile;
    const question = { ...usual, dtype: "float32", ask: [] } as const;
    const [first] = invariance(question).cheapest;
    const [{ counts: sizes = [], times = [], freeTimes = [], predictedFor } = {}] = (first?.times ??
      []) as Partial<PricedTimes>[];
    const timed = (count: number, forced: Forced) =>
      timeOf(profile, { collective: "allReduce", ranks: 8, count, dtype: "float32", forced });
    expect(sizes).toEqual([5120, 231_705, 10 * 2 ** 20]);
    expect(times).toEqual(sizes.map((count) => timed(count, { algorithm: "Tree" })));
    expect(freeTimes).toEqual(sizes.map((count) => timed(count, {})));
    expect(predictedFor).toBe("8 x NVIDIA H200, NVSwitch, NCCL 2.28.9");
    expect(new Set(times.map(({ extrapolated }) => extrapolated))).toEqual(new Set([undefined]));
  });

  test("are extrapolated with other dtypes and under limits of channels, and not predicted elsewhere", () => {
    const timesOf = (more: Partial<InvarianceQuestion>): PricedTimes | undefined =>
      invariance({ ...usual, ...more, ask: [] }).cheapest[0]?.times[0];
    expect(timesOf({})?.times[0]?.extrapolated).toBe("measured with float32");
    const three = timesOf({ ranks: 3, dtype: "float32" });
    expect(three?.times[2]?.extrapolated).toContain("without settings of channels");
    expect(three?.freeTimes[2]?.extrapolated).toBeUndefined();
    // One channel carries all: it takes far longer than NCCL's 24.
    expect(three?.times[2]?.us).toBeGreaterThan(5 * (three?.freeTimes[2]?.us ?? 0));
    const asked = timesOf({ dtype: "float32", variables: { ...tree, NCCL_MAX_NCHANNELS: "1" } });
    expect(asked?.askedTimes[2]?.us).toBeGreaterThan(5 * (asked?.times[2]?.us ?? 0));
    for (const more of [{ topology: topologies["h200-hosts"] }, { version: "2.29" }]) {
      expect(timesOf(more)).toMatchObject({ predictedFor: undefined, times: [], freeTimes: [] });
    }
  });
});

test("conditions: in-switch reduction, padding, NaNs of float64", () => {
  const provided = (more: Partial<InvarianceQuestion>): string =>
    invariance({ ...usual, ask: [], ...more }).provided.join("\n");
  expect(provided({})).toContain("NCCL_NVLS_ENABLE=0");
  expect(provided({ op: "avg" })).not.toContain("NVLS");
  expect(provided({ variables: tree })).not.toContain("NVLS");
  expect(provided({ ranks: [1, 4], ask: ["ranks"], variables: tree })).toContain("-0");
  const padded: Partial<InvarianceQuestion> = { ranks: [4, 8], ask: ["ranks"], variables: tree };
  expect(provided({ ...padded, op: "max" })).toContain("contribute the least value");
  expect(provided({ ...padded, dtype: "int32" })).toContain("contribute 0");
  expect(provided({ ...padded, op: "avg" })).not.toContain("contribute");
  expect(provided({ dtype: "float64" })).toContain("float64 NaN");
});

describe("wrong questions", () => {
  test.each<[string, Partial<InvarianceQuestion>, string]>([
    ["ranks 0", { ranks: 0 }, "ranks"],
    ["no ranks", { ranks: [] }, "ranks"],
    ["reversed counts", { counts: { from: 2, to: 1 } }, "counts"],
    ["count 0", { counts: { from: 0, to: 1 } }, "counts.from"],
    ["a row beyond the counts", { counts: { from: 9, to: 15 }, row: 8 }, "row"],
    ["an unknown collective", { collective: "gather" as never }, "collective"],
    ["an unknown dtype", { dtype: "half" as never }, "dtype"],
    ["an unknown operator", { op: "mean" as never }, "op"],
    ["a root of an all-reduce", { root: 0 }, "root"],
    ["a root beyond the ranks", { collective: "reduce", root: 8 }, "root"],
    ["an unknown dependence", { ask: ["weather" as never] }, "ask"],
    ["ranks asked of one number", { ask: ["ranks"] }, "ask"],
    ["an unknown variable", { variables: { NCCL_FOO: "1" } }, "NCCL_FOO"],
    ["an unknown option", { rank: 8 } as never, "rank"],
  ])("%s", (_, more, field) => {
    const ask = (): unknown => invariance({ ...usual, ...more });
    expect(ask).toThrow(InvalidArgumentError);
    expect(ask).toThrow(expect.objectContaining({ field }));
  });

  test("ranks beyond the machine, unknown versions, Tree without a plan", () => {
    expect(() => invariance({ ...usual, ranks: 9 })).toThrow(UnsupportedError);
    expect(() => invariance({ ...usual, version: "2.31" })).toThrow(UnsupportedError);
    const question = { ...usual, collective: "reduce", variables: { NCCL_ALGO: "Tree" } } as const;
    expect(() => invariance(question)).toThrow("NCCL has no Tree algorithm for it");
  });
});

test("a whole range is answered within a second", () => {
  const start = performance.now();
  invariance(usual);
  // Three times the goal: other tests run beside it.
  expect(performance.now() - start).toBeLessThan(3000);
});
