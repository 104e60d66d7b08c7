/** Files of results: what is read from each format, and an error with file, field and found value for every fault. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { startProfile } from "../../../../src/bench/calibration/calibrate.ts";
import { type MeasuredTimes, readResults } from "../../../../src/bench/calibration/results.ts";
import { heaviestRank } from "../../../../src/bench/traffic.ts";
import { errorOf } from "../../../support/error-of.ts";
import { calibrationDocument } from "./synthetic.ts";

const document = calibrationDocument(startProfile, 8, {
  kept: ({ collective, mode }, bytes) =>
    collective === "allReduce" && mode.memory === "ordinary" && !mode.awaited && bytes <= 8192,
});

function read(...documents: readonly object[]): MeasuredTimes {
  const files = documents.map((each, i) => ({ name: `r${i}.json`, text: JSON.stringify(each) }));
  return readResults(files, startProfile);
}

/** The document with another value at a path; deleted for `undefined`. */
function changed(path: string, value: unknown): object {
  const copy = structuredClone(document);
  const names = path.split(/[.[\]]+/).filter((name) => name !== "");
  const last = names.pop() as string;
  const at = names.reduce(
    (found, name) => found[name] as Record<string, unknown>,
    copy as Record<string, unknown>,
  );
  if (value === undefined) delete at[last];
  else at[last] = value;
  return copy;
}

describe("results", () => {
  test("of bench --calibration are measurements with the way of calling", () => {
    const { measurements, nccl, gpus, date } = read(document);
    expect({ nccl, gpus: gpus.length, date }).toEqual({
      nccl: "2.28.9",
      gpus: 8,
      date: "2026-11-26",
    });
    expect(new Set(measurements.map(({ mode }) => mode.launch))).toEqual(
      new Set(["graph", "eager"]),
    );
    expect(measurements[0]).toMatchObject({ collective: "allReduce", ranks: 8, count: 32 });
    expect(measurements.every(({ forced }) => forced === undefined)).toBe(true);
  });

  test("of one sweep are read alike", () => {
    const { runs, ...facts } = document as { runs: readonly object[] };
    expect(read({ ...facts, ...runs[0] }).measurements.length).toBeGreaterThan(3);
  });

  test("of the comparison on GPUs are NCCL's own times, with the counts of an all-to-allv", () => {
    const file = new URL("../../../../bench/results/gpu-h200x4.json", import.meta.url);
    const { measurements, skipped } = read(JSON.parse(readFileSync(file, "utf8")));
    expect(measurements.length).toBeGreaterThan(200);
    expect(skipped.size).toBe(0);
    const uneven = measurements.filter(({ collective }) => collective === "allToAllv");
    expect(uneven).toHaveLength(32);
    for (const { counts = [], count } of uneven) expect(heaviestRank(counts)).toBe(count);
    const first = measurements.find(({ mode }) => mode.processes === "each");
    expect(first).toMatchObject({ collective: "allReduce", ranks: 4, count: 2, us: 10.561 });
  });

  test("of the comparison are those of another peer, where it is named", () => {
    const file = new URL("../../../../bench/results/gpu-h200x4.json", import.meta.url);
    const files = [{ name: "four.json", text: readFileSync(file, "utf8") }];
    const [first] = readResults(files, startProfile, ["twinccl"]).measurements;
    const [row] = JSON.parse(files[0]?.text ?? "").results;
    expect(first?.us).toBe(row.peers.twinccl.median_us);
    expect(readResults(files, startProfile, ["torch"]).measurements[0]?.mode.processes).toBe(
      "each",
    );
  });

  test("of an all-to-allv with another count than the planned one are refused", () => {
    const file = new URL("../../../../bench/results/gpu-h200x2.json", import.meta.url);
    const compared = JSON.parse(readFileSync(file, "utf8"));
    const at = compared.results.findIndex(
      (row: { collective: string }) => row.collective === "allToAllv",
    );
    compared.results[at].count = 13;
    const error = errorOf(() => read(compared));
    expect(error.field).toBe(`results[${at}].count`);
    expect(error.message).toContain("found 13, needs 8");
  });

  test("with another choice of NCCL were forced", () => {
    const { measurements } = read(changed("runs[0].results[0].algorithm", "Tree Simple"));
    expect(measurements[0]?.forced).toEqual({ algorithm: "Tree", protocol: "Simple" });
  });
});

const row = "runs[0].results[0]";

