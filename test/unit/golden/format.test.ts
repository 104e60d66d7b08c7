import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { headLine, lineOf } from "../../../src/golden/format.ts";
import { GoldenFormatError, readCases, readRecords } from "../../../src/golden/read.ts";
import { joinedText } from "../../support/graph-files.ts";

const files = ["nccl-2.28.9-h200x8.jsonl", "nccl-2.28.9-h200x8-settings.jsonl"];

const line = `{"n":2,"ap":"Ring-LL","coll":"allReduce","dt":"f32","op":"sum","count":1,"cls":"norm","h":"0123456789abcdef"}`;
const head = `{"golden":1,"library":"nccl-2.28.9","topology":"h200x8"}`;

/** The line with some fields replaced; `undefined` takes one away. */
function changed(fields: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ ...JSON.parse(line), ...fields });
}

test.each(files)("%s: every line is the same when read and written again", (name) => {
  const text = readFileSync(new URL(`../../golden/${name}`, import.meta.url), "utf8");
  const { cases, lines, unknownFields } = readRecords(text, name);
  expect(cases.map(lineOf).join("\n")).toBe(text.trimEnd());
  expect(lines).toEqual(cases.map((_, at) => at + 1));
  expect(unknownFields).toEqual([]);
});

test("optional fields survive as well", () => {
  const plan = { algorithm: "Ring", protocol: "LL", channels: 1 };
  const text = changed({ h: "e00e5eb9444182f3", bits: "0000803f", plan });
  const { cases } = readRecords(text, "f");
  expect(cases[0]).toMatchObject({ bits: "0000803f", plan });
  expect(cases.map(lineOf)).toEqual([text]);
});

test("a first line names the subject of the file; blank lines do not count", () => {
  const file = readRecords(`${head}\n\n${line}\n`, "f");
  expect(file).toMatchObject({ head: { library: "nccl-2.28.9" }, lines: [3] });
});

