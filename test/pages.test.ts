/** The pages name only files and symbols that exist, and hold the speeds of the result files. */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { linksIn } from "./support/page-links.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const read = (path: string): string => readFileSync(`${root}${path}`, "utf8");
/** Built and installed files are no part of the checkout. */
const isOwn = (name: string): boolean =>
  name === ".ci" || !/^(\..*|node_modules|dist|web-dist|coverage)$/.test(name);
const files = readdirSync(root, { withFileTypes: true })
  .filter(({ name }) => isOwn(name))
  .flatMap((entry) => {
    if (!entry.isDirectory()) return [entry.name];
    const inside = readdirSync(`${root}${entry.name}`, { recursive: true, encoding: "utf8" });
    return inside.map((path) => `${entry.name}/${path}`);
  })
  .filter((path) => statSync(`${root}${path}`, { throwIfNoEntry: false })?.isFile() === true);
const folders = new Set(
  files.flatMap((path) => path.split("/").map((_, at, parts) => parts.slice(0, at).join("/"))),
);
const sources = files.filter((path) => /^(src|test|tools|bench)\/.*\.(ts|mjs)$/.test(path));
const pages = files.filter((path) =>
  /^([A-Z]+|docs\/.*|(assembly|src|test|tools|web|bench)\/(.*\/)?README)\.md$/.test(path),
);

/** Inline code of a page, without its fenced blocks. */
function spans(markdown: string): string[] {
  const prose = markdown.replace(/^```[\s\S]*?^```$/gm, "");
  return [...prose.matchAll(/`([^`\n]+)`/g)].map(([, span]) => span as string);
}

/** True for a file of the checkout, given by the end of its path, or for a folder of it. */
function exists(path: string): boolean {
  const bare = path.replace(/\/$/, "");
  const isEnd = (each: string) => each === bare || each.endsWith(`/${bare}`);
  return files.some(isEnd) || [...folders].some(isEnd);
}

/** Paths of source files and folders that a page names in code. */
const pathsIn = (markdown: string): string[] =>
  spans(markdown).filter(
    (span) =>
      /^(src|test|tools|bench|assembly|web|docs)(\/[\w.-]+)*\/?$/.test(span) ||
      /^[\w./-]+\.(ts|c|hpp|cpp)$/.test(span),
  );

/** Symbols written as `Owner.member` or as a name of ARCHITECTURE.md's tables that begins with a capital. */
const symbolsIn = (markdown: string): string[] =>
  spans(markdown).filter((span) => /^[A-Z][A-Za-z]+(\.[a-z]\w+)?$/.test(span));

const texts = sources.map(read);
/** True where one source file declares the owner and, where given, has the member. */
function isDeclared(symbol: string): boolean {
  const [owner, member] = symbol.split(".");
  const declaration = new RegExp(`\\b(class|interface|type|const|function|enum) ${owner}\\b`);
  const use = new RegExp(`\\b${member}\\b`);
  return texts.some((text) => declaration.test(text) && (member === undefined || use.test(text)));
}

test("pages are found", () => {
  expect(pages).toEqual(expect.arrayContaining(["README.md", "ARCHITECTURE.md", "docs/calls.md"]));
});

describe.each(pages)("%s", (page) => {
  const markdown = read(page);
  test("names files and folders that exist", () => {
    expect(pathsIn(markdown).filter((path) => !exists(path))).toEqual([]);
  });
  test("links to files that exist", () => {
    const missing = linksIn(page, markdown).filter((path) => !exists(path) && path !== "");
    expect(missing).toEqual([]);
  });
  test("labels a link with the name of the page that it leads to", () => {
    const links = [...markdown.matchAll(/\[([\w-]+\.md)\]\(([^)#\s]+)/g)];
    const wrong = links.filter(([, label, path]) => label !== (path as string).split("/").at(-1));
    expect(wrong.map(([link]) => link)).toEqual([]);
  });
});

test.each(["README.md", "ARCHITECTURE.md"])("%s has at most 130 lines", (page) => {
  expect(read(page).trimEnd().split("\n").length).toBeLessThanOrEqual(130);
});

test("folders of src with more than ten files have a README", () => {
  const unmapped = [...folders].filter((folder) => {
    const modules = files.filter((path) => dirname(path) === folder && path.endsWith(".ts"));
    const isLarge = folder.startsWith("src/") && modules.length > 10;
    return isLarge && !files.includes(`${folder}/README.md`);
  });
  expect(unmapped).toEqual([]);
});

test("ARCHITECTURE.md names symbols that exist", () => {
  const symbols = symbolsIn(read("ARCHITECTURE.md"));
  expect(symbols.length).toBeGreaterThan(10);
  expect(symbols.filter((symbol) => !isDeclared(symbol))).toEqual([]);
});

/** Names of NCCL that the pages compare with. */
const foreign = ["opCount"];

test("ARCHITECTURE.md and the maps of folders name functions and fields that exist", () => {
  const maps = pages.filter(
    (page) => page === "ARCHITECTURE.md" || /^src\/.*README\.md$/.test(page),
  );
  const names = maps.flatMap((page) =>
    spans(read(page)).filter((span) => /^[a-z]+[A-Z]\w*$/.test(span)),
  );
  const words = new Set(texts.flatMap((text) => text.match(/\w+/g) ?? []));
  expect(names.length).toBeGreaterThan(30);
  expect(names.filter((name) => !words.has(name) && !foreign.includes(name))).toEqual([]);
});

test("test/unit/README.md names tests that exist", () => {
  const rows = read("test/unit/README.md").split("\n");
  const names = rows.flatMap((row) => spans(/^\| `.*\|(.*)\|$/.exec(row)?.[1] ?? ""));
  const ends = [".test.ts", ".long.test.ts", ""];
  expect(names.length).toBeGreaterThan(100);
  expect(names.filter((name) => !ends.some((end) => exists(`${name}${end}`)))).toEqual([]);
});

test("pages name private members that exist", () => {
  const symbols = pages.flatMap((page) =>
    spans(read(page)).filter((span) => /^[A-Z]\w+\.#\w+$/.test(span)),
  );
  expect(symbols.length).toBeGreaterThan(0);
  expect(symbols.filter((symbol) => !isDeclared(symbol.replace("#", "")))).toEqual([]);
});

test("docs/testing.md has all functions of twinccl/testing", () => {
  const exported = JSON.parse(read("test/exports.snapshot.json"))["twinccl/testing"] as string[];
  const names = exported.filter((name) => !name.startsWith("type "));
  const [, table = ""] = read("docs/testing.md").split("## All functions");
  expect(names.filter((name) => !new RegExp(`\\b${name}\\b`).test(table))).toEqual([]);
});

test("a missing file, link and symbol are noticed", () => {
  expect(
    pathsIn("see `src/api/gone.ts` and `ledger/runs.ts`").filter((path) => !exists(path)),
  ).toEqual(["src/api/gone.ts", "ledger/runs.ts"]);
  expect(linksIn("docs/a.md", "[x](../src/b.md#c) [y](https://z)")).toEqual(["src/b.md"]);
  expect(symbolsIn("`Ledger.gone`").filter((symbol) => !isDeclared(symbol))).toEqual([
    "Ledger.gone",
  ]);
});

test("docs/benchmarks.md and README.md hold the speeds of bench/results", () => {
  const args = [`${root}bench/speed-section.mjs`, "--check"];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});