describe("a fault of results", () => {
  const faults: [string, unknown, string, string][] = [
    ["nccl", undefined, "ERR_COMM_ARG", "found nothing, needs a text"],
    ["nccl", null, "ERR_COMM_ARG", "found null"],
    ["nccl", "2.30.7", "ERR_COMM_UNSUPPORTED", 'found "2.30.7"'],
    ["gpus[3]", "NVIDIA B300", "ERR_COMM_UNSUPPORTED", 'found "NVIDIA B300"'],
    ["gpus[0]", "NVIDIA H100 PCIe", "ERR_COMM_UNSUPPORTED", 'found "NVIDIA H100 PCIe"'],
    ["date", "yesterday", "ERR_COMM_ARG", 'found "yesterday"'],
    ["runs", {}, "ERR_COMM_ARG", "found an object, needs a list"],
    ["runs[0].timing", "simulated, in process", "ERR_COMM_ARG", 'found "simulated, in process"'],
    ["runs[0].mode", "fast", "ERR_COMM_ARG", 'found "fast"'],
    ["runs[0].symmetric", undefined, "ERR_COMM_ARG", "found nothing"],
    ["nccl", "2.28.999", "ERR_COMM_UNSUPPORTED", 'found "2.28.999"'],
    ["gpus", [], "ERR_COMM_ARG", "found an array, needs the name of at least one GPU"],
    ["gpus[3]", "NVIDIA H100", "ERR_COMM_ARG", 'found "NVIDIA H100", needs that of gpus[0]'],
    [`${row}.backend`, "sim", "ERR_COMM_ARG", 'found "sim"'],
    [`${row}.ranks`, -8, "ERR_COMM_ARG", "found -8"],
    [`${row}.ranks`, 9, "ERR_COMM_ARG", "found 9, needs a whole number of 1 to 8"],
    [`${row}.ranks`, 3000, "ERR_COMM_ARG", "found 3000, needs a whole number of 1 to 8"],
    [`${row}.root`, 99, "ERR_COMM_ARG", "found 99, needs a whole number of -1 to 7"],
    [`${row}.type`, "float31", "ERR_COMM_ARG", 'found "float31"'],
    [`${row}.size`, 100, "ERR_COMM_ARG", "found 100, needs 128"],
    [`${row}.algorithm`, "ring", "ERR_COMM_ARG", 'found "ring"'],
    [`${row}.out_of_place.time`, -1, "ERR_COMM_ARG", "found -1"],
    [`${row}.out_of_place.time`, Number.NaN, "ERR_COMM_ARG", "found null"],
    [`${row}.out_of_place.time`, undefined, "ERR_COMM_ARG", "found nothing"],
    [`${row}.out_of_place.nwrong`, 4, "ERR_COMM_ARG", "found 4"],
    [`${row}.out_of_place.alg_bw`, 1e6, "ERR_COMM_ARG", "found 1000000"],
  ];
  test.each(faults)("%s of %j is refused", (path, value, code, found) => {
    const error = errorOf(() => read(changed(path, value)));
    expect(error.code).toBe(code);
    expect(error.field).toBe(path);
    expect(error.message).toContain("r0.json: ");
    expect(error.message).toContain(found);
  });

  test("other text is refused", () => {
    const broken = [{ name: "r.json", text: "{" }];
    expect(errorOf(() => readResults(broken, startProfile)).message).toContain("r.json: no JSON");
  });

  test("two times of one call that no machine has are refused with both files", () => {
    const slow = calibrationDocument(startProfile, 8, { noise: 3 });
    const { message } = errorOf(() => read(document, slow));
    expect(message).toMatch(
      /r1\.json: allReduce of 8 ranks and \d+ bytes: found .* µs of r0\.json/,
    );
  });

  test("GPUs of two machines are refused", () => {
    const other = { ...document, gpus: Array.from({ length: 8 }, () => "NVIDIA H100 80GB HBM3") };
    const error = errorOf(() => read(document, other));
    expect(error.field).toBe("gpus");
    expect(error.message).toContain(
      'r1.json: gpus: found "NVIDIA H100 80GB HBM3", needs those of r0.json, "NVIDIA H200"',
    );
  });

  const comparison = () =>
    JSON.parse(
      readFileSync(new URL("../../../../bench/results/gpu-h200x2.json", import.meta.url), "utf8"),
    );

  test("a wrong result of a comparison is refused", () => {
    const compared = comparison();
    compared.results[0].peers.native.right = false;
    const error = errorOf(() => read(compared));
    expect(error.field).toBe("results[0].peers.native.right");
    expect(error.message).toContain("found false, needs true");
  });

  test("a size of a comparison that does not fit its count is refused", () => {
    const compared = comparison();
    compared.results[0].bytes = 12;
    const error = errorOf(() => read(compared));
    expect(error.field).toBe("results[0].bytes");
    expect(error.message).toContain("found 12, needs 8");
  });

  test("a part of an element, and too many ranks of a comparison are refused", () => {
    const compared = comparison();
    compared.latency[0].bytes = 6;
    expect(errorOf(() => read(compared)).field).toBe("latency[0].bytes");
    const many = { ...comparison(), ranks: 9 };
    expect(errorOf(() => read(many)).field).toBe("ranks");
  });

  test("two versions of NCCL are refused", () => {
    const error = errorOf(() => read(document, changed("nccl", "2.28.3")));
    expect(error.message).toContain('r1.json: nccl: found "2.28.3", needs that of r0.json, 2.28.9');
  });
});
