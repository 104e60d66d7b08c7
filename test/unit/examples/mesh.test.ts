/** The example of everything combined: it learns, comes out where one rank does, and repeats to the bit. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

function run(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["examples/mesh.mjs", ...args], {
    cwd: root,
    encoding: "utf8",
    timeout: 100_000,
  });
  expect(status, stderr).toBe(0);
  return stdout;
}

test("examples/mesh.mjs trains on 2 × 2 × 2 ranks as one rank does, the same bits in every run", () => {
  const said = run();
  const [, first, last] = /loss (\S+) -> (\S+)/.exec(said)!.map(Number);
  expect(first).toBeCloseTo(Math.log(11), 1);
  expect(last).toBeLessThan(first! / 2);
  expect(Number(/one rank: (\S+)/.exec(said)![1])).toBeLessThan(1e-10);
  expect(said.split("\n")).toHaveLength(5 + 4 + 1);
  expect(run()).toBe(said);
}, 120_000);

test("examples/mesh.mjs takes other meshes and stages", () => {
  for (const mesh of ["2x1x2", "3x2x1"]) {
    const said = run("--mesh", mesh, "--zero", "1", "--steps", "4");
    expect(Number(/one rank: (\S+)/.exec(said)![1])).toBeLessThan(1e-10);
  }
}, 120_000);
