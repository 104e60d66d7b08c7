/**
 * The rules of the code, tested. The layer law is also in biome.json; this is the second proof, which
 * resolves paths and cannot be lost by a misplaced override. Every checker is tried on bad input
 * too, because a checker that never fails proves nothing.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { describe, expect, test } from "vitest";
import {
  crumbs,
  deadFiles,
  type Exception,
  importCycles,
  importsOf,
  impureCalls,
  launcherVariables,
  layerViolations,
  nodeViolations,
  oracleViolations,
  personified,
  questions,
  type SourceFile,
  silentSkips,
  tooLong,
  unfinished,
  wrongTitles,
} from "./support/tidy.ts";

/** The one list of exceptions. Each names a rule, a place and a reason. */
const EXCEPTIONS: readonly Exception[] = [
  {
    path: "src/api/",
    rule: "timer",
    reason: "the stall detector reports, after a real delay, ranks that a timer or I/O may wake",
  },
  {
    path: "src/api/ledger/turns.ts",
    rule: "clock",
    reason: "the event loop gets a turn after some real time; no order and no result depends on it",
  },
  {
    path: "src/api/ledger/deadlines.ts",
    rule: "clock",
    reason: "deadlines of sessions without a virtual clock pass in real time",
  },
  {
    path: "src/api/ledger/deadlock/monitor.ts",
    rule: "clock",
    reason: "a stall is reported after a real delay; no order and no result depends on it",
  },
  {
    path: "src/backends/sim/executors/webgpu/adapter.ts",
    rule: "timer",
    reason: "the thread sleeps while an adapter in software works; no result depends on it",
  },
  {
    path: "src/api/collectives/",
    rule: "crumb",
    reason: "a call is a file",
  },
  {
    path: "src/algorithms/all-gather/",
    rule: "crumb",
    reason: "an algorithm is a file",
  },
  {
    path: "src/algorithms/all-to-all/",
    rule: "crumb",
    reason: "an algorithm is a file",
  },
  {
    path: "src/algorithms/barrier/",
    rule: "crumb",
    reason: "an algorithm is a file",
  },
  {
    path: "src/algorithms/broadcast/",
    rule: "crumb",
    reason: "an algorithm is a file",
  },
  {
    path: "src/algorithms/gather/",
    rule: "crumb",
    reason: "an algorithm is a file",
  },
  {
    path: "src/algorithms/reduce-scatter/",
    rule: "crumb",
    reason: "an algorithm is a file",
  },
  {
    path: "src/algorithms/scatter/",
    rule: "crumb",
    reason: "an algorithm is a file",
  },
  {
    path: "src/backends/nccl/discovery/bus-order.ts",
    rule: "crumb",
    reason: "a fact about NCCL, stated and tested by itself",
  },
];

