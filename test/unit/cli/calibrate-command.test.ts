import { linkSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
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
    [`${results} --out ${out} --name=`, '--name: found "", needs a text'],
    [`${results} --out ${out} --machine=`, '--machine: found "", needs a text'],
    [`missing.json --out ${out}`, "there is no file missing.json"],
  ])("refuses %s", async (line, why) => {
    const { status, err } = await cli(`calibrate ${line}`);
    expect(status).toBe(2);
    expect(err).toContain(why);
  });
});

describe("results that are the file of the profile", () => {
  const linked = join(folder, "linked.json");
  const hard = join(folder, "hard.json");
  symlinkSync(results, linked);
  linkSync(results, hard);

  test.each([
    results,
    join(folder, "../", folder.split("/").at(-1) as string, "eight.json"),
    linked,
    hard,
  ])("%s are refused and stay", async (path) => {
    const before = readFileSync(results, "utf8");
    const { status, err } = await cli(`calibrate ${results} --out ${path}`);
    expect(status).toBe(2);
    expect(err).toContain(`--out ${path}: is the same file as ${results}`);
    expect(readFileSync(results, "utf8")).toBe(before);
  });
});

test("results that are named twice, also by a link, are refused by name", async () => {
  const linked = join(folder, "again.json");
  symlinkSync(results, linked);
  for (const path of [results, linked]) {
    const { status, out: text, err } = await cli(`calibrate ${results} ${path} --out ${out}`);
    expect({ status, text }).toEqual({ status: 2, text: "" });
    expect(err).toContain(`RESULTS ${path}: is the same file as ${results}`);
  }
});

describe("results of awaited calls in C++ for the most part", () => {
  test("give a profile that can be read", async () => {
    const path = join(folder, "awaited.json");
    const file = new URL("../../../bench/results/gpu-h200x2.json", import.meta.url);
    const compared = JSON.parse(readFileSync(file, "utf8"));
    const isPlain = (row: { collective?: string; mode: string }): boolean =>
      (row.collective ?? "allReduce") === "allReduce" && /^(eager|graph)$/.test(row.mode);
    compared.results = compared.results.filter(isPlain);
    const latency = compared.latency.filter(isPlain);
    compared.latency = Array.from({ length: 40 }, () => latency).flat();
    writeFileSync(path, JSON.stringify(compared));
    const { status, err } = await cli(`calibrate ${path} --out ${out}`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(parseProfile(readFileSync(out, "utf8"), out).mode.awaited).toBe(true);
  });
});

test("an error begins on a line of its own, where the line of progress was", async () => {
  const path = join(folder, "few.json");
  const kept = ({ collective, count }: { collective: string; count: number }): boolean =>
    collective === "allReduce" && count === 256;
  writeFileSync(path, JSON.stringify(calibrationDocument(plantedProfile(), 8, { kept })));
  const { status, err } = await cli(`calibrate ${path} --out ${out}`, { terminal: true });
  expect(status).toBe(2);
  expect(err).toContain("found 1 size, needs 3 or more");
  expect(err).toContain("\r\x1b[Ktwinccl calibrate: ");
});

describe("times that no machine has", () => {
  test("make no profile", async () => {
    const path = join(folder, "fast.json");
    const fast = structuredClone(document) as {
      runs: { results: { out_of_place: { time: number; alg_bw: number } }[] }[];
    };
    for (const { results: rows } of fast.runs) {
      for (const { out_of_place: found } of rows) {
        found.time *= 1e-60;
        found.alg_bw *= 1e60;
      }
    }
    writeFileSync(path, JSON.stringify(fast));
    const none = join(folder, "none.json");
    const { status, err } = await cli(`calibrate ${path} --out ${none}`);
    expect(status).toBe(2);
    expect(err).toMatch(/numbers\.\S+: found \S+, needs a number of 1e-9 to 1e\+?9/);
    expect(() => readFileSync(none)).toThrow();
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
    expect(refused.err).toContain(`${path}: runs[0].timing: found "simulated`);
    expect(refused.err).toContain("--backend nccl");
  });

  test.each([
    ["all-reduce", "--calibration has its own collectives, not all-reduce"],
    ["--mode graph", "--mode does not go with --calibration"],
    ["-b 8", "--minbytes does not go with --calibration"],
    ["--seed 3 -e 128 -g 1 -n 1 -w 0", "--seed does not go with --calibration"],
    ["-e 64", '--maxbytes: found "64", needs 128, the smallest size of a calibration'],
  ])("refuses %s", async (line, why) => {
    const { status, err } = await cli(`bench --calibration ${line}`);
    expect(status).toBe(2);
    expect(err).toContain(why);
  });
});
