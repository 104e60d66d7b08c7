/** The files that an all-reduce enters, at most: a helper of its own file on the path of every call is one more for its readers. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

test.each([
  ["sim", 45, 22],
  ["nccl", 35, 14],
])(
  "an all-reduce on %s enters at most %d files at first, and %d in a loop",
  (backend, first, again) => {
    const { stdout, stderr, status } = spawnSync(
      process.execPath,
      ["bench/call-path.mjs", "--backend", backend],
      { cwd: root, encoding: "utf8" },
    );
    expect(`${status} ${stderr}`).toBe("0 ");
    const files = (row: string): number =>
      Number(new RegExp(`^${row} +(\\d+) `, "m").exec(stdout)?.[1]);
    expect(files("first")).toBeLessThanOrEqual(first);
    expect(files("in a loop")).toBeLessThanOrEqual(again);
  },
);
