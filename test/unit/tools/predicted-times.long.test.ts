/** The committed profile and page are those that the tools make of bench/results. */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import {
  fitProfile,
  type MachineProfile,
  type Measurement,
  machineProfiles,
  type ProfileOrigin,
} from "../../../src/algorithms/index.ts";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const tool = (...args: readonly string[]) =>
  spawnSync(process.execPath, ["tools/predict-check.mjs", ...args], {
    cwd: root,
    encoding: "utf8",
  });

describe("predicted times", () => {
  test("another fit leaves every number within a fiftieth", async () => {
    const { fittedMeasurements, profileOrigin } = (await import(
      new URL("../../../tools/times/measurements.mjs", import.meta.url).href
    )) as {
      readonly fittedMeasurements: () => readonly Measurement[];
      readonly profileOrigin: () => ProfileOrigin;
    };
    const profile = machineProfiles["h200x8"] as MachineProfile;
    const again = fitProfile(profileOrigin(), fittedMeasurements(), profile).profile;
    const valuesOf = (value: object): number[] =>
      Object.values(value).flatMap((each) => (typeof each === "number" ? [each] : valuesOf(each)));
    const found = valuesOf(again.numbers);
    valuesOf(profile.numbers).forEach((number, i) => {
      expect((found[i] as number) / number).toBeGreaterThan(0.98);
      expect((found[i] as number) / number).toBeLessThan(1.02);
    });
    expect({ ...again, numbers: undefined }).toEqual({ ...profile, numbers: undefined });
  });

  test("the page holds the errors, and a wrong figure is found", () => {
    expect(tool("--check").stderr).toBe("");
    const page = join(tmpdir(), `predicted-${process.pid}.md`);
    const text = readFileSync(join(root, "docs/design/nccl-times.md"), "utf8");
    writeFileSync(page, text.replace(/\| recorded \| (\d)/, "| recorded | 9"));
    const { status, stderr } = tool("--check", "--page", page);
    expect(status).toBe(1);
    expect(stderr).toContain("its predicted times differ from bench/results");
  });
});
