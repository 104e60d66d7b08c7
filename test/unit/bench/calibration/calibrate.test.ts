/** Calibration: a planted machine is found in noisy results, and too little data is refused by name. */
import { CommError } from "twinccl";
import { describe, expect, test } from "vitest";
import {
  type MachineProfile,
  type MeasuredCollective,
  timeOf,
} from "../../../../src/algorithms/index.ts";
import {
  type Calibration,
  calibrate,
  nextText,
  startProfile,
} from "../../../../src/bench/calibration/calibrate.ts";
import { readResults } from "../../../../src/bench/calibration/results.ts";
import { calibrationCalls } from "../../../../src/bench/calibration/sweeps.ts";
import { calibrationDocument, plantedProfile } from "./synthetic.ts";

function calibrated(...documents: readonly object[]): Calibration {
  const files = documents.map((document, i) => ({
    name: `r${i}.json`,
    text: JSON.stringify(document),
  }));
  const times = readResults(files, startProfile);
  const { nccl, date, commit } = times;
  const sources = files.map(({ name }) => name);
  const origin = { name: "mine", machine: "mine", topology: "h200x8", nccl, date, commit, sources };
  return calibrate(times, { ...origin, topology: "h200x8" });
}

/** Relative errors of a profile on the calls of the set. */
function errorsOf(found: MachineProfile, planted: MachineProfile, ranks: number): number[] {
  return calibrationCalls(ranks, "each").map((call) =>
    Math.abs(timeOf(found, call).us / timeOf(planted, call).us - 1),
  );
}

const planted = plantedProfile();
const mean = (values: readonly number[]): number =>
  values.reduce((sum, each) => sum + each, 0) / values.length;

describe("a calibration", () => {
  const both = calibrated(calibrationDocument(planted, 2), calibrationDocument(planted, 8));

  test("finds the times of a planted machine in results with noise of 2 %", () => {
    for (const ranks of [2, 8]) {
      const errors = errorsOf(both.profile, planted, ranks);
      expect(mean(errors)).toBeLessThan(0.01);
      expect(Math.max(...errors)).toBeLessThan(0.05);
      expect(mean(errorsOf(startProfile, planted, ranks))).toBeGreaterThan(0.1);
    }
  });

  test("finds the time of a pass over LL, for which it has sizes of two passes", () => {
    const [found, { passUs }] = [both.profile.numbers.ring.LL.passUs, planted.numbers.ring.LL];
    expect(found / passUs).toBeGreaterThan(0.95);
    expect(found / passUs).toBeLessThan(1.05);
  });

  test("measures messages between misaligned addresses in worlds of 2, 4 and 8", () => {
    for (const ranks of [2, 4, 8]) {
      const blocks = calibrationCalls(ranks, "each")
        .filter(({ collective }) => collective === "allToAll")
        .map(({ count }) => count);
      for (const power of [8, 9, 10, 11, 12]) {
        const count = Math.floor((10 * 3 ** power) / ranks);
        expect(count % 4, `${count}`).not.toBe(0);
        expect(blocks).toContain(count);
      }
    }
  });

  test("predicts a world that was left out", () => {
    const errors = errorsOf(both.profile, planted, 4);
    expect(mean(errors)).toBeLessThan(0.02);
    expect(Math.max(...errors)).toBeLessThan(0.08);
  });

  test("of one world predicts that world, and names calls of others to measure next", () => {
    const one = calibrated(calibrationDocument(planted, 8));
    expect(mean(errorsOf(one.profile, planted, 8))).toBeLessThan(0.01);
    expect(one.next.map(nextText)[0]).toMatch(/, 2 ranks, .*% uncertain/);
    expect(both.next).toEqual([]);
  });

  test("states what was measured", () => {
    const { modes } = both.profile.measured["broadcast"] as MeasuredCollective;
    expect(modes).toEqual({
      "recorded, ordinary memory": { ranks: [2, 8], bytes: [128, 2 ** 29] },
    });
    expect(both.profile.mode).toMatchObject({ launch: "graph", memory: "ordinary" });
  });
});

/** The error of a calibration with few calls. */
function refusal(kept: (call: { collective: string }, bytes: number) => boolean): CommError {
  const isPlain: typeof kept = (call, bytes) => {
    const { mode } = call as unknown as {
      mode: { memory: string; launch: string; awaited: boolean };
    };
    return (
      mode.memory === "ordinary" && mode.launch === "graph" && !mode.awaited && kept(call, bytes)
    );
  };
  try {
    calibrated(calibrationDocument(planted, 8, { kept: isPlain }));
  } catch (error) {
    if (error instanceof CommError) return error;
    throw error;
  }
  throw new Error("accepted");
}

describe("too little data", () => {
  test("of nothing is refused", () => {
    expect(refusal(() => false)).toMatchObject({ code: "ERR_COMM_ARG", field: "results" });
  });

  test("of two sizes is refused with the collective", () => {
    const { message } = refusal(
      ({ collective }, bytes) => collective === "broadcast" && bytes < 512,
    );
    expect(message).toContain(
      "r0.json: broadcast, recorded, ordinary memory: found 2 sizes, needs 3 or more",
    );
    expect(message).toContain("bench --calibration");
  });

  test("between sizes far apart is refused with the choice, the size and the next calls", () => {
    const far = [128, 2 ** 20, 2 ** 29];
    const { message } = refusal(
      ({ collective }, bytes) => collective === "allReduce" && far.includes(bytes),
    );
    expect(message).toMatch(
      /r0.json: allReduce, recorded, ordinary memory of 8 ranks, .+ by Ring \w+: \d+ % uncertain/,
    );
    expect(message).toMatch(/next would be:\n {2}\w+, .*8 ranks/);
  });
});
