import { InvalidArgumentError } from "twinccl";
import {
  averageBusBandwidth,
  type BenchResult,
  environment,
  environmentText,
  heaviestRank,
  tableFoot,
  tableHead,
  tableRow,
  tally,
  tallyText,
  toCsv,
  transposed,
} from "twinccl/bench";
import { describe, expect, test } from "vitest";

const result: BenchResult = {
  collective: "allReduce",
  backend: "sim",
  ranks: 8,
  algorithm: "ring",
  size: 16777216,
  count: 4194304,
  type: "float8e4m3",
  redop: "sum",
  root: -1,
  out_of_place: { time: 61234.4, alg_bw: 0.274, bus_bw: 0.4795, nwrong: 0, checked: 8 },
  in_place: { time: 12.345, alg_bw: 0.28, bus_bw: 0.5, nwrong: 3, checked: 8 },
  predicted_us: 87.4,
};
const noInPlace: BenchResult = { ...result, in_place: null, predicted_us: null };

describe("the table", () => {
  const simulated = tableHead({ simulated: true }) + tableRow(result);
  const lines = simulated.split("\n");

  test("has nccl-tests' columns, and says which figures are simulated or predicted", () => {
    expect(simulated).toMatchInlineSnapshot(`
      "#                                                 out-of-place (simulated, in process)   in-place (simulated, in process)
      #       size        count       type  redop   root       time    algbw    busbw  #wrong       time    algbw    busbw  #wrong      predicted
      #        (B)   (elements)                                (us)   (GB/s)   (GB/s)               (us)   (GB/s)   (GB/s)          (us, virtual)
          16777216      4194304 float8e4m3    sum     -1      61234     0.27     0.48       0      12.35     0.28     0.50       3          87.40
      "
    `);
    expect(tableHead({ simulated: false }) + tableRow(noInPlace)).toMatchInlineSnapshot(`
      "#                                                             out-of-place                           in-place
      #       size        count       type  redop   root       time    algbw    busbw  #wrong       time    algbw    busbw  #wrong
      #        (B)   (elements)                                (us)   (GB/s)   (GB/s)               (us)   (GB/s)   (GB/s)
          16777216      4194304 float8e4m3    sum     -1      61234     0.27     0.48       0          -        -        -       -
      "
    `);
  });
  test("lines up: every figure ends where its heading ends", () => {
    const end = (line: string, word: string): number => line.indexOf(word) + word.length;
    const [, names = "", , row = ""] = lines;
    expect(end(row, "16777216")).toBe(end(names, "size"));
    expect(end(row, "4194304")).toBe(end(names, "count"));
    expect(end(row, "61234")).toBe(end(names, "time"));
    expect(end(row, "87.40")).toBe(end(names, "predicted"));
    const groups = [...names.matchAll(/#wrong/g)].map(({ index }) => index + "#wrong".length);
    expect(row.slice(0, groups[0]).endsWith(" 0")).toBe(true);
    expect(row.slice(0, groups[1]).endsWith(" 3")).toBe(true);
  });
  test("begins every other line with #", () => {
    const foot = tableFoot([result], { simulated: true });
    const others = [...lines.slice(0, 3), ...foot.trimEnd().split("\n")];
    expect(others.every((line) => line.startsWith("#"))).toBe(true);
  });
  test("closes with the number of wrong elements and the mean bus bandwidth", () => {
    expect(tableFoot([result], { simulated: true })).toBe(
      "# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 0.489750 GB/s (simulated, in process)\n#\n",
    );
    expect(tableFoot([noInPlace], { simulated: false })).toBe(
      "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.479500 GB/s\n#\n",
    );
    const unchecked = { ...noInPlace.out_of_place, nwrong: null };
    expect(tableFoot([{ ...noInPlace, out_of_place: unchecked }], { simulated: false })).toContain(
      "not checked",
    );
  });
});

test("CSV has one header, one line a row, and empty cells for missing values", () => {
  expect(toCsv([result, noInPlace])).toMatchInlineSnapshot(`
    "collective,backend,ranks,algorithm,size,count,type,redop,root,out_of_place_time,out_of_place_alg_bw,out_of_place_bus_bw,out_of_place_nwrong,in_place_time,in_place_alg_bw,in_place_bus_bw,in_place_nwrong,predicted_us
    allReduce,sim,8,ring,16777216,4194304,float8e4m3,sum,-1,61234.4,0.274,0.4795,0,12.345,0.28,0.5,3,87.4
    allReduce,sim,8,ring,16777216,4194304,float8e4m3,sum,-1,61234.4,0.274,0.4795,0,,,,,
    "
  `);
  const widths = toCsv([result, noInPlace])
    .trimEnd()
    .split("\n")
    .map((line) => line.split(",").length);
  expect(new Set(widths).size).toBe(1);
});

test("CSV quotes a cell with a comma, a quote or a line break", () => {
  const [, row] = toCsv([{ ...noInPlace, algorithm: 'ring, "wide"' }]).split("\n");
  expect(row).toMatch(/^allReduce,sim,8,"ring, ""wide""",16777216,/);
  expect(toCsv([{ ...noInPlace, algorithm: "a\nb" }])).toContain(',"a\nb",');
});

test("calls that were timed alone: percentiles in place of bandwidths", () => {
  const alone = {
    ...noInPlace,
    out_of_place: { ...noInPlace.out_of_place, time: 23.4, p99: 31.5 },
  };
  const style = { simulated: false, latency: true };
  expect(tableHead(style) + tableRow(alone) + tableFoot([alone], style)).toMatchInlineSnapshot(`
    "#                                                             out-of-place                           in-place
    #       size        count       type  redop   root     median      p99           #wrong     median      p99           #wrong
    #        (B)   (elements)                                (us)     (us)                        (us)     (us)
        16777216      4194304 float8e4m3    sum     -1      23.40    31.50                0          -        -        -       -
    # Out of bounds values : 0 OK
    #
    "
  `);
  const [head = "", row = ""] = toCsv([alone]).split("\n");
  expect(head.endsWith("predicted_us,out_of_place_p99,in_place_p99")).toBe(true);
  expect(row.endsWith(",,31.5,")).toBe(true);
});

test("the closing line counts wrong elements", () => {
  expect(tallyText({ elements: 1_234_567, results: 84, wrong: 0 }, 8)).toBe(
    "checked 1,234,567 elements of 84 results on 8 ranks: 0 wrong",
  );
});

describe("wrong arguments are refused by field", () => {
  type Wrong = never;
  const style = { simulated: true };
  const { out_of_place: apart } = result;
  const ofResults: Readonly<Record<string, (results: readonly BenchResult[]) => unknown>> = {
    averageBusBandwidth,
    tableFoot: (results) => tableFoot(results, style),
    tally,
    toCsv,
  };
  const wrongResults: readonly [string, unknown][] = [
    ["results", undefined],
    ["results", result],
    ["results[1]", [result, {}]],
    ["results[0]", [{ ...result, size: "8" }]],
    ["results[0]", new Array(1)],
    ["results[0].out_of_place", [{ ...result, out_of_place: null }]],
    ["results[0].out_of_place", [{ ...result, out_of_place: { ...apart, nwrong: "0" } }]],
    ["results[0].in_place", [{ ...result, in_place: undefined }]],
    ["results[0].in_place", [{ ...result, in_place: { ...apart, p99: "1" } }]],
    ["results[0].predicted_us", [{ ...result, predicted_us: undefined }]],
  ];
  const facts = environment();
  const sums = { elements: 1, results: 1, wrong: 0 };
  const cases: readonly [string, string, () => unknown][] = [
    ...Object.entries(ofResults).flatMap(([name, call]) =>
      wrongResults.map(([field, wrong]): [string, string, () => unknown] => [
        name,
        field,
        () => call(wrong as Wrong),
      ]),
    ),
    ["tableRow", "result", () => tableRow(undefined as Wrong)],
    ["tableRow", "result.in_place", () => tableRow({ ...result, in_place: {} as Wrong })],
    ["tableHead", "style", () => tableHead(undefined as Wrong)],
    ["tableHead", "style.simulated", () => tableHead({ simulated: 1 as Wrong })],
    ["tableFoot", "style", () => tableFoot([result], null as Wrong)],
    ["tallyText", "sums", () => tallyText({ ...sums, wrong: "0" as Wrong }, 8)],
    ["tallyText", "ranks", () => tallyText(sums, 0)],
    ["environmentText", "facts", () => environmentText({} as Wrong)],
    ["environmentText", "facts", () => environmentText({ ...facts, machine: {} as Wrong })],
    ["heaviestRank", "traffic", () => heaviestRank(undefined as Wrong)],
    ["heaviestRank", "traffic[1]", () => heaviestRank([[1, 2], 3 as Wrong])],
    ["transposed", "traffic[0]", () => transposed([[1, 2]])],
    ["transposed", "traffic[0]", () => transposed([[-1]])],
  ];
  test.each(cases)("by %s: %s, case %#", (name, field, call) => {
    expect(call).toThrow(InvalidArgumentError);
    expect(call).toThrow(expect.objectContaining({ field }));
    expect(call).toThrow(`${name}: ${field}: found `);
  });
});
