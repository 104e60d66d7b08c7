/** A wrong program in each test runner: its report has the table, the hint and the lines of the program. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { describe, expect, test } from "vitest";

const folder = fileURLToPath(new URL("../../fixtures/runners/", import.meta.url));
const modules = fileURLToPath(new URL("../../../node_modules/", import.meta.url));

const vitest = [`${modules}vitest/vitest.mjs`, "run", "wrong.vitest", "--root", folder, "--pool"];
const runners: Readonly<Record<string, readonly string[]>> = {
  "vitest, forks": [...vitest, "forks"],
  "vitest, threads": [...vitest, "threads"],
  "vitest, vmForks": [...vitest, "vmForks"],
  "vitest, vmThreads": [...vitest, "vmThreads"],
  jest: [
    "--experimental-vm-modules",
    `${modules}jest/bin/jest.js`,
    "wrong.jest",
    "--rootDir",
    folder,
  ],
  mocha: [`${modules}mocha/bin/mocha.js`, "wrong.mocha.test.mjs"],
  "node:test": ["--test", "wrong.node.test.mjs"],
};

/** The lines that a runner prints, without colours and indentation. */
async function reportOf(args: readonly string[]): Promise<readonly string[]> {
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !/^(VITEST|NODE_|JEST|TEST)/.test(name)),
  );
  const child = spawn(process.execPath, args, { cwd: folder, env, stdio: "pipe" });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const [status] = await once(child, "close");
  expect(status).not.toBe(0);
  return stripVTControlCharacters(output)
    .replaceAll(folder, "")
    .split("\n")
    .map((line) => line.trim().replaceAll(/ {2,}/g, "  "));
}

describe.each(Object.entries(runners))("%s", (_name, args) => {
  test("shows table, hint and places of a deadlock, a mismatch and an error of a rank", async () => {
    const report = await reportOf(args);
    expect(report).toEqual(
      expect.arrayContaining([
        "ranks 1, 2  DeadlockError: deadlock: rank 0 finished without making a call that others wait for",
        "rank 0  has finished",
        'rank 1  waits in barrier  call 0 on "world"  for rank 0  programs.mjs:16:16',
        'rank 2  waits in barrier  call 0 on "world"  for rank 0  programs.mjs:16:16',
        "hint: every rank must make the same calls on a communicator, in the same order",
        'ranks 0..2  CollectiveMismatchError: call 0 on "world": ranks 1, 2 differ in count',
        "rank  call  count  made at",
        "0  allReduce float32[4]  4  programs.mjs:19:16",
        "1  allReduce float32[5]  5  programs.mjs:19:16",
        "2  allReduce float32[6]  6  programs.mjs:19:16",
        "hint: nothing was written; make the same call on every rank, with equal arguments",
        "rank 1  TypeError: broken model  programs.mjs:22:32",
        'ranks 0, 2  RemoteRankError: barrier: call 0 on "world": rank 1 threw: broken model',
      ]),
    );
    expect(report.join("\n")).not.toMatch(/serialize|cancelled [1-9]|has already resolved/);
  });
});
