import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { sim } from "twinccl/sim";
import { afterAll, afterEach, describe, expect, test, vi } from "vitest";
import { backends } from "../../../src/cli/backends.ts";
import type { BackendTable } from "../../../src/cli/context.ts";
import { hostsOf, underGraphs } from "../../../src/cli/golden/graphs.ts";
import { orderSensitiveElements } from "../../../src/golden/order-sensitive.ts";
import { readRecords } from "../../../src/golden/read.ts";
import { graphText, joinedText } from "../../support/graph-files.ts";
import { corrupting } from "../bench/corrupting-backend.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-golden-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

const recorded = fileURLToPath(new URL("../../golden/nccl-2.28.9-h200x8.jsonl", import.meta.url));
const some = readFileSync(recorded, "utf8")
  .split("\n")
  .filter((line) => line !== "" && JSON.parse(line).count < 2000)
  .slice(0, 40);

function file(name: string, lines: readonly string[]): string {
  const path = join(folder, name);
  writeFileSync(path, `${lines.join("\n")}\n`);
  return path;
}

const good = file("good.jsonl", some);
const damaged = file(
  "damaged.jsonl",
  some.map((line, at) => (at === 6 ? line.replace(/"h":("|\[")..../, '"h":$10000') : line)),
);

describe("check", () => {
  test("all identical: the count is the last line", async () => {
    const { status, out, err } = await cli(`golden check ${good}`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    const [title, elements, last] = out.split("\n");
    expect(title).toBe(`# ${good}: 40 calls of nccl-2.28.9 on h200x8, replayed on sim`);
    expect(elements).toMatch(/^# elements: \d+ identical$/);
    expect(last).toBe("golden: 40 of 40 identical");
    const counted = await cli(`golden check ${good} --sensitive`);
    const [found] = /(?<=identical, )\d+(?= of them with other bits)/.exec(counted.out) ?? [];
    expect(Number(found)).toBe(
      readRecords(some.join("\n"), good).cases.reduce(
        (sum, golden) => sum + orderSensitiveElements(golden),
        0,
      ),
    );
    expect(Number(found)).toBeGreaterThan(0);
  });

  test("a mismatch is reported by field, and makes the exit status 1", async () => {
    const { status, out } = await cli(`golden check ${damaged}`);
    expect(status).toBe(1);
    expect(out).toMatch(
      /\n# not identical: \S+, line 7\n# {3}rank {5}\d\n# {3}element {2}.*\n# {3}want {5}.*hash 0000[0-9a-f]{12}\)?\n# {3}have {5}.*hash [0-9a-f]{16}\)?\n# {3}plan {5}(Ring|Tree) \w+ over \d+ channels?\n/,
    );
    expect(out.endsWith("\ngolden: 39 of 40 identical\n")).toBe(true);
  });

  test("cases that --most leaves out change no line number and no index", async () => {
    const large = some.slice(0, 6).map((line) => line.replace(/"count":\d+/, '"count":4000'));
    const path = file("large.jsonl", [
      ...large,
      ...readFileSync(damaged, "utf8").split("\n").slice(6),
    ]);
    const { status, out } = await cli(`golden check ${path} --most 2000`);
    expect(status).toBe(1);
    expect(out).toMatch(
      /: 34 calls of [\s\S]*# not identical: \S+, line 7\n[\s\S]*golden: 33 of 34/,
    );
    const document = JSON.parse((await cli(`golden check ${path} --most 2000 --json`)).out);
    expect(document.mismatches).toMatchObject([{ index: 6 }]);
  });

  test("a check that --most leaves without a case fails", async () => {
    const { status, out } = await cli(`golden check ${good} --most 0`);
    expect(status).toBe(1);
    expect(out.endsWith("\ngolden: 0 of 0 identical\n")).toBe(true);
  });

  test("only a limited number are reported in full", async () => {
    const backends = { sim: () => corrupting(sim({ like: "nccl-2.28" }), 0) };
    const { status, out } = await cli(`golden check ${good} --show 2`, { backends });
    expect(status).toBe(1);
    expect(out.match(/^# not identical/gm)).toHaveLength(2);
    const [, more, of] = /\n# (\d+) more are not identical\n.*golden: (\d+) of 40/s.exec(out) ?? [];
    expect(Number(more) + 2 + Number(of)).toBe(40);
  });

  test("cases that cannot be replayed are counted by their missing requirement", async () => {
    const many = some.map((line, at) => (at < 3 ? line.replace(/"n":\d/, '"n":9') : line));
    const lists = many.map((line) =>
      line.replace(/"h":\[("\w+",)/, line.includes('"n":9') ? '"h":[$1$1' : '"h":[$1'),
    );
    const { status, out } = await cli(`golden check ${file("many.jsonl", lists)}`);
    expect(status).toBe(1);
    expect(out).toMatch(/\n# 3 could not be replayed, first 9\/.*: .*has 8 GPUs\n/);
    expect(out).toContain("golden: 37 of 40 identical\n");
  });

  test("JSON holds the same", async () => {
    const { status, out } = await cli(`golden check ${damaged} --json`);
    expect(status).toBe(1);
    const document = JSON.parse(out);
    expect(document).toMatchObject({ library: "nccl-2.28.9", cases: 40, identical: 39 });
    expect(document.mismatches).toHaveLength(1);
  });

  test("progress is for terminals only, and is erased at the end", async () => {
    const { err } = await cli(`golden check ${damaged}`, { terminal: true });
    expect(err).toContain("golden: 40 of 40 replayed, 1 not identical");
    expect(err.endsWith("\r\x1b[K")).toBe(true);
  });

  test.each([
    ["golden", /needs an action: check or record/],
    ["golden verify x", /found "verify", needs an action/],
    ["golden check", /check: name a file/],
    ["golden check no-such.jsonl", /there is no file no-such.jsonl/],
    [`golden check ${folder}`, /is a folder; name a file in it/],
    [`golden check ${file("text.jsonl", ["hello"])}`, /text.jsonl: line 1: is no JSON/],
    [
      `golden check ${file("v2.jsonl", ['{"golden":2}'])}`,
      /line 1: golden: found 2, needs version 1/,
    ],
    [`golden check ${good} --out x`, /--out does not belong to check/],
    [`golden record ${good}`, /record: name the backend/],
    [`golden record ${good} --backend sim --sensitive`, /--sensitive does not belong to record/],
    [`golden record ${good} --backend sim --json`, /--json does not belong to record/],
    [
      `golden record ${good} --backend sim --out ${folder}/a/b`,
      /there is no folder .*\/a; make it/,
    ],
    [`golden record ${good} --backend sim --out ${good}`, /is the same file as the cases/],
    [`golden record ${good} --backend tcp --launch --out ${good}`, /is the same file as the cases/],
    [`golden record ${good} --backend nccl`, /libcudart was not found/],
    [`golden check ${good} --backend magic`, /backends are sim, nccl/],
  ])("wrong usage: twinccl %s", async (line, message) => {
    vi.stubEnv("TWINCCL_CUDART_LIBRARY", join(folder, "libcudart.so"));
    const { status, out, err } = await cli(line);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toMatch(message);
    expect(err).not.toMatch(/^ {4}at /m);
  });
});

describe("record", () => {
  test("writes a file that a check finds identical, with the hashes that NCCL gave", async () => {
    const cases = file(
      "cases.jsonl",
      some.map((line) => JSON.stringify({ ...JSON.parse(line), h: undefined })),
    );
    const path = join(folder, "made.jsonl");
    const { status, out, err } = await cli(
      `golden record ${cases} --backend sim --bits 16 --out ${path}`,
    );
    expect({ status, out, err }).toEqual({
      status: 0,
      out: "golden: 40 of 40 recorded\n",
      err: "",
    });
    const lines = readFileSync(path, "utf8").trimEnd().split("\n");
    expect(lines[0]).toBe('{"golden":1,"library":"nccl-2.28.9","topology":"h200x8"}');
    const bare = lines.slice(1).map((line) => {
      const { bits: _, plan, ...rest } = JSON.parse(line);
      expect(plan.channels).toBeGreaterThan(0);
      return JSON.stringify(rest);
    });
    expect(bare).toEqual(some);
    const check = await cli(`golden check ${path}`);
    expect(check.status).toBe(0);
    expect(check.out).toMatch(
      /^# plans: 40 of 40 as nccl-2.28.9 reported them; (\d+) of \1 where it chose$/m,
    );
  });

  test("without --out standard output holds the records and nothing else", async () => {
    const { out, err } = await cli(`golden record ${good} --backend sim`);
    expect(out.trimEnd().split("\n")).toHaveLength(41);
    expect(err).toBe("golden: 40 of 40 recorded\n");
  });

  test("a case that could not be recorded is reported, and makes the exit status 1", async () => {
    const path = file("nine.jsonl", [
      some.find((line) => line.includes("allReduce"))!.replace(/"n":\d/, '"n":9'),
      some[1]!,
    ]);
    const { status, out, err } = await cli(`golden record ${path} --backend sim`);
    expect(status).toBe(1);
    expect(out.trimEnd().split("\n")).toHaveLength(2);
    expect(err).toMatch(/^golden: no record of 9\/.*has 8 GPUs\ngolden: 1 of 2 recorded\n$/);
  });
});

describe("record --launch", () => {
  const head = '{"golden":1,"library":"nccl-2.28.9","topology":"h200-hosts"}';
  const calls = [
    '{"env":"plain","n":3,"ap":"default","coll":"allReduce","dt":"f32","op":"avg","count":500,"cls":"norm","inplace":true,"offset":3,"h":""}',
    '{"env":"plain","n":3,"ap":"Tree-Simple","coll":"allReduce","dt":"bf16","op":"sum","count":700,"cls":"norm","inplace":false,"offset":0,"h":""}',
    '{"env":"ch1","n":2,"ap":"default","coll":"reduceScatter","dt":"f64","op":"prod","count":1500,"cls":"wild","inplace":false,"offset":0,"h":""}',
    '{"env":"ch1","n":2,"ap":"default","coll":"reduce","dt":"i8","op":"max","count":90,"cls":"norm","inplace":false,"offset":0,"root":1,"h":""}',
  ];
  const path = file("hosts.jsonl", [head, ...calls]);

  test("records with a process for each rank what all ranks in one process give", async () => {
    const launched = join(folder, "launched.jsonl");
    const one = await cli(
      `golden record ${path} --backend tcp --launch --streams 2 --out ${launched}`,
    );
    expect(one).toMatchObject({ status: 0, out: "golden: 4 of 4 recorded\n", err: "" });
    const { status, out } = await cli(`golden record ${path} --backend sim`);
    expect(status).toBe(0);
    expect(readFileSync(launched, "utf8")).toBe(out);
    expect(out).toContain('"plan":{"algorithm":"Tree","protocol":"Simple","channels":1}');
  }, 60_000);

  test("records the plan of symmetric memory where a call is in it", async () => {
    const symmetric = calls[0]!.replace('"env":"plain"', '"env":"sym"').replace("avg", "sum");
    const cases = file("symmetric.jsonl", [head.replace("h200-hosts", "h200x8"), symmetric]);
    const { status, out } = await cli(`golden record ${cases} --backend tcp --launch`);
    expect(status).toBe(0);
    expect(out).toContain('"plan":{"algorithm":"Symmetric",');
    expect(out).toBe((await cli(`golden record ${cases} --backend sim`)).out);
  }, 60_000);

  test("keeps what was recorded, and names what was not", async () => {
    const refused = file("refused.jsonl", [head, ...calls.slice(2), refusedCall]);
    const { status, out, err } = await cli(
      `golden record ${refused} --backend tcp --launch --bits 8`,
    );
    expect(status).toBe(1);
    expect(out.trim().split("\n")).toHaveLength(3);
    expect(err).toMatch(/no record of ch1\/2\/PAT-Simple\/.*: reduceScatter: NCCL has no PAT/);
    expect(err).toContain("golden: 2 of 3 recorded");
  }, 60_000);

  test("a signal ends the recording, not the processes of one number of ranks alone", async () => {
    let text = "";
    const err = (more: string): void => {
      // Progress: the first processes have made a call.
      if (more.includes(" of 4 recorded") && !text.includes("SIGHUP"))
        process.emit("SIGHUP", "SIGHUP");
      text += more;
    };
    const line = `golden record ${path} --backend tcp --launch`;
    const { status, out } = await cli(line, { err, terminal: true });
    expect(status).toBe(129);
    expect(text).toContain("twinccl golden: SIGHUP was handed on");
    expect(out).not.toContain('"n":2');
    expect(text).toMatch(/no record of ch1\/2\/default\/reduce\/.*: rank 0 has not made it/);
  }, 60_000);

  /** NCCL has no averages by PAT. */
  const refusedCall =
    '{"env":"ch1","n":2,"ap":"PAT-Simple","coll":"reduceScatter","dt":"f32","op":"avg","count":9,"cls":"norm","inplace":false,"offset":0,"h":""}';

  test.each([
    [`golden record ${path} --backend sim --launch`, /--launch: sim has all ranks in one process/],
    [
      `golden record ${path} --backend nccl`,
      /ranks on hosts of their own are processes: add --launch/,
    ],
    [`golden record ${path} --backend sim --streams 2`, /--streams goes with --launch/],
    [`golden check ${path} --launch`, /--launch does not belong to check/],
  ])("%s is refused", async (line, why) => {
    const { status, err } = await cli(line);
    expect(status).toBe(2);
    expect(err).toMatch(why);
  });
});

describe("graphs of NCCL in the first line", () => {
  const call = (n: number, ap: string, coll: string, count: number): string =>
    `{"env":"plain","n":${n},"ap":"${ap}","coll":"${coll}","dt":"f32","op":"sum","count":${count},"cls":"norm","inplace":false,"offset":0,"h":""}`;
  const headOf = (topology: unknown): string =>
    JSON.stringify({ golden: 1, library: "nccl-2.28.9", topology });
  /** GPU 3 has the second place in the ring. */
  const node = graphText(
    { id: 0, pattern: 4, channels: [[0, 3, 1, 2]] },
    { id: 1, pattern: 1, channels: [[0, 3, 1, 2]] },
  );
  const nodeCalls = [call(4, "default", "allReduce", 700), call(4, "Ring-Simple", "allReduce", 99)];

  /** NCCL, as far as it takes graphs from the file that its variable names. */
  const reader: BackendTable = {
    nccl: ({ plan }) => {
      const xml = readFileSync(process.env["NCCL_GRAPH_FILE"] as string, "utf8");
      return sim({ like: "nccl-2.28", topology: { xml }, ...(plan && { plan }) });
    },
  };
  const forNccl = { backends: { ...backends, ...reader } };

  test("are what NCCL reads", async () => {
    const path = file("node.jsonl", [headOf({ xml: node }), ...nodeCalls]);
    const { status, out } = await cli(`golden record ${path} --backend nccl`, forNccl);
    expect(status).toBe(0);
    expect(process.env).not.toHaveProperty("NCCL_GRAPH_FILE");
    const bare = (text: string): string => text.replaceAll(/,"plan":\{.*?\}/g, "");
    expect(out).toBe(bare((await cli(`golden record ${path} --backend sim`)).out));
  });

  test("name the NCCL that is installed", async () => {
    const path = "../../../src/backends/nccl/discovery/examine.ts";
    vi.doMock(path, () => ({ examine: async () => ({ versions: { nccl: "2.28.3" } }) }));
    const plain: BackendTable = { nccl: ({ plan }) => sim({ like: "nccl-2.28", plan }) };
    const { status, out } = await cli(
      `golden record ${file("old.jsonl", nodeCalls)} --backend nccl`,
      {
        backends: { ...backends, ...plain },
      },
    );
    vi.doUnmock(path);
    expect(status).toBe(0);
    expect(JSON.parse(out.split("\n")[0] as string)).toMatchObject({ library: "nccl-2.28.3" });
    const { out: checked } = await cli(`golden check ${file("named.jsonl", [out])}`);
    expect(checked).toContain("calls of nccl-2.28.3 on h200x8");
  });

  test("are those of NCCL_GRAPH_FILE, where it is set", async () => {
    const graph = file("node.xml", [node]);
    const path = file("plain.jsonl", nodeCalls);
    vi.stubEnv("NCCL_GRAPH_FILE", graph);
    const recorded = await cli(`golden record ${path} --backend nccl`, forNccl);
    const twice = file("twice.jsonl", [headOf({ xml: node }), ...nodeCalls]);
    const both = await cli(`golden record ${twice} --backend nccl`, forNccl);
    const over = await cli(`golden record ${path} --backend nccl --out ${graph}`, forNccl);
    vi.stubEnv("NCCL_GRAPH_FILE", file("broken.xml", ["<graphs"]));
    const broken = await cli(`golden record ${path} --backend nccl`, forNccl);
    vi.unstubAllEnvs();
    expect(recorded.status).toBe(0);
    expect(JSON.parse(recorded.out.split("\n")[0] as string)).toMatchObject({
      topology: { xml: `${node}\n` },
    });
    expect((await cli(`golden check ${file("kept.jsonl", [recorded.out])}`)).status).toBe(0);
    expect(both).toMatchObject({ status: 2 });
    expect(both.err).toContain("the file's machine has graphs, unset NCCL_GRAPH_FILE");
    expect(over).toMatchObject({ status: 2, out: "" });
    expect(over.err).toContain(`--out ${graph}: is the same file as NCCL_GRAPH_FILE; name another`);
    expect(readFileSync(graph, "utf8")).toBe(`${node}\n`);
    expect(broken.status).toBe(2);
    expect(broken.err).toContain('broken.xml: line 1: found "<graphs"');
  });

  test("are those of a rank's node, without the ranks of GPUs", async () => {
    const texts = [0, 1].map((each) =>
      joinedText([[0, 1]], [[0, 1]], 1, { speedinter: 20 + each }).replaceAll(
        /gpu dev="(\w+)"/g,
        (dev, number) => `${dev} rank="${2 * each + Number(number)}"`,
      ),
    );
    const head = { library: "nccl-2.28.9", topology: { xml: texts } };
    expect(hostsOf(head, 4)).toBe(2);
    for (const rank of [1, 2]) {
      for (const [name, value] of Object.entries({
        RANK: rank,
        SIZE: 4,
        LOCAL_RANK: rank % 2,
        LOCAL_SIZE: 2,
        JOB_ID: "x",
      }))
        vi.stubEnv(`TWINCCL_${name}`, String(value));
      const seen = await underGraphs(head, async () =>
        readFileSync(process.env["NCCL_GRAPH_FILE"] as string, "utf8"),
      );
      vi.unstubAllEnvs();
      expect(seen).toBe(joinedText([[0, 1]], [[0, 1]], 1, { speedinter: rank === 1 ? 20 : 21 }));
    }
  });

  test("of nodes of different sizes, and other numbers of ranks, are refused", async () => {
    const two = [
      joinedText([[0]], [[0]], 3, { typeintra: "LOC" }),
      joinedText([[0, 1]], [[0, 1]], 1),
    ];
    const path = file("sizes.jsonl", [headOf({ xml: two }), call(3, "default", "allReduce", 9)]);
    const sizes = await cli(`golden record ${path} --backend tcp --launch`);
    expect(sizes).toMatchObject({ status: 2, out: "" });
    expect(sizes.err).toContain("hosts of 1, 2 ranks, needs equally many on each imitated host");
    const four = file("four.jsonl", [headOf({ xml: node }), call(3, "default", "allReduce", 9)]);
    const count = await cli(`golden record ${four} --backend tcp --launch`);
    expect(count.status).toBe(2);
    expect(count.err).toContain("found 3 ranks, its rings and trees are those of 4 GPUs");
  });
});
