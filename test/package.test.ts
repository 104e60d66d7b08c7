/** What somebody gets who installs the package: files that lack nothing. */

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../", import.meta.url));
let packed: readonly string[] = [];

beforeAll(() => {
  const { status } = spawnSync(process.execPath, ["tools/build.mjs", "--is-fresh"], { cwd: root });
  if (status !== 0) throw new Error("dist is older than src: run `npm run build`");
  const args = ["pack", "--dry-run", "--json", "--ignore-scripts"];
  const [tarball] = JSON.parse(execFileSync("npm", args, { cwd: root, encoding: "utf8" }));
  packed = tarball.files.map(({ path }: { path: string }) => path);
});

describe("the tarball", () => {
  const textOf = (path: string): string => readFileSync(join(root, path), "utf8");

  test("holds the build, the pages and nothing else", () => {
    const others = packed.filter((path) => !/^(dist\/.+\.(js|d\.ts)|docs\/[\w-]+\.md)$/.test(path));
    expect(others.sort()).toEqual(["LICENSE", "README.md", "package.json"]);
  });

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
