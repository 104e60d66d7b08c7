/** The example of everything combined: it learns, comes out where one rank does, and repeats to the bit. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

const started = (args: readonly string[]) =>
  spawnSync(process.execPath, ["examples/mesh.mjs", ...args], {
    cwd: root,
    encoding: "utf8",
    timeout: 100_000,
  });

function run(...args: string[]): string {
  const { status, stdout, stderr } = started(args);
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

test("examples/mesh.mjs takes other meshes, stages and schedules", () => {
  for (const [mesh, zero, schedule] of [
    ["2x1x2", "3", "1f1b"],
    ["3x2x1", "1", "gpipe"],
    ["2x2x1", "3", "gpipe"],
  ] as const) {
    const said = run("--mesh", mesh, "--zero", zero, "--schedule", schedule, "--steps", "4");
    expect(Number(/one rank: (\S+)/.exec(said)![1])).toBeLessThan(1e-10);
  }
}, 120_000);

test("examples/mesh.mjs comes to the same bits in a process for each rank", () => {
  const args = ["--mesh", "2x1x2", "--steps", "4"];
  const cli = ["dist/cli/main.js", "launch", "-n", "4", "examples/mesh.mjs", "--backend", "tcp"];
  const { status, stdout, stderr } = spawnSync(process.execPath, [...cli, ...args], {
    cwd: root,
    encoding: "utf8",
    timeout: 100_000,
  });
  expect(status, stderr).toBe(0);
  expect(stdout.replaceAll("[0] ", "")).toBe(run(...args));
}, 120_000);

test("examples/mesh.mjs lists its options, and refuses others by name", () => {
  expect(run("--help")).toContain("--zero 1|2|3");
  for (const [options, fault] of [
    [["--mesh", "2x2"], '--mesh: found "2x2", needs three extents such as 2x1x2'],
    [["--zero", "4"], '--zero: found "4", needs one of 1, 2, 3'],
    [["--steps", "0"], '--steps: found "0", needs a whole number of at least 1'],
    [["--backend", "gloo"], '--backend: found "gloo", needs one of sim, nccl, tcp'],
    [["--ranks", "2"], "unknown option '--ranks'"],
  ] as const) {
    const { status, stderr } = started(options);
    expect(status).toBe(2);
    expect(stderr).toBe(`mesh.mjs: ${fault}; see --help\n`);
  }
}, 120_000);
