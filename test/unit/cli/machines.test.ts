/** Machines of `--topology` and `topology=`: names, networks of hosts, and graph files with errors that name file and line. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { graphText, joinedText } from "../../support/graph-files.ts";
import { cli } from "./harness.ts";

const pair = [[0, 1]];
const joined = joinedText(pair, pair, 1, { speedinter: 24 });
const alone = graphText(
  { id: 0, pattern: 4, channels: [[0, 1, 2, 3]] },
  { id: 1, pattern: 1, channels: [[0, 1, 2, 3]] },
);

let folder = "";
const at = (name: string): string => join(folder, name);

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "machines-"));
  writeFileSync(at("joined.xml"), joined);
  writeFileSync(at("alone.xml"), alone);
  writeFileSync(at("four.xml"), joinedText([[0, 1, 2, 3]], [[0, 1, 2, 3]], 1));
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const fine = async (line: string): Promise<string> => {
  const { status, out, err } = await cli(line);
  expect({ status, err }).toEqual({ status: 0, err: "" });
  return out;
};

describe("a graph file", () => {
  test("is the machine of explain, with as many hosts as there are ranks for", async () => {
    const out = await fine(`explain all-reduce -n 6 --count 1000 --topology ${at("joined.xml")}`);
    expect(out).toContain("3 hosts of 2 Hopper GPUs with the given graph and Intel CPUs");
    expect(out).toContain("from the source, not measured");
    const amd = `explain all-reduce -n 6 --count 1000 --topology ${at("joined.xml")}@amd`;
    expect(await fine(amd)).toContain("3 hosts of 2 Hopper GPUs with the given graph and AMD CPUs");
  });

  test("is not overwritten", async () => {
    const quick = "all-reduce -b 8 -e 8 --out";
    const [first, second] = [at("joined.xml"), at("four.xml")];
    const machine = `${first}+${second}@intel`;
    const backend = `sim:like=nccl-2.28,topology=${machine}`;
    for (const [line, what] of [
      [`predict ${quick} ${second} -n 6 --topology ${machine}`, "--topology"],
      [`predict ${quick} ${first} -n 6 --topology ${machine}`, "--topology"],
      [`bench ${quick} ${second} -g 6 -n 1 -w 0 --backend ${backend}`, "topology of --backend"],
    ]) {
      const { status, err } = await cli(line as string);
      expect(status).toBe(2);
      expect(err).toContain(`is the same file as ${what}; name another one`);
    }
    expect(readFileSync(second, "utf8")).toContain("<graphs");
  });

  test("of each node is named with + or a comma between", async () => {
    for (const between of ["+", ","]) {
      const files = [at("joined.xml"), at("four.xml")].join(between);
      const out = await fine(`explain all-reduce -n 6 --count 9 --topology ${files} --element 3`);
      expect(out).toContain("on 2 hosts of 2 to 4 Hopper GPUs with the given graphs");
    }
  });

  test("may have + and a comma in its own path", async () => {
    const path = at("two+two,24.xml");
    writeFileSync(path, joined);
    const out = await fine(`explain all-reduce -n 6 --count 1000 --topology ${path}`);
    expect(out).toContain("3 hosts of 2 Hopper GPUs with the given graph and Intel CPUs");
  });

  test("of one node has no hosts", async () => {
    const out = await fine(`explain all-reduce -n 4 --count 9 --topology ${at("alone.xml")}`);
    expect(out).toContain("on Hopper GPUs with the given graph");
  });

  test("is the machine of a backend", async () => {
    writeFileSync(
      at("program.mjs"),
      "export default (comm) => comm.explain({ collective: 'allReduce', dtype: 'int8', op: 'sum', count: 9 }).claim;",
    );
    const backend = `sim:like=nccl-2.28,topology=${at("joined.xml")}`;
    const program = `verify ${at("program.mjs")} -n 4 --backend ${backend}`;
    expect(await fine(`${program} --against ${backend},seed=2`)).toContain("4 of 4");
    const two = await cli(`${program} --against ${backend}+${at("joined.xml")}`);
    expect(two.status).toBe(0);
    const run = await fine(`run ${at("program.mjs")} -n 4 --backend ${backend}`);
    expect(run).toContain("2 hosts of 2 Hopper GPUs with the given graph");
    const bench = await fine(
      `bench all-reduce --backend ${backend} -n 4 --minbytes 1K --maxbytes 1K`,
    );
    expect(bench).toContain("1024");
  });

  test("is one machine of invariant, beside others", async () => {
    // The GPU of rank 1 is the last one, so that the ring is 0 3 1 2.
    writeFileSync(at("mirror.xml"), alone.replaceAll('dev="0x1"', 'dev="0x9"'));
    const line = "invariant all-reduce -n 4 --count 1..50 --ask hosts --topology h200x8";
    expect(await fine(`${line},${at("mirror.xml")}`)).toMatch(/hosts +depends/);
  });
});

test("hosts have another network after @", async () => {
  const line = "explain all-reduce -n 4 --count 1M --topology h200-hosts";
  const at25 = await fine(`${line}@25`);
  expect(at25).toContain("4 hosts of one GPU (sockets at 25 Gb/s)");
  expect(at25).toContain("from the source, not measured");
  expect(await fine(`${line}@10`)).toBe(await fine(line));
});

describe("a wrong machine is refused by name:", () => {
  const broken = (name: string, from: string, to: string): string => {
    expect(joined).toContain(from);
    writeFileSync(at(name), joined.replace(from, to));
    return at(name);
  };
  const refused = async (machine: string): Promise<string> => {
    const { status, err } = await cli(`explain all-reduce -n 4 --topology ${machine}`);
    expect(status).toBe(2);
    expect(err).not.toMatch(/^ {4}at /m);
    return err;
  };

  test.each([
    ["h200x9", '--topology: found "h200x9", needs one of h200x8, h200-hosts, h200-hosts@SPEED'],
    ["h200-hosts@0", 'found "h200-hosts@0", needs the network\'s Gb/s above 0'],
    ["h200-hosts@NaN", 'found "h200-hosts@NaN"'],
    ["h200-hosts@-1", 'found "h200-hosts@-1"'],
    ["h200-hosts@1e9", 'found "h200-hosts@1e9"'],
    ["h200-hosts@", 'found "h200-hosts@"'],
    ["./missing.xml", "--topology: there is no file ./missing.xml"],
    ["./", "--topology: ./ is a folder; name a file in it"],
  ])("%s", async (machine, message) => {
    expect(await refused(machine)).toContain(message);
  });

  test.each([
    [
      "speed.xml",
      'speedintra="30"',
      'speedintra="0"',
      'line 2: speedintra="0", needs GB/s above 0',
    ],
    ["nan.xml", 'speedinter="24"', 'speedinter="NaN"', 'line 2: speedinter="NaN"'],
    ["latency.xml", 'latencyinter="0"', 'latencyinter="-1"', 'line 2: latencyinter="-1"'],
    ["channels.xml", 'nchannels="1"', 'nchannels="1000000000"', "line 2: nchannels="],
    ["device.xml", '<gpu dev="0x1"', '<gpu dev="0"', "line 3: devices 0, 0, needs every GPU once"],
    ["entity.xml", '<gpu dev="0"', '<gpu dev="&x;"', 'line 5: found "<gpu dev=\\"&x;'],
    ["type.xml", "<graphs", '<!DOCTYPE x [<!ENTITY y "z">]><graphs', "line 1: found"],
    ["text.xml", "<channel>", "<channel>here", 'line 3: found "here'],
  ])("%s", async (name, from, to, message) => {
    const file = broken(name, from, to);
    expect(await refused(file)).toContain(`${file}: ${message}`);
    expect(await refused(`${at("joined.xml")}+${file}`)).toContain(`${file}: ${message}`);
  });

  test("a file of ten megabytes, nested", async () => {
    writeFileSync(at("nested.xml"), "<graphs>".repeat(1_300_000));
    expect(await refused(at("nested.xml"))).toContain(
      `${at("nested.xml")}: line 1: found 10,400,000 characters, needs at most 1,048,576`,
    );
  });

  test("another number of ranks than the files have GPUs", async () => {
    const { status, err } = await cli(`explain all-reduce -n 3 --topology ${at("joined.xml")}`);
    expect(status).toBe(2);
    expect(err).toContain("found 3 ranks, its rings and trees are those of hosts of 2 GPUs");
  });

  test("in the name of a backend, with the setting", async () => {
    const { status, err } = await cli(
      `bench all-reduce --backend sim:like=nccl-2.28,topology=${at("none.xml")}`,
    );
    expect(status).toBe(2);
    expect(err).toContain(`--backend: topology: there is no file ${at("none.xml")}`);
  });
});
