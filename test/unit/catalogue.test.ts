/**
 * Adding an algorithm touches its file and one row of the catalogue: a count of the places that name one, and a trial
 * with a new row.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createWorld, type SpecifiedCollective } from "twinccl";
import {
  type Algorithm,
  type AlgorithmName,
  algorithmsOf,
  builtCollectives,
  catalogue,
  findAlgorithm,
} from "twinccl/algorithms";
import { sim } from "twinccl/sim";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, expectTypeOf, test } from "vitest";
import { catalogueRows } from "../../src/cli/verify/programs.ts";
import { cli } from "./cli/harness.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const table = "src/algorithms/catalogue.ts";

const files = readdirSync(`${root}src`, { recursive: true, encoding: "utf8" })
  .map((path) => `src/${path.replaceAll("\\", "/")}`)
  .filter((path) => path.endsWith(".ts"))
  .map((path) => {
    const text = readFileSync(root + path, "utf8");
    return { path, text, ...wordsOf(path, text) };
  });

/** Every identifier and every quoted text of a file; comments hold none. */
function wordsOf(path: string, text: string): { identifiers: string[]; quoted: string[] } {
  const identifiers: string[] = [];
  const quoted: string[] = [];
  const see = (node: ts.Node): void => {
    if (ts.isIdentifier(node)) identifiers.push(node.text);
    else if (ts.isStringLiteralLike(node)) quoted.push(node.text);
    ts.forEachChild(node, see);
  };
  see(ts.createSourceFile(path, text, ts.ScriptTarget.ES2022));
  return { identifiers, quoted };
}

interface Home {
  readonly path: string;
  /** The constant that holds the algorithm. */
  readonly constant: string;
  readonly name: string;
}

/** The file of every algorithm, by what it exports. */
const homes: Home[] = files.flatMap(({ path, text }) => {
  const constant = /^export const (\w+): Algorithm = \{\n {2}name: "([\w-]+)"/m.exec(text);
  return constant === null ? [] : [{ path, constant: constant[1]!, name: constant[2]! }];
});

/** Files outside of an algorithm's own, once for every place where its constant, or its name in quotes, stands. */
function mentions({ path, constant, name }: Home): { constants: string[]; names: string[] } {
  const others = files.filter((each) => each.path !== path);
  const places = (word: string, kind: "identifiers" | "quoted"): string[] =>
    others.flatMap((file) => file[kind].filter((each) => each === word).map(() => file.path));
  return { constants: places(constant, "identifiers"), names: places(name, "quoted") };
}

/** Collectives under which the catalogue has an algorithm. */
function rowsOf({ name, path }: Home): SpecifiedCollective[] {
  const folder = path.split("/").at(-2)!.replaceAll("-", "");
  return builtCollectives.filter(
    (collective) =>
      collective.toLowerCase().replace(/v$/, "") === folder && name in catalogue[collective],
  );
}

describe("the places that name an algorithm", () => {
  test("every algorithm of the catalogue has a file of its own", () => {
    const inCatalogue = new Set<Algorithm>(builtCollectives.flatMap((each) => algorithmsOf(each)));
    expect(homes).toHaveLength(inCatalogue.size);
    expect(homes.filter((home) => rowsOf(home).length === 0)).toEqual([]);
  });

  test.each(homes)("$constant: its file, an import, and a row a collective", (home) => {
    const { constants, names } = mentions(home);
    const rows = rowsOf(home);
    expect(constants).toEqual(new Array(1 + rows.length).fill(table));
    // A name of more than one word belongs to one home; "ring" is a word of NCCL's as well.
    if (home.name.includes("-")) expect(names).toEqual(rows.map(() => table));
  });

  test("recursive doubling, spelled out: one import and one row", () => {
    const lines = files.flatMap(({ path, text }) =>
      text.split("\n").filter((line) => {
        return path === table && /recursiveDoubling|recursive-doubling/.test(line);
      }),
    );
    expect(lines).toEqual([
      'import { recursiveDoublingAllReduce } from "./all-reduce/recursive-doubling.ts";',
      '    "recursive-doubling": recursiveDoublingAllReduce,',
    ]);
  });
});

describe("tables derived from the catalogue", () => {
  test("names are types", () => {
    expectTypeOf<AlgorithmName<"allReduce">>().toEqualTypeOf<
      "ring" | "chain" | "double-tree" | "halving-doubling" | "recursive-doubling" | "linear"
    >();
    expectTypeOf<AlgorithmName<"barrier">>().toEqualTypeOf<"dissemination">();
    sim({ algorithms: { allReduce: "recursive-doubling" } });
    // @ts-expect-error: no row has that name
    expect(() => sim({ algorithms: { allReduce: "recursive-tripling" } })).toThrow();
  });

  test("the docs page has a row and a picture of each", () => {
    const page = readFileSync(`${root}docs/algorithms.md`, "utf8");
    const sections = new Map(page.split(/^### /m).map((text) => [text.split("\n")[0], text]));
    for (const { collective, algorithm } of catalogueRows()) {
      const section = sections.get(collective) ?? "";
      expect(section).toContain(`\n| ${algorithm.name} | ${algorithm.summary} | `);
      const picture = /\]\((images\/\S+\.svg)\)/.exec(
        section.slice(section.indexOf(`![${collective} by ${algorithm.name} `)),
      )?.[1];
      expect(existsSync(`${root}docs/${picture}`), `${collective} ${algorithm.name}`).toBe(true);
    }
  });
});

describe("a row that is added", () => {
  const rows: Record<string, Algorithm> = catalogue.allReduce;
  const name = "trial";
  beforeAll(() => {
    rows[name] = { ...catalogue.allReduce["recursive-doubling"], name };
  });
  afterAll(() => {
    delete rows[name];
  });

  test("is found, and can be chosen on the simulation", async () => {
    expect(algorithmsOf("allReduce").map((each) => each.name)).toContain(name);
    expect(findAlgorithm("allReduce", name)?.name).toBe(name);
    const backend = sim({ algorithms: { allReduce: name as AlgorithmName<"allReduce"> } });
    const world = await createWorld({ backend, size: 5 });
    const sums = await world.run((comm) =>
      comm.allReduce({ send: Float64Array.of(comm.rank), op: "sum" }),
    );
    expect(sums.map(([sum]) => sum)).toEqual([10, 10, 10, 10, 10]);
    await world.close();
  });

  test("is verified, compared, explained, traced and measured", async () => {
    const small = "--ranks 3 --count 4 --algorithm trial";
    const outputs = await Promise.all([
      cli("verify --programs --ranks 5 --collective allReduce"),
      cli("verify --against sim:allReduce=trial --collective allReduce --ranks 3 --dtype int32"),
      cli(`explain allReduce ${small}`),
      cli(`trace allReduce ${small}`),
      cli("bench allReduce -g 3 -b 64 -e 64 -n 1 -w 0 --algorithm trial --csv"),
    ]);
    expect(outputs.map(({ status, err }) => [status, err])).toEqual(outputs.map(() => [0, ""]));
    for (const { out } of outputs.filter((_, at) => at !== 1)) expect(out).toContain(name);
    expect(outputs[1]?.out).toContain("sim against sim:allReduce=trial");
  });
});
