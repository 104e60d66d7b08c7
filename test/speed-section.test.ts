/** README.md's speeds are those of a result in bench/results, and the tool that writes them tells when they are not. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "twinccl-speed-"));
afterAll(() => rmSync(folder, { recursive: true }));

const tool = (...args: string[]) =>
  spawnSync(process.execPath, [`${root}tools/speed-section.mjs`, ...args], { encoding: "utf8" });

test("README.md says what the result file says", () => {
  const { status, stderr } = tool("--check");
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});

describe("the section of a result", () => {
  const cell = (us: number) => ({ median_us: us, p99_us: 2 * us, samples: 3, right: true });
  const missing = { not_run: "no windows" };
  const row = (collective: string, mode: string, bytes: number, peers: object) => {
    return { collective, mode, bytes, count: bytes / 4, peers };
  };
  const document = {
    versions: { node: "20.20.2" },
    ...{ commit: "0123456789abcdef", date: "2026-01-02T03:04:05.678Z", rounds: 5 },
    ...{ gpus: ["NVIDIA H200", "NVIDIA H200"], driver: "580.1", ranks: 2 },
    peers: [
      { name: "twinccl" },
      { name: "native", nccl: 22809 },
      { name: "torch", torch: "2.11.0", nccl: 22809 },
    ],
    results: [
      row("allReduce", "eager", 8, { twinccl: cell(13.26), native: cell(12), torch: cell(47) }),
      row("allReduce", "graph", 8, { twinccl: cell(11.5), native: cell(11), torch: cell(30) }),
      row("allReduce", "symmetric+graph", 8, { twinccl: missing, native: cell(4.5) }),
      row("broadcast", "eager", 2048, { twinccl: cell(9), native: cell(10), torch: missing }),
    ],
    latency: [{ mode: "eager", bytes: 1024, peers: { twinccl: cell(23), native: cell(21) } }],
    cycles: { not_run: "out of time" },
    ends: { processes: 20, size: 2, ends: {}, bad: ["exit: SIGSEGV"] },
  };
  const file = join(folder, "result.json");
  writeFileSync(file, JSON.stringify(document));

  test("holds the medians, what ours is of theirs, and empty cells for what was not run", () => {
    const { stdout } = tool(file, "--print");
    expect(stdout).toContain("2 × NVIDIA H200, driver 580.1, NCCL 2.28.9");
    expect(stdout).toContain("| 8 B | 13.3 | 12.0 | 47.0 | 11.5 | 11.0 | 4.5 | 1.10 |");
    expect(stdout).toContain("| broadcast | 2 KiB | 9.0 | 10.0 |  | 0.90 |");
    expect(stdout).toContain("| eager | 23.0 (46.0) | 21.0 (42.0) |");
    expect(stdout).toContain("20 processes ended without closing their world: 19");
    expect(stdout).not.toContain("opened, used and closed");
  });
  test("is written where it belongs, again without a change, and a wrong figure is found", () => {
    const page = join(folder, "PAGE.md");
    const before = "# Name\n\n## Measured\n\nText.\n\n## How it is tested\n\nMore.\n";
    writeFileSync(page, before);
    expect(tool(file, "--page", page).status).toBe(0);
    const once = readFileSync(page, "utf8");
    expect(once.indexOf("## Speed on GPUs")).toBeGreaterThan(once.indexOf("Text."));
    expect(once.indexOf("## Speed on GPUs")).toBeLessThan(once.indexOf("## How it is tested"));
    expect(tool(file, "--page", page).status).toBe(0);
    expect(readFileSync(page, "utf8")).toBe(once);
    expect(tool("--check", "--page", page).status).toBe(0);
    writeFileSync(page, once.replace("13.3", "10.3"));
    const { status, stderr } = tool("--check", "--page", page);
    expect(status).toBe(1);
    expect(stderr).toContain("differs from");
  });
});