describe("a first line with facts of its machine", () => {
  const xml = joinedText([[0, 1]], [[0, 1]], 1);
  const headOf = (topology: unknown): string =>
    JSON.stringify({ golden: 1, library: "nccl-2.28.9", topology });
  const network = { kind: "socket", gigabitsPerSecond: 25 };

  test.each([
    [{ xml }],
    [{ xml: [xml, xml], cpu: "amd" }],
    [{ hosts: 4, gpusPerHost: 1, network }],
  ])("is the same when read and written again: %#", (topology) => {
    const { head: read } = readRecords(`${headOf(topology)}\n${line}`, "f");
    expect(headLine(read)).toBe(headOf(topology));
  });

  test.each([
    [{ xml: xml.replace('speedintra="30"', 'speedintra="0"') }, /line 2: speedintra="0", needs GB/],
    [{ xml: [xml, "<graphs"] }, /topology xml\[1\]: line 1: found "<graphs"/],
    [{ xml, cpu: "arm" }, /topology.cpu: found "arm"/],
    [{ hosts: 0, gpusPerHost: 1, network }, /topology.hosts: found 0/],
    [{ hosts: 1e9, gpusPerHost: 1, network }, /topology.hosts: found 1000000000/],
    [{ hosts: 2, gpusPerHost: 1, network: { ...network, gigabitsPerSecond: 0 } }, /found 0, needs/],
    [{ graphs: xml }, /needs the name of a machine/],
    [[], /needs the name of a machine/],
    [null, /found null, needs one of/],
    [5, /found 5, needs one of/],
  ])("is refused by line and field: %#", (topology, message) => {
    let caught: unknown;
    try {
      readCases(`${headOf(topology)}\n${line}`, "f");
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(GoldenFormatError);
    expect(caught).toMatchObject({ file: "f", line: 1, field: "topology" });
    expect((caught as Error).message).toMatch(/^f: line 1: topology: /);
    expect((caught as Error).message).toMatch(message);
  });
});

test("fields without a meaning here are reported, not dropped in silence", () => {
  expect(readRecords(changed({ colour: "blue" }), "f").unknownFields).toEqual(["colour"]);
  const unfinished = readCases(changed({ h: undefined, colour: 1 }), "f");
  expect(unfinished.unknownFields).toEqual(["colour"]);
  expect(readCases(line, "f").unknownFields).toEqual([]);
});

describe("a line outside the format is refused by file, line and field", () => {
  const twice = "a list of 2 times 16 hexadecimal digits, one for each rank";
  test.each([
    ["{", "f: line 1: is no JSON: ", undefined],
    ["[]", "f: line 1: needs a JSON object", undefined],
    ["", "f: holds no recorded call", undefined],
    [head, "f: holds no recorded call", undefined],
    [`${line}\n{"n":2`, "f: line 2: is no JSON", undefined],
    [`{"golden":2}\n${line}`, "golden: found 2, needs version 1 of the format", "golden"],
    [head.replace("2.28.9", "2.99"), 'library: found "nccl-2.99", needs one of', "library"],
    [head.replace('"nccl-2.28.9"', '{"toString":1}'), "library: found", "library"],
    [head.replace("h200x8", "b200x8"), "needs one of h200x8", "topology"],
    [changed({ n: 0 }), "n: found 0, needs a whole number of at least 1", "n"],
    [changed({ n: "2" }), 'n: found "2"', "n"],
    [changed({ ap: "NVLS-Simple" }), "needs one of default, Ring-Simple", "ap"],
    [changed({ coll: "allgather" }), 'coll: found "allgather", needs one of allReduce', "coll"],
    [changed({ dt: "f33" }), "needs one of i8, u8", "dt"],
    [changed({ op: "xor" }), "needs one of sum", "op"],
    [changed({ count: -1 }), "count: found -1", "count"],
    [changed({ count: 2 ** 31 }), "needs a whole number in 0..536870912", "count"],
    [changed({ count: undefined }), "count: found nothing", "count"],
    [changed({ cls: "calm" }), "needs one of norm, wild", "cls"],
    [changed({ coll: "reduce" }), "root: found nothing, needs a whole number in 0..1", "root"],
    [changed({ coll: "reduce", root: 2 }), "root: found 2", "root"],
    [changed({ env: "ch9" }), "needs one of plain, ch1, ch5, smallbuf, sym", "env"],
    [changed({ env: "ch1", inplace: 1 }), "inplace: found 1, needs true or false", "inplace"],
    [changed({ env: "ch1", offset: 0.5 }), "offset: found 0.5", "offset"],
    [changed({ h: "0123" }), 'h: found "0123", needs 16 hexadecimal digits', "h"],
    [changed({ h: "0123456789ABCDEF" }), "needs 16 hexadecimal digits", "h"],
    [changed({ coll: "reduceScatter" }), twice, "h"],
    [changed({ bits: "00" }), 'bits: found "00", needs 8 hexadecimal digits', "bits"],
    [
      changed({ bits: "0000803f" }),
      "bits: the output has the hash e00e5eb9444182f3, h holds 0123456789abcdef",
      "bits",
    ],
    [
      changed({
        coll: "reduceScatter",
        h: ["e00e5eb9444182f3", "e00e5eb9444182f3"],
        bits: ["0000803f", "00000000"],
      }),
      "bits: the output of rank 1 has the hash df3f619804a92fdb, h holds e00e5eb9444182f3",
      "bits",
    ],
    [changed({ plan: "Ring" }), 'plan: found "Ring", needs such as', "plan"],
    [changed({ plan: null }), "plan: found null", "plan"],
  ])("%s", (text, message, field) => {
    let caught: unknown;
    try {
      readRecords(text, "f");
    } catch (error) {
      caught = error;
    }
    expect(caught).toBeInstanceOf(GoldenFormatError);
    const { message: found, ...facts } = caught as GoldenFormatError;
    expect(found).toContain(message);
    expect(found).toMatch(/^f: /);
    expect(facts).toMatchObject({ file: "f", field });
  });
});
