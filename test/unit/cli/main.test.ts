/** The executable itself, as it is installed; everything else is tested in process. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";

const main = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url));

function run(...args: readonly string[]): {
  status: number | null;
  stdout: string;
  stderr: string;
} {
  return spawnSync(process.execPath, [main, ...args], { encoding: "utf8", timeout: 15_000 });
}

beforeAll(() => {
  if (!existsSync(main)) throw new Error("dist lacks the CLI: run `npm run build`");
});

test("a document on stdout, nothing on stderr, exit status 0", () => {
  const { status, stdout, stderr } = run(
    ..."bench all-reduce -b 64 -e 64 -n 1 -w 0 -g 2 --json".split(" "),
  );
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  expect(JSON.parse(stdout).results).toHaveLength(1);
});

test("wrong usage is exit status 2", () => {
  const { status, stdout, stderr } = run("bogus");
  expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
  expect(stderr).toContain('unknown command "bogus"');
});
