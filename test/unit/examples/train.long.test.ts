/** The training example, short: the loss falls, ranks agree, and the plot is one. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../../", import.meta.url));

test("examples/train.mjs learns the same on 1 and on 3 ranks, and draws it", () => {
  const folder = mkdtempSync(join(tmpdir(), "twinccl-train-"));
  try {
    const plot = join(folder, "loss.svg");
    const args = ["examples/train.mjs", "--ranks", "1,3", "--steps", "12", "--plot", plot];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, {
      cwd: root,
      encoding: "utf8",
      timeout: 100_000,
    });
    expect(stderr).toMatch(/^1 rank: step 1 of 12, loss \d\.\d+, gradient norm \d/);
    expect(status, stderr).toBe(0);
    const losses = [...stdout.matchAll(/ranks?: loss (\S+) -> (\S+)/g)].map((each) => [
      Number(each[1]),
      Number(each[2]),
    ]);
    expect(losses).toHaveLength(2);
    for (const [first, last] of losses as [number, number][]) {
      // Uniform guesses among some fifty characters, then something of their frequencies.
      expect(first).toBeCloseTo(Math.log(51), 1);
      expect(last).toBeLessThan(first - 0.5);
    }
    expect(losses[1]).toEqual([
      expect.closeTo(losses[0]?.[0] as number, 3),
      expect.closeTo(losses[0]?.[1] as number, 3),
    ]);
    const svg = readFileSync(plot, "utf8");
    expect(svg).toMatch(/^<svg [\s\S]*<\/svg>\n$/);
    for (const name of ["1 rank", "3 ranks", "step", "Training loss"])
      expect(svg).toContain(`>${name}<`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}, 120_000);

test.each([join("no such folder", "loss.svg"), "examples"])(
  "examples/train.mjs refuses to draw in %s before it trains",
  (plot) => {
    const args = ["examples/train.mjs", "--ranks", "1", "--steps", "1", "--plot", plot];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, {
      cwd: root,
      encoding: "utf8",
    });
    const fault = `--plot: found "${plot}", needs a file in a folder that is there`;
    expect(stderr).toBe(`train.mjs: ${fault}; see --help\n`);
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
  },
);
