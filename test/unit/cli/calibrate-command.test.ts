import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { parseProfile } from "../../../src/algorithms/index.ts";
import { calibrationDocument, plantedProfile } from "../bench/calibration/synthetic.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-calibrate-"));
afterAll(() => rmSync(folder, { recursive: true }));

const results = join(folder, "eight.json");
const out = join(folder, "mine.json");
const document = calibrationDocument(plantedProfile(), 8, {
  kept: ({ collective, mode }) =>
    ["allReduce", "allGather"].includes(collective) && mode.memory === "ordinary",
});
writeFileSync(results, JSON.stringify(document));

describe("calibrate", () => {
  test("writes a profile, and prints errors by collective, choice and size, and the next calls", async () => {
    const { status, out: text, err } = await cli(`calibrate ${results} --out ${out}`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(text).toMatch(/^# mine: 8 x NVIDIA H200, NCCL 2\.28\.9; \d+ measured calls\n/);
    expect(text).toMatch(
      / {2}allReduce, recorded, ordinary memory +Ring LL +1 KiB +1 +\d+\.\d +\d+\.\d\n/,
    );
    expect(text).toMatch(/\n# all: \d\.\d % off \(mean\), \d+\.\d % \(worst\)\n/);
    expect(text).toContain(
      "\n#   allGather, recorded, ordinary memory: 8 ranks, 128 B to 512 MiB\n",
    );
    expect(text).toMatch(/# worth measuring next:\n# {3}\w+, recorded.* ranks, /);
    const profile = parseProfile(readFileSync(out, "utf8"), out);
    expect(profile).toMatchObject({ name: "mine", topology: "h200x8", sources: ["eight.json"] });
  });

  test("--json prints the profile, residuals and next calls", async () => {
    const { out: text } = await cli(`calibrate ${results} --out ${out} --name us --json`);
    const { profile, residuals, next } = JSON.parse(text);
    expect(profile).toEqual(parseProfile(readFileSync(out, "utf8"), out));
    expect(residuals[0]).toMatchObject({ collective: "allReduce", ranks: 8, choice: "Ring LL" });
    expect(next.length).toBeGreaterThan(0);
  });

  test.each([
    ["", "name the files of the results"],
    [results, "--out: name the file of the profile"],
    [`missing.json --out ${out}`, "there is no file missing.json"],
  ])("refuses %s", async (line, why) => {
    const { status, err } = await cli(`calibrate ${line}`);
    expect(status).toBe(2);
    expect(err).toContain(why);
  });
});

describe("bench --calibration", () => {
  test("measures every sweep, and calibrate refuses simulated times", async () => {
    const path = join(folder, "sim.json");
    const line = `bench --calibration -g 2 -e 1K -n 1 -w 0`;
    const { status, out: text, err } = await cli(`${line} --out ${path}`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(text).toContain("# allGather on backend sim, 2 ranks: graph, symmetric memory\n");
    const { runs } = JSON.parse(readFileSync(path, "utf8"));
    expect(runs).toHaveLength(12);
    expect(runs.at(-1)).toMatchObject({ mode: "graph", latency: true, results: [{ size: 1024 }] });
    const refused = await cli(`calibrate ${path} --out ${out}`);
    expect(refused.status).toBe(2);
    expect(refused.err).toContain(`${path}: nccl: found nothing, needs a text`);
  });

  test.each([
    ["all-reduce", "--calibration has its own collectives, not all-reduce"],
    ["--mode graph", "--mode does not go with --calibration"],
    ["-b 8", "--minbytes does not go with --calibration"],
  ])("refuses %s", async (line, why) => {
    const { status, err } = await cli(`bench --calibration ${line}`);
    expect(status).toBe(2);
    expect(err).toContain(why);
  });
});