const root = new URL("../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

function list(folder: string, ending: string): string[] {
  const url = new URL(folder, root);
  if (!existsSync(url)) return [];
  return readdirSync(fileURLToPath(url), { recursive: true, encoding: "utf8" })
    .map((path) => `${folder}${path.replaceAll("\\", "/")}`)
    .filter((path) => path.endsWith(ending))
    .sort();
}

const manifest = JSON.parse(read("package.json"));
const entryKeys = Object.keys(manifest.exports).filter((key) => key !== "./package.json");
const toSource = (path: string): string =>
  path.replace(/^(\.\/)?dist\//, "src/").replace(/\.js$/, ".ts");
const entries = entryKeys.map((key) => toSource(manifest.exports[key].default));
const bins = Object.values<string>(manifest.bin).map(toSource);

const src: SourceFile[] = list("src/", ".ts").map((path) => ({ path, text: read(path) }));
const file = (path: string, text: string): SourceFile => ({ path, text });

describe("src", () => {
  test("source files are found", () => {
    expect(src.length).toBeGreaterThan(0);
  });
  test("keeps the layer law", () => {
    expect(src.flatMap(layerViolations)).toEqual([]);
  });
  test("has the contract of backends behind its entry", () => {
    const contract = ["backend", "buffer", "memory"].map((name) => `src/api/${name}.ts`);
    const reached = src
      .filter(({ path }) => !path.startsWith("src/api/"))
      .flatMap((each) =>
        importsOf(each)
          .map((name) => posix.join(posix.dirname(each.path), name))
          .filter((target) => contract.includes(target))
          .map((target) => `${each.path} imports ${target}`),
      );
    expect(reached, "import src/api/backend-entry.ts or src/api/index.ts").toEqual([]);
  });
  test("has folders of the api that import one way", () => {
    const floors = ["ledger", "collectives", "member", "world"];
    const floorOf = (path: string): number =>
      floors.indexOf(/^src\/api\/(\w+)\//.exec(path)?.[1] ?? "");
    const upward = src
      .filter(({ path }) => path.startsWith("src/api/") && path !== "src/api/index.ts")
      .flatMap((each) =>
        importsOf(each)
          .map((name) => posix.join(posix.dirname(each.path), name))
          .filter((target) => floorOf(target) > floorOf(each.path))
          .map((target) => `${each.path} imports ${target}`),
      );
    expect(upward).toEqual([]);
  });
  test("has oracles that share no code with the library", () => {
    expect(src.flatMap(oracleViolations)).toEqual([]);
  });
  test("has a layer of jobs that names no GPU library", () => {
    const job = src.filter(({ path }) => path.startsWith("src/job/"));
    expect(job.length).toBeGreaterThan(10);
    const found = job.filter(({ text }) => /(?<!twi)nccl|cuda/i.test(text));
    expect(found.map(({ path }) => path)).toEqual([]);
  });
  test("needs Node only in cli, bench, jobs and nccl", () => {
    expect(src.flatMap((each) => nodeViolations(each, EXCEPTIONS))).toEqual([]);
  });
  test("reads the variables of launchers in one file", () => {
    expect(src.flatMap(launcherVariables)).toEqual([]);
  });
  test("has no clock, timer or randomness where results must be pure", () => {
    expect(src.flatMap((each) => impureCalls(each, EXCEPTIONS))).toEqual([]);
  });
  test("has files of at most 600 lines of code", () => {
    expect(src.flatMap((each) => tooLong(each))).toEqual([]);
  });
  test("merges a small file with its only importer", () => {
    expect(crumbs(src, EXCEPTIONS)).toEqual([]);
  });
  test("has no import cycle, of types or of values", () => {
    expect(importCycles(src)).toEqual([]);
  });
  test("has no dead file", () => {
    expect(deadFiles(src, [...entries, ...bins])).toEqual([]);
  });
  test("has comments without personification", () => {
    expect(personified(src)).toEqual([]);
    expect(src.flatMap(questions)).toEqual([]);
  });
  test("has no unfinished work", () => {
    expect(src.flatMap(unfinished)).toEqual([]);
  });
  test("needs each exception it is granted", () => {
    const used = EXCEPTIONS.filter(({ path, rule }) => {
      const others = EXCEPTIONS.filter((each) => each.path !== path || each.rule !== rule);
      const inside = src.filter((each) => each.path.startsWith(path));
      if (rule === "crumb") return crumbs(src, others).some((each) => each.startsWith(path));
      const check = rule === "node" ? nodeViolations : impureCalls;
      return inside.some((each) => check(each, others).length > 0);
    });
    expect(used).toEqual(EXCEPTIONS);
  });
});

describe("the folders beside src", () => {
  const others = ["test/", "tools/", "web/", "bench/", "examples/"]
    .flatMap((folder) => [...list(folder, ".ts"), ...list(folder, ".mjs")])
    // The bad examples of this file are strings.
    .filter((path) => path !== "test/architecture.test.ts")
    .map((path) => file(path, read(path)));
  test("have comments without personification", () => {
    expect(personified(others)).toEqual([]);
    expect(others.flatMap(questions)).toEqual([]);
  });
  test("have tests with titles that are statements", () => {
    expect(others.flatMap(wrongTitles)).toEqual([]);
  });
  test("have skipped tests with the reason in their titles", () => {
    expect(others.flatMap(silentSkips)).toEqual([]);
  });
});

describe("the page", () => {
  const pages = list("web/", ".ts")
    .filter((path) => path !== "web/vite.config.ts")
    .map((path) => file(path, read(path)));
  test("sees the package by its public entries and its layout of calls, and nothing else", () => {
    expect(pages.length).toBeGreaterThan(0);
    const layout = "src/api/collectives/call-layout.ts";
    const own = entryKeys.map((key) => key.replace(/^\./, manifest.name));
    const foreign = pages.flatMap((page) =>
      importsOf(page)
        .filter((name) => !own.includes(name))
        .filter((name) => {
          const path = posix.join(posix.dirname(page.path), name);
          return path !== layout && !path.startsWith("web/");
        })
        .map((name) => `${page.path}: ${name}`),
    );
    expect(foreign).toEqual([]);
  });
  test("has no import cycle, of types or of values", () => {
    expect(importCycles(pages)).toEqual([]);
  });
  test("is short files without unfinished work", () => {
    expect(pages.flatMap((each) => [...tooLong(each), ...unfinished(each)])).toEqual([]);
  });
});

/** Paths that a recipe of CONTRIBUTING.md names, of a kind. */
function recipePaths(added: string, kind: RegExp): string[] {
  const [, recipe = ""] = read("CONTRIBUTING.md").split(`## To add ${added}\n`);
  const steps = (recipe.split("\n## ")[0] ?? "").replace("<name>", "all-gatherv");
  const paths = [...steps.matchAll(/`([^`\n]*)`/g)].map(([, path = ""]) => path);
  return [...new Set(paths.filter((path) => kind.test(path)))];
}

describe("the project", () => {
  test("runs every test file", () => {
    const homes =
      /^test\/((unit|property|regression|seeds|conformance|golden|gpu|webgpu|mutation|programs|web)\/.*|[^/]*)\.test\.ts$/;
    const stray = list("test/", ".test.ts").filter((path) => !homes.test(path));
    expect(stray, "no project of vitest.config.ts includes these").toEqual([]);
  });
  test("lists the same entries in package.json, tsconfig.json, typedoc.json and knip.json", () => {
    const { config } = ts.parseConfigFileTextToJson("tsconfig.json", read("tsconfig.json"));
    const paths = entryKeys.map((key, at) => [
      key.replace(/^\./, manifest.name),
      [`./${entries[at]}`],
    ]);
    expect(config.compilerOptions.paths).toEqual(Object.fromEntries(paths));
    expect(JSON.parse(read("typedoc.json")).entryPoints.sort()).toEqual([...entries].sort());
    expect(JSON.parse(read("knip.json")).entry).toEqual(
      expect.arrayContaining([...entries, ...bins].map((path) => `${path}!`)),
    );
  });
  test("names a collective only in the files of the recipe", () => {
    const listed = recipePaths("a collective", /^src\//);
    // The files that compute calls for all of them name none.
    const computing = /(call-layout|nccl-steps)\.ts$/;
    const expected = listed.filter((path) => !computing.test(path));
    // Calls through a communicator are uses, not definitions.
    const found = [...list("src/", ".ts"), ...list("web/", ".ts")].filter((path) =>
      /(?<!comm\.)\ballGatherv\b/.test(read(path)),
    );
    expect(found.sort()).toEqual(expected.sort());
  });
  test("names an operator, or branches by one, only in the files of the recipe", () => {
    const folders = ["src/", "web/", "assembly/", "test/support/"];
    const listed = recipePaths(
      "a reduction operator",
      /^(src|web|assembly|test\/support)\/.*\.ts$/,
    );
    const found = folders
      .flatMap((folder) => list(folder, ".ts"))
      .filter((path) => /\bprod\b|\b(op|kind|ops\[0\]) [!=]== "(min|max|avg)"/.test(read(path)));
    expect(found.sort()).toEqual(listed.sort());
  });
  test("has a lock file that names no registry", () => {
    expect(read("package-lock.json")).not.toMatch(/"resolved": "http/);
  });
});

describe("the checkers notice", () => {
  const layers: [string, string, string][] = [
    ["api -> algorithms", "src/api/x.ts", "../algorithms/index.ts"],
    ["api -> cli", "src/api/ledger/x.ts", "../../cli/main.ts"],
    ["api -> the core entry", "src/api/x.ts", "../index.ts"],
    ["algorithms -> backends", "src/algorithms/ring.ts", "../backends/sim/index.ts"],
    ["sim -> nccl", "src/backends/sim/index.ts", "../nccl/index.ts"],
    ["nccl -> sim", "src/backends/nccl/sys/x.ts", "../../sim/index.ts"],
    ["device -> calls", "src/backends/nccl/device/x.ts", "../calls/communicator.ts"],
    ["device -> the session", "src/backends/nccl/device/x.ts", "../session.ts"],
    ["a subfolder without a row", "src/backends/nccl/new/x.ts", "../result/nccl.ts"],
    ["a folder without a row", "src/new/x.ts", "../api/index.ts"],
    ["a backend without a row", "src/backends/new/x.ts", "../../api/index.ts"],
    ["a file of no folder", "src/index.ts", "./api/index.ts"],
    ["bench -> sim", "src/bench/x.ts", "../backends/sim/index.ts"],
    ["parallel -> algorithms", "src/parallel/x.ts", "../algorithms/index.ts"],
    ["testing -> sim", "src/testing/x.ts", "../backends/sim/index.ts"],
    ["cli -> test", "src/cli/main.ts", "../../test/support/tidy.ts"],
    ["koffi outside sys", "src/backends/nccl/index.ts", "koffi"],
    ["an undeclared package", "src/cli/main.ts", "chalk"],
    ["the package itself", "src/bench/index.ts", "twinccl"],
  ];
  test.each(layers)("a broken layer: %s", (_, path, specifier) => {
    expect(layerViolations(file(path, `import { a } from "${specifier}";`))).toHaveLength(1);
  });

  test("an oracle that imports values of the library", () => {
    const oracle = (text: string) => oracleViolations(file("src/testing/oracle/x.ts", text));
    expect(oracle('import { bytesOf } from "../../api/index.ts";')).toHaveLength(1);
    expect(oracle('import { type A, b } from "../program.ts";')).toHaveLength(1);
    expect(oracle('export { b } from "../program.ts";')).toHaveLength(1);
    expect(oracle('const b = await import("../program.ts");')).toHaveLength(1);
    expect(oracle('import type { A } from "../program.ts";')).toEqual([]);
    expect(oracle('import { b } from "./rounding.ts";')).toEqual([]);
  });

  test("a variable of a launcher outside of its file", () => {
    const at = (path: string, text: string) => launcherVariables(file(path, text));
    expect(at("src/job/x.ts", 'const size = env["WORLD_SIZE"];')).toHaveLength(1);
    expect(at("src/api/x.ts", "const id = env.SLURM_JOB_ID ?? env.OMPI_COMM;")).toHaveLength(2);
    expect(at("src/job/x.ts", 'const hint = "set TWINCCL_SECRET";')).toEqual([]);
    expect(at("src/cli/launch/x.ts", "const own = { TWINCCL_RANK: rank };")).toEqual([]);
    expect(at("src/api/world/launchers.ts", 'const name = "WORLD_SIZE";')).toEqual([]);
  });

  test("every way to import", () => {
    const text = `
      import { a } from "./a.ts"; import type { B } from "./b.ts"; import "./c.ts";
      export { d } from "./d.ts"; export * from "./e.ts";
      const f = await import("./f.ts"); let g: import("./g.ts").G;
      // import "./comment.ts"
      const text = 'import "./string.ts"';`;
    const names = importsOf(file("src/x.ts", text)).map((each) => each.slice(2, 3));
    expect(names.sort().join("")).toBe("abcdefg");
  });

  test("accepted imports", () => {
    const good = [
      file("src/backends/sim/executors/x.ts", 'import { r } from "../../../algorithms/nccl/r.ts";'),
      file("src/cli/main.ts", 'import { sim } from "../backends/sim/index.ts";'),
      file("src/backends/nccl/sys/x.ts", 'import koffi from "koffi";'),
    ];
    expect(good.flatMap(layerViolations)).toEqual([]);
  });

  test("Node APIs in code that also runs in browsers", () => {
    const text = 'import "node:fs";\nprocess.exit(1);\nlet t: NodeJS.Timeout;';
    expect(nodeViolations(file("src/backends/sim/x.ts", text), [])).toHaveLength(3);
    expect(nodeViolations(file("src/api/x.ts", text), [])).toHaveLength(3);
    expect(nodeViolations(file("src/cli/x.ts", text), [])).toEqual([]);
    expect(nodeViolations(file("src/api/x.ts", "globalThis.process?.pid;"), [])).toEqual([]);
  });

  test("clocks, timers and randomness", () => {
    const bad = [
      "Math.random();",
      "Date.now();",
      "globalThis.performance.now();",
      "const d = new Date();",
      "setTimeout(f, 1);",
      "const later = { run: setTimeout };",
      "globalThis.setInterval(f, 1);",
    ];
    for (const text of bad) {
      expect(impureCalls(file("src/algorithms/x.ts", text), EXCEPTIONS), text).toHaveLength(1);
      expect(impureCalls(file("src/cli/x.ts", text), EXCEPTIONS), text).toEqual([]);
    }
    const fine = 'clock.setTimeout(f); // Date.now()\nconst s = "Math.random()"; Math.max(1);';
    expect(impureCalls(file("src/backends/sim/x.ts", fine), EXCEPTIONS)).toEqual([]);
  });

  test("that api is exempt from the timer rule only", () => {
    expect(impureCalls(file("src/api/x.ts", "setTimeout(f, 1);"), EXCEPTIONS)).toEqual([]);
    expect(impureCalls(file("src/api/x.ts", "Date.now();"), EXCEPTIONS)).toHaveLength(1);
  });

  test("long files, except C tables", () => {
    const text = "x;\n".repeat(601);
    expect(tooLong(file("src/api/x.ts", text))).toHaveLength(1);
    expect(tooLong(file("src/api/x.ts", "x;\n// why\n\n".repeat(600)))).toEqual([]);
    expect(tooLong(file("src/backends/nccl/sys/x.ts", text))).toEqual([]);
  });

  test("dead and missing files", () => {
    const files = [
      file("src/index.ts", 'export { a } from "./a.ts";'),
      file("src/a.ts", 'import { gone } from "./gone.ts";'),
      file("src/dead.ts", 'import { a } from "./a.ts";'),
    ];
    expect(deadFiles(files, ["src/index.ts"])).toEqual([
      "src/gone.ts: does not exist, but an entry or import names it",
      "src/dead.ts: no entry reaches it",
    ]);
  });

  test("import cycles", () => {
    const files = [
      file("src/a.ts", 'import type { b } from "./b.ts";'),
      file("src/b.ts", 'export { c } from "./c/c.ts";'),
      file("src/c/c.ts", 'import "../a.ts"; import { d } from "./d.ts";'),
      file("src/c/d.ts", 'import "node:fs";'),
    ];
    expect(importCycles(files)).toEqual(["src/a.ts -> src/b.ts -> src/c/c.ts -> src/a.ts"]);
    expect(importCycles(files.slice(1))).toEqual([]);
  });

  test("small files with one importer", () => {
    const files = [
      file("src/api/a.ts", 'import { b } from "./b.ts";\nimport { c } from "./c.ts";'),
      file("src/api/b.ts", "x;"),
      file("src/api/c.ts", "x;\n".repeat(40)),
      file("src/api/index.ts", 'export { a } from "./a.ts";\nexport { d } from "./d.ts";'),
      file("src/api/d.ts", 'import { a } from "./a.ts";'),
    ];
    const b =
      "src/api/b.ts: 1 lines for one importer; move them there, or write why they stand alone";
    const d = b.replace("/b.ts", "/d.ts");
    expect(crumbs(files, [])).toEqual([b, d]);
    expect(crumbs(files, [{ path: "src/api/d", rule: "crumb", reason: "" }])).toEqual([b]);
  });

  test("personifications, by folder", () => {
    const words = "word ".repeat(999);
    const files = [
      file("src/api/x.ts", `// ${words}\nconst who = 1;\n/** Whoever is told. */`),
      file("src/backends/sim/x.ts", `// ${words} who`),
      file("src/backends/nccl/x.ts", "// who"),
      file("bench/gpu/x.mjs", "// nobody"),
    ];
    expect(personified(files)).toEqual([
      "src/api/: 2.0 personifications in 1,000 words of comments",
      "src/backends/nccl/: 1000.0 personifications in 1,000 words of comments",
      "bench/: 1000.0 personifications in 1,000 words of comments",
    ]);
  });

  test("docstrings that are questions", () => {
    const bad = ["/** What it is. */", "/**\n * Whether it is.\n */", "  /** How. */"];
    for (const text of bad) expect(questions(file("src/x.ts", text)), text).toHaveLength(1);
    expect(questions(file("src/x.ts", "/** It is. What it was. */\n// What it is."))).toEqual([]);
  });

  test("titles with persons, and titles that are questions or riddles", () => {
    const bad =
      'test("who is told", f); describe.each(rows)("what is left", f); test.skip(`asked`, f);';
    expect(wrongTitles(file("test/x.test.ts", bad))).toHaveLength(3);
    expect(wrongTitles(file("test/x.test.ts", 'test("gives who", f, "who");'))).toHaveLength(1);
    for (const title of ["is no chunk", "those that are none", "and goes on", "is given back"]) {
      expect(wrongTitles(file("test/x.test.ts", `test("${title}", f);`)), title).toHaveLength(1);
    }
    expect(wrongTitles(file("test/x.test.ts", 'test("is no longer open", f);'))).toEqual([]);
    expect(wrongTitles(file("test/x.test.ts", 'test("refuses it"); f("who");'))).toEqual([]);
  });

  test("skipped tests without a reason in their titles", () => {
    const bad = ['test.skipIf(isOld)("a", f);', 'test.runIf(a !== "")("a", f);'];
    for (const text of bad) expect(silentSkips(file("test/x.test.ts", text))).toHaveLength(1);
    const good = `test.skipIf(reason !== "").each(rows)(\`a\${reason}\`, f);`;
    expect(silentSkips(file("test/x.test.ts", good))).toEqual([]);
  });

  test("unfinished work", () => {
    // Spelled in two parts, so that a search for the word does not find this test.
    expect(unfinished(file("src/x.ts", `a;\n// ${"TO"}${"DO"}: b`))).toHaveLength(1);
  });
});
