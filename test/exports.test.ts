/**
 * The names that the package promises. A changed name shows up as a changed line in
 * exports.snapshot.json; `npm test -- -u` accepts it.
 */

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { beforeAll, describe, expect, test } from "vitest";

const root = new URL("../", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", root), "utf8"));
const entries = Object.keys(manifest.exports)
  .filter((key) => key !== "./package.json")
  .map((key) => ({
    name: key.replace(/^\./, manifest.name),
    source: manifest.exports[key].default.replace(/^\.\/dist/, "src").replace(/\.js$/, ".ts"),
  }));

/** Entries that also run where there is no Node. */
const NEUTRAL = [
  "twinccl",
  "twinccl/backend",
  "twinccl/sim",
  "twinccl/algorithms",
  "twinccl/parallel",
  "twinccl/parallel/models",
];

/** The names an entry's file exports; types are marked. */
function namesIn(path: string): string[] {
  const text = readFileSync(new URL(path, root), "utf8");
  const tree = ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true);
  return tree.statements.flatMap((statement) => {
    if (ts.isExportDeclaration(statement)) {
      const clause = statement.exportClause;
      if (clause === undefined || !ts.isNamedExports(clause)) return [`* of ${path}`];
      const all = statement.isTypeOnly;
      return clause.elements.map((each) =>
        all || each.isTypeOnly ? `type ${each.name.text}` : each.name.text,
      );
    }
    return declaredNames(statement);
  });
}

function declaredNames(statement: ts.Statement): string[] {
  const modifiers = ts.canHaveModifiers(statement) ? (ts.getModifiers(statement) ?? []) : [];
  if (!modifiers.some((each) => each.kind === ts.SyntaxKind.ExportKeyword)) return [];
  if (ts.isVariableStatement(statement)) {
    return statement.declarationList.declarations.map((each) => each.name.getText());
  }
  const name = (statement as ts.DeclarationStatement).name?.getText() ?? "default";
  const isType = ts.isInterfaceDeclaration(statement) || ts.isTypeAliasDeclaration(statement);
  return [isType ? `type ${name}` : name];
}

/** Runs an ES module from the root, where the package's own name resolves to dist. */
function run(program: string): { status: number | null; stdout: string; stderr: string } {
  return spawnSync(process.execPath, ["--input-type=module", "--eval", program], {
    cwd: fileURLToPath(root),
    encoding: "utf8",
    timeout: 60_000,
  });
}

/** Errors of imports, by name, while modules of Node and of other packages refuse to load. */
function importsAlone(names: readonly string[]): Readonly<Record<string, string>> {
  const hooks = `export async function resolve(specifier, context, next) {
    const found = await next(specifier, context);
    if (found.url.startsWith("node:") || found.url.includes("/node_modules/")) {
      throw new Error("not neutral: " + specifier + " from " + context.parentURL);
    }
    return found;
  }`;
  const { status, stdout, stderr } = run(`
    import { register } from "node:module";
    register("data:text/javascript," + encodeURIComponent(${JSON.stringify(hooks)}));
    const errors = {};
    for (const name of ${JSON.stringify(names)}) {
      await import(name).catch((error) => { errors[name] = error.message; });
    }
    console.log(JSON.stringify(errors));`);
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout);
}

test("the exported names of every entry equal the snapshot", async () => {
  const names = Object.fromEntries(
    entries.map(({ name, source }) => [name, namesIn(source).sort()]),
  );
  const text = `${JSON.stringify(names, null, 2)}\n`;
  await expect(text).toMatchFileSnapshot("./exports.snapshot.json");
});

describe("the built package", () => {
  beforeAll(() => {
    const { status } = spawnSync(process.execPath, ["tools/build.mjs", "--is-fresh"], {
      cwd: root,
    });
    if (status !== 0) throw new Error("dist is older than src: run `npm run build`");
  });

  test("has exactly the values that the sources of its entries export", () => {
    const names = entries.map(({ name }) => name);
    const { status, stdout, stderr } = run(`
      const values = {};
      for (const name of ${JSON.stringify(names)}) values[name] = Object.keys(await import(name)).sort();
      console.log(JSON.stringify(values));`);
    expect(status, stderr).toBe(0);
    const expected = entries.map(({ name, source }) => [
      name,
      namesIn(source)
        .filter((each) => !each.startsWith("type "))
        .sort(),
    ]);
    expect(JSON.parse(stdout)).toEqual(Object.fromEntries(expected));
  });

  test("loads neither Node nor any package for its neutral entries", () => {
    expect(importsAlone(NEUTRAL)).toEqual({});
  });

  test("is judged by a hook that refuses modules", () => {
    expect(importsAlone(["node:fs", "fast-check"])).toEqual({
      "node:fs": expect.stringContaining("not neutral: node:fs"),
      "fast-check": expect.stringContaining("not neutral: fast-check"),
    });
  });
});
