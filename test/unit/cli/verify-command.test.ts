import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { specifications } from "twinccl";
import { catalogue } from "twinccl/algorithms";
import { measuredCollectives } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { afterAll, describe, expect, test } from "vitest";
import { backends } from "../../../src/cli/backends.ts";
import { catalogueRows, programsLine, verifyPrograms } from "../../../src/cli/verify/programs.ts";
import { longTest } from "../../support/long-test.ts";
import { isAll } from "../../support/seed.ts";
import { corrupting } from "../bench/corrupting-backend.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-verify-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** A second backend that has one wrong bit on rank 1. */
const withBroken = { backends: { ...backends, broken: () => corrupting(sim(), 1) } };

const quick = "--dtype float32,int8 --op sum,max";

/** The figures of each collective: results, results on arbitrary bits, elements. */
function figures(out: string): Record<string, number[]> {
  const lines = [...out.matchAll(/^ +(\w+) +(\d+) +(\d+) +(\d+)/gm)];
  return Object.fromEntries(lines.map(([, name, ...numbers]) => [name, numbers.map(Number)]));
}

describe("the sweep", () => {
  longTest(
    "covers every measured collective, on arbitrary bits where the plan is the same",
    async () => {
      const { status, out, err } = await cli(
        `verify --against sim:seed=7 ${quick} --ranks 3 --seed 5`,
      );
      expect({ status, err }).toEqual({ status: 0, err: "" });
      expect(out).toMatch(/^# sim against sim:seed=7, 1 to 3 ranks, seed 5\n/);
      const found = figures(out);
      expect(Object.keys(found)).toEqual(measuredCollectives.map(({ collective }) => collective));
      for (const [results = 0, onBits, elements = 0] of Object.values(found)) {
        expect(results).toBeGreaterThan(0);
        expect(onBits).toBe(results);
        expect(elements).toBeGreaterThanOrEqual(0);
      }
      const all = Object.values(found).reduce((sum, [results = 0]) => sum + results, 0);
      expect(out.endsWith(`\nverify: ${all} of ${all} identical\n`)).toBe(true);
    },
  );

  test("all dtypes and operators, of one collective, at counts that were named", async () => {
    const line = "verify --against sim:seed=1 --collective all-reduce --ranks 2 --counts 0,33";
    const { status, out } = await cli(line);
    expect(status).toBe(0);
    // Per rank 12 dtypes, 5 operators, in place and not; nothing is compared of the empty calls.
    expect(figures(out)).toEqual({ allReduce: [3 * 120, 3 * 120, 3 * 120 * 33] });
  });

  longTest(
    "every algorithm of the catalogue agrees with the default on exact numbers",
    async () => {
      for (const [collective, algorithms] of Object.entries(catalogue)) {
        for (const name of Object.keys(algorithms).slice(1)) {
          const line = `verify --against sim:${collective}=${name} --collective ${collective}`;
          const { status, out } = await cli(`${line} ${quick} --ranks ${isAll ? 5 : 3}`);
          expect({ name, status, out }).toMatchObject({ name, status: 0 });
          const [results = 0, onBits] = figures(out)[collective] ?? [];
          expect(results).toBeGreaterThan(0);
          const { reduces } = specifications[collective as keyof typeof specifications];
          expect(onBits).toBe(reduces ? 0 : results);
        }
      }
    },
  );

  test("prints its head before any call, and a row as soon as it is known", async () => {
    const printed: string[] = [];
    const terminal = {
      terminal: true,
      out: (text: string) => void printed.push(text.trim().split(/\s/, 1)[0] as string),
      err: (text: string) => {
        const progress = text.split("\x1b[K")[1];
        if (progress !== "") printed.push(progress as string);
      },
    };
    const line = "verify --against sim:seed=1 --dtype int8 --op sum --counts 1 --ranks";
    await cli(`${line} 1`, terminal);
    const names = measuredCollectives.map(({ collective }) => collective);
    const rowsOn = (ranks: number) =>
      names.flatMap((name) => [`${name} on ${ranks} of ${ranks} ranks`, name]);
    expect(printed).toEqual(["#", "#", ...rowsOn(1), "verify:"]);
    printed.length = 0;
    await cli(`${line} 2`, terminal);
    const onOne = names.map((name) => `${name} on 1 of 2 ranks`);
    // The second write, by which a closed output is noticed, comes long before the rows.
    expect(printed).toEqual(["#", ...onOne, "#", ...rowsOn(2), "verify:"]);
  });

  test("names the first element and rank that differ, with both sides' bits", async () => {
    const one = "--collective allReduce --ranks 2 --dtype int8 --op sum --counts 5";
    const { status, out } = await cli(`verify --against broken ${one}`, withBroken);
    expect(status).toBe(1);
    expect(out).toMatch(
      /^# {3}first: allReduce int8 sum, 2 ranks, count 5, out of place, arbitrary bits: rank 1, element 4 of 5: 0x([0-9a-f]{2}) on sim, 0x(?!\1)[0-9a-f]{2} on broken; chunk 0, the plan folds r1, r0; found is the fold of no order of the ranks that was tried: parts at hop 0$/m,
    );
    expect(out).toContain("2 differ\n");
    expect(out.endsWith("verify: 4 of 6 identical\n")).toBe(true);
  });

  longTest("finds the wrong bit of every collective that the backend spoils", async () => {
    const { out } = await cli(`verify --against broken ${quick} --ranks 2`, withBroken);
    const spoiled = [...out.matchAll(/first: (\w+) /g)].map(([, name]) => name);
    const able = measuredCollectives.filter(({ moves, collective }) => {
      return moves && collective !== "sendRecv";
    });
    expect(spoiled).toEqual(able.map(({ collective }) => collective));
  });

  test("counts what a backend does not support, and shows no result without a comparison", async () => {
    const lacking = {
      ...sim(),
      open: async (request: Parameters<ReturnType<typeof sim>["open"]>[0]) => {
        const session = await sim().open(request);
        session.refusal = ({ collective }) => (collective === "gather" ? "not here" : undefined);
        return session;
      },
    };
    const context = { backends: { ...backends, lacking: () => lacking } };
    const line = "verify --against lacking --ranks 2 --dtype int8 --counts 4";
    const { status, out } = await cli(`${line} --collective gather`, context);
    expect(status).toBe(1);
    expect(out).toContain("#   left out: 4 calls that one of the backends does not do");
    expect(out).toContain("verify: 0 of 0 identical");
  });

  test("shows progress on terminals only", async () => {
    const line = "verify --against sim --ranks 1 --collective barrier";
    expect((await cli(line)).err).toBe("");
    const { err } = await cli(line, { terminal: true });
    expect(err).toContain("barrier on 1 of 1 ranks");
    expect(err.endsWith("\r\x1b[K")).toBe(true);
  });
});

class Kept {}

describe("a file", () => {
  function program(name: string, body: string): string {
    const path = join(folder, `${name}.mjs`);
    writeFileSync(path, `export default async (comm) => {${body}};\n`);
    return path;
  }

  test("is run on both, and its results are compared by rank", async () => {
    const body = `const send = comm.alloc("float32", 3).fill(comm.rank);
      await comm.allReduce({ send, op: "sum" });
      return { send, list: [1, comm.rank, NaN, 5n], none: undefined, bits: new Uint16Array([7]) };`;
    const line = `verify ${program("same", body)} --against sim:seed=3 --ranks 3`;
    expect(await cli(line)).toEqual({
      status: 0,
      out: "rank 0: identical\nrank 1: identical\nrank 2: identical\nverify: 3 of 3 identical\n",
      err: "",
    });
  });

  test("differs in an element", async () => {
    const body = `const send = comm.alloc("float32", 3).fill(1);
      await comm.allReduce({ send, op: "sum" });
      return { loss: [0, send] };`;
    const line = `verify ${program("bits", body)} --against broken -n 2`;
    const { status, out } = await cli(line, withBroken);
    expect(status).toBe(1);
    expect(out).toBe(
      "rank 0: identical\nrank 1: its result.loss[1].contents: element 2 of 3: 0x40000000 on sim, 0x41000000 on broken\nverify: 1 of 2 identical\n",
    );
  });

  test.each([
    ["a value", "{ a: { n } }", "its result.a.n: 0 on sim, 1 on sim:seed=1"],
    ["a length", "new Uint8Array(n + 1)", "element 1 of 2: nothing on sim, 0x00 on sim:seed=1"],
    ["a class", "n ? new Int8Array(1) : new Uint8Array(1)", "its result: Uint8Array(1) [ 0 ] on"],
    ["a key", "n ? { b: 1 } : {}", "its result.b: undefined on sim, 1 on sim:seed=1"],
    ["a shape", "n ? [1] : { 0: 1 }", "its result: { '0': 1 } on sim, [ 1 ] on sim:seed=1"],
    ["a zero", "n ? -0 : 0", "its result: 0 on sim, -0 on sim:seed=1"],
  ])("differs in %s", async (name, result, message) => {
    const body = `const n = globalThis.runs++; return ${result};`;
    Object.assign(globalThis, { runs: 0 });
    const path = program(name.replace(" ", "-"), body);
    const { status, out } = await cli(`verify ${path} --against sim:seed=1 -n 1`);
    expect(status).toBe(1);
    expect(out).toContain(message);
  });

  test.each([
    ["a buffer in a map", 'new Map([["x", comm.alloc("int32", 1).fill(n)]])'],
    ["a buffer in a set", 'new Set([comm.alloc("int32", 1).fill(n)])'],
    ["a buffer of an instance", 'new (class { b = comm.alloc("int32", 1).fill(n); })()'],
    ["a buffer of a nested promise", '[Promise.resolve(comm.alloc("int32", 1).fill(n))]'],
    ["the second place of one object", "((x) => (n ? [{ v: 0 }, { v: 1 }] : [x, x]))({ v: 0 })"],
    ["memory that both runs write", "(kept.bytes.fill(n), kept.bytes.buffer)"],
    ["a map that both runs write", "kept.map.set(0, n)"],
    ["an instance that both runs write", "Object.assign(kept.instance, { n })"],
  ])("differs in %s", async (name, result) => {
    const body = `const { kept } = globalThis; const n = kept.runs++; return ${result};`;
    const kept = { runs: 0, bytes: new Uint8Array(1), map: new Map(), instance: new Kept() };
    Object.assign(globalThis, { kept });
    const path = program(name.replaceAll(" ", "-"), body);
    const sides = "--backend sim:executor=cpu --against sim:executor=cpu";
    const { status, out } = await cli(`verify ${path} ${sides} -n 1`);
    expect({ status, out }).toMatchObject({ status: 1, out: expect.stringContaining(": 0 of 1") });
  });

  test("that fails says on which backend", async () => {
    const path = program("stuck", "if (comm.rank !== 1) await comm.barrier();");
    const { status, out, err } = await cli(`verify ${path} --against sim:seed=1 -n 2`);
    expect({ status, out }).toEqual({ status: 1, out: "" });
    expect(err).toMatch(/^twinccl verify: on sim:\ntwinccl verify: rank 0 of 2 failed/);
  });

  test("may return values that refer to themselves", async () => {
    const path = program("ring", "const a = { list: [comm.rank] }; a.self = a; return a;");
    const { out } = await cli(`verify ${path} --against sim:seed=1 -n 2`);
    expect(out).toContain("verify: 2 of 2 identical");
  });
});

describe("as JSON", () => {
  test("programs are listed by row, with the judged and the sound ones", async () => {
    const { status, out } = await cli("verify --programs --ranks 3 --collective gather --json");
    expect(status).toBe(0);
    expect(JSON.parse(out)).toEqual({
      most_ranks: 3,
      rows: [
        {
          ...{ collective: "gather", algorithm: "direct", programs: 5, sound: 5, steps: 2 },
          ...{ credits: catalogue.gather.direct.credits(3), seconds: expect.any(Number) },
          problems: [],
        },
      ],
      ...{ judged: 5, sound: 5 },
    });
  });

  test("a sweep that differs names the first difference", async () => {
    const some = "--collective all-reduce --dtype int8 --op sum --ranks 3";
    const { status, out } = await cli(`verify --against broken ${some} --json`, withBroken);
    expect(status).toBe(1);
    const document = JSON.parse(out);
    const [row] = document.rows;
    expect(document).toEqual({
      ...{ backend: "sim", against: "broken", most_ranks: 3, seed: 0, rows: [row] },
      ...{ judged: row.results, identical: row.identical },
    });
    expect(row).toMatchObject({ collective: "allReduce", left_out: 0 });
    expect(row.identical).toBeLessThan(row.results);
    expect(row.first_difference).toMatch(/rank 1/);
  });

  test("a file is listed rank by rank", async () => {
    const file = join(folder, "program.mjs");
    writeFileSync(file, "export default async (comm) => comm.rank;\n");
    const { status, out } = await cli(`verify ${file} --against sim:seed=3 --ranks 2 --json`);
    expect(status).toBe(0);
    expect(JSON.parse(out)).toEqual({
      ...{ file, backend: "sim", against: "sim:seed=3", ranks: 2 },
      ...{ rows: [{ rank: 0 }, { rank: 1 }], judged: 2, identical: 2 },
    });
  });
});

describe("programs", () => {
  test("every algorithm is a line of the table", async () => {
    const { status, out } = await cli("verify --programs --ranks 9");
    expect(status).toBe(0);
    const lines = out.split("\n").filter((line) => line.startsWith("  "));
    expect(lines.map((line) => line.trim().split(/\s+/).slice(0, 2))).toEqual(
      catalogueRows().map(({ collective, algorithm }) => [collective, algorithm.name]),
    );
    expect(out).toMatch(/^ {2}allReduce +ring +9 +9 +16 +1 +\d+\.\d\d$/m);
    // Rooted ones from the first and from the last rank; of one rank these are the same.
    expect(out).toMatch(/^ {2}broadcast +binomial +17 +17 +4 +0 /m);
    expect(out).toMatch(/\nverify: (\d+) of \1 sound\n$/);
  });

  test("a problem is reported, with its rank count", () => {
    const algorithm = { ...catalogue.allReduce.ring, credits: () => 0 };
    const report = verifyPrograms({ collective: "allReduce", algorithm }, 3);
    expect(report).toMatchObject({ programs: 3, sound: 1 });
    const text = programsLine(report);
    expect(text).toContain(
      "\n#   allReduce ring on 2 ranks: deadlock: with the declared 0 credits",
    );
    expect(text).toContain("\n#   allReduce ring on 3 ranks: ");
  });

  test("only the named collective", async () => {
    const { out } = await cli("verify --programs --ranks 2 --collective gather");
    expect(out).toContain("verify: 3 of 3 sound");
  });

  test("only the named algorithm, or one of the user's own", async () => {
    const some = "verify --programs --ranks 4 --collective all-reduce";
    const chain = await cli(`${some} --algorithm chain`);
    expect(chain.out).toMatch(/^ {2}allReduce +chain +4 +4 +12 +0 .*\nverify: 4 of 4 sound\n/m);
    const line = await cli(`${some} --algorithm examples/line.mjs`);
    expect(line).toMatchObject({ status: 0, err: "" });
    expect(line.out).toMatch(/^# the verifier's verdict on every program of .*line\.mjs, 1 to 4/);
    expect(line.out).toMatch(/^ {2}allReduce +line +4 +4 +6 +0 .*\nverify: 4 of 4 sound\n/m);
  });

  test("an unsound one is reported by ranks, also where it throws", async () => {
    const path = join(folder, "thrower.mjs");
    const { href } = new URL("../../../examples/line.mjs", import.meta.url);
    const write = `(program) => {
      if (program.ranks === 2) throw new Error("two is too few");
      if (program.ranks < 4) line.write(program);
    }`;
    writeFileSync(
      path,
      `import line from "${href}";\nexport default { ...line, write: ${write} };`,
    );
    const own = `verify --programs --ranks 4 --collective all-reduce --algorithm ${path}`;
    const { status, out } = await cli(own);
    expect(status).toBe(1);
    expect(out).toContain("\n#   allReduce line on 2 ranks: cannot be written: two is too few\n");
    expect(out).toContain("\n#   allReduce line on 4 ranks: contribution: ");
    expect(out).toContain("\nverify: 2 of 4 sound\n");
    const { rows } = JSON.parse((await cli(`${own} --json`)).out);
    expect(rows).toMatchObject([{ algorithm: "line", programs: 4, sound: 2 }]);
  });
});

describe("tcp, a process for each rank", () => {
  const quickly = "--ranks 2 --dtype float32 --op sum --counts 0,33";

  test("has the bits of the simulation", async () => {
    const { status, out, err } = await cli(`verify --backend tcp --against sim ${quickly} --json`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    const { rows, judged, identical } = JSON.parse(out);
    expect(rows).toHaveLength(measuredCollectives.length);
    for (const row of rows) expect(row).toMatchObject({ on_bits: row.results, left_out: 0 });
    expect(judged).toBeGreaterThan(50);
    expect(identical).toBe(judged);
  });

  test("a difference is reported", async () => {
    const sides = `--backend broken --against tcp ${quickly} --collective all-reduce`;
    const { status, out } = await cli(`verify ${sides}`, withBroken);
    expect(status).toBe(1);
    expect(out).toMatch(/first: allReduce float32 sum, .*: rank 1, element \d+ of 33: /);
  });

  test("compares the results of a file, with buffers, big integers and instances", async () => {
    const path = join(folder, "processes.mjs");
    writeFileSync(
      path,
      `export default async (comm) => {
         const send = comm.alloc("bfloat16", 5).fill(1 / (comm.rank + 3));
         await comm.allReduce({ send, op: "avg" });
         class Held { rank = comm.rank }
         return { send, big: 5n, all: new Map([[comm.rank, [new Int8Array(2), new Held()]]]) };
       };`,
    );
    const { status, out } = await cli(`verify ${path} --backend tcp --against sim --ranks 2`);
    expect({ status, out }).toEqual({
      status: 0,
      out: "rank 0: identical\nrank 1: identical\nverify: 2 of 2 identical\n",
    });
  });
});

test.each([
  ["--programs --counts 3", "--counts does not go with --programs"],
  ["--programs --algorithm ring", "--algorithm: name its --collective"],
  ["--against sim --algorithm ring", "--algorithm goes with --programs"],
  ["program.mjs --against sim --algorithm ring", "--algorithm does not go with FILE"],
  ["--programs --collective sendRecv --algorithm x", "--algorithm: sendRecv has none to choose"],
  ["--programs --collective sendRecv", "--collective: sendRecv has no program in the catalogue"],
  ["--programs --against sim", "--against does not go with --programs"],
  [
    "--backend tcp --against tcp --executor cpu -n 1 --collective barrier",
    "--executor: needs sim as --backend or --against",
  ],
  ["program.mjs --against sim --counts 4", "--counts does not go with FILE"],
  ["program.mjs --against sim --collective gather", "--collective does not go with FILE"],
  ["--against sim:NCCL_PROTO=LL,NCCL_PROTO=Simple", "--against: NCCL_PROTO is set twice"],
  [
    "--against sim:like=nccl-2.28,protocol=LL,NCCL_PROTO=Simple",
    "plan.protocol: found it beside a variable of NCCL",
  ],
])("%s: every option is used or refused", async (line, message) => {
  const { status, err } = await cli(`verify ${line}`);
  expect(status).toBe(2);
  expect(err).toContain(message);
});
