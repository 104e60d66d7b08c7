/** The installed package: its files lack nothing, and its types need nothing but the language. */

import { execFileSync, spawnSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type InputOptions, type OutputOptions, rolldown } from "rolldown";
import ts from "typescript";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compiler } from "./support/c-library.ts";
import { linksIn } from "./support/page-links.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const entries: readonly string[] = Object.keys(manifest.exports)
  .filter((key) => key !== "./package.json")
  .map((key) => key.replace(/^\./, manifest.name));

let folder = "";
let packed: readonly string[] = [];

beforeAll(() => {
  const { status } = spawnSync(process.execPath, ["tools/build.mjs", "--is-fresh"], { cwd: root });
  if (status !== 0) throw new Error("dist is older than src: run `npm run build`");
  const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const [tarball] = JSON.parse(execFileSync("npm", args, { cwd: root, encoding: "utf8" }));
  packed = tarball.files.map(({ path }: { path: string }) => path);
  folder = mkdtempSync(join(tmpdir(), "twinccl-package-"));
  writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }');
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules", manifest.name));
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the tarball", () => {
  const textOf = (path: string): string => readFileSync(join(root, path), "utf8");

  test("holds the build, the pages and nothing else", () => {
    const expected =
      /^(dist\/.+\.(js|d\.ts)|docs\/([\w-]+\/)?[\w-]+\.(md|svg|png)|native\/linux-(x64|arm64)\/helper\.so)$/;
    const others = packed.filter((path) => !expected.test(path));
    expect(others.sort()).toEqual([
      "ARCHITECTURE.md",
      "CHANGELOG.md",
      "CONTRIBUTING.md",
      "LICENSE",
      "README.md",
      "examples/line.mjs",
      "examples/training-step-after.mjs",
      "examples/training-step.mjs",
      "native/helper.c",
      "package.json",
    ]);
  });

  test("holds every build of the native helper, at least this machine's", () => {
    const builds = ["linux-x64", "linux-arm64"].map((machine) => `native/${machine}/helper.so`);
    const built = builds.filter((path) => existsSync(join(root, path)));
    expect(packed.filter((path) => path.endsWith(".so")).sort()).toEqual(built.sort());
    const isBuiltHere = "command" in compiler && process.platform === "linux";
    if (isBuiltHere) expect(built).toContain(`native/linux-${process.arch}/helper.so`);
  });

  test("holds every file that one of its pages links to", () => {
    const pages = packed.filter((path) => path.endsWith(".md"));
    const links = pages.flatMap((page) =>
      linksIn(page, textOf(page)).map((link) => `${page}: ${link}`),
    );
    expect(links).toContain("docs/calls.md: docs/design/deadlock.md");
    expect(links.filter((each) => !packed.includes(each.replace(/^.*: /, "")))).toEqual([]);
  });

  // npm asks a consumer to approve these, and their tools are not packed.
  test.each(["preinstall", "install", "postinstall", "prepublish", "prepare"])(
    "has no script for %s",
    (event) => {
      const { scripts } = JSON.parse(textOf("package.json"));
      expect([`pre${event}`, event, `post${event}`].filter((name) => name in scripts)).toEqual([]);
    },
  );

  test("names no source map, and no page, that is not in it", () => {
    const named = packed.flatMap((path) => {
      const text = textOf(path);
      const map = /^\/\/# sourceMappingURL=(\S+)$/m.exec(text)?.[1];
      const pages = path.endsWith(".js") ? (text.match(/\bdocs\/[\w-]+\.md/g) ?? []) : [];
      return [...(map === undefined ? [] : [`${dirname(path)}/${map}`]), ...pages];
    });
    expect(named).toContain("docs/algorithms.md");
    expect(named.filter((each) => !packed.includes(each))).toEqual([]);
  });
});

/** The compiler's complaints about a consumer of every entry; only of the package, whatever stands in other ones. */
function complaints(lib: readonly string[], resolution: "NodeNext" | "Bundler"): string[] {
  const path = join(folder, `consumer-${resolution}.ts`);
  writeFileSync(path, entries.map((entry, at) => `export * as e${at} from "${entry}";\n`).join(""));
  const program = ts.createProgram([path], {
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    isolatedModules: true,
    verbatimModuleSyntax: true,
    noEmit: true,
    skipLibCheck: false,
    skipDefaultLibCheck: true,
    types: [],
    target: ts.ScriptTarget.ES2022,
    lib: lib.map((name) => `lib.${name}.d.ts`),
    module: resolution === "NodeNext" ? ts.ModuleKind.NodeNext : ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind[resolution],
  });
  expect(
    program.getSourceFiles().filter(({ fileName }) => fileName.includes("/dist/")).length,
  ).toBeGreaterThan(100);
  return ts
    .getPreEmitDiagnostics(program)
    .filter(({ file }) => !file?.fileName.includes("/node_modules/fast-check/"))
    .map(({ file, messageText }) => {
      const where = file === undefined ? "" : `${file.fileName.replace(/^.*\/dist\//, "")}: `;
      return `${where}${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
    });
}

describe("the types", () => {
  test("need ES2022 and nothing else", () => {
    expect(complaints(["es2022"], "NodeNext")).toEqual([]);
  });

  test("compile with the DOM library and the newest language target of a bundler", () => {
    expect(complaints(["esnext", "dom"], "Bundler")).toEqual([]);
  });
});

/** One file of all entries but the kit, which needs fast-check. */
async function bundled(
  file: string,
  options: OutputOptions,
  more: InputOptions = {},
): Promise<string> {
  const input = join(folder, "program.js");
  const own = entries.filter((entry) => !entry.endsWith("/testing"));
  const lines = own.map((entry, at) => `export * as e${at} from ${JSON.stringify(entry)};\n`);
  writeFileSync(input, lines.join(""));
  const external = /^node:|^koffi$|^webgpu$/;
  const bundle = await rolldown({ input, platform: "node", external, ...more });
  await bundle.write({ file: join(folder, file), ...options });
  await bundle.close();
  return file;
}

test("a CommonJS bundle, where modules have no address, loads and refuses a missing package", async () => {
  const define = { "import.meta.url": "undefined" };
  const file = await bundled("program.cjs", { format: "cjs" }, { transform: { define } });
  const program = `
    const entries = Object.values(require("./${file}"));
    const { nccl } = entries.find((entry) => "nccl" in entry);
    const { createWorld } = entries.find((entry) => "createWorld" in entry);
    createWorld({ backend: nccl(), size: 2 }).catch(({ code }) => console.log(code));`;
  const run = { cwd: folder, encoding: "utf8" } as const;
  expect(execFileSync(process.execPath, ["--eval", program], run)).toBe("ERR_COMM_BACKEND\n");
});

test("errors have the names of their classes where a bundler shortens them", async () => {
  const file = await bundled("program.min.mjs", { format: "es", minify: true });
  const program = `
    const found = Object.values(await import("./${file}")).flatMap(Object.entries);
    const errors = found.filter(([name]) => name.endsWith("Error"));
    const wrong = errors.filter(([name, error]) => name !== error.name).map(([name, error]) => [name, error.name]);
    console.log(JSON.stringify([errors.length, wrong]));`;
  const options = { cwd: folder, encoding: "utf8" } as const;
  const text = execFileSync(process.execPath, ["--input-type=module", "--eval", program], options);
  const [count, wrong] = JSON.parse(text);
  expect(wrong).toEqual([]);
  expect(count).toBeGreaterThan(15);
});
