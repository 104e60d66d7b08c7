import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { BenchDocument } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { afterAll, afterEach, describe, expect, test, vi } from "vitest";
import { longTest } from "../../support/long-test.ts";
import { corrupting } from "../bench/corrupting-backend.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-bench-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

const quick = "-n 1 -w 0 -g 4";
const broken = { backends: { sim: () => corrupting(sim(), 1) } };

test("the table: data lines hold numbers, every other line begins with #", async () => {
  const { status, out, err } = await cli(`bench all_reduce -b 1K -e 4K -f 2 ${quick}`);
  expect({ status, err }).toEqual({ status: 0, err: "" });
  const data = out.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  expect(data.map((line) => line.trim().split(/\s+/).slice(0, 5))).toEqual([
    ["1024", "256", "float32", "sum", "-1"],
    ["2048", "512", "float32", "sum", "-1"],
    ["4096", "1024", "float32", "sum", "-1"],
  ]);
  expect(out).toContain("simulated, in process");
  expect(out).toContain("predicted");
  expect(out).toMatch(/# Out of bounds values : 0 OK\n# Avg bus bandwidth .*simulated, in process/);
});

longTest("all dtypes, operators and roots, and nccl-tests' names", async () => {
  const all = await cli(`bench reduce -b 64 -e 64 -d all -o all -r all -n 1 -w 0 -g 3 --csv`);
  expect(all.status).toBe(0);
  expect(all.out.trimEnd().split("\n")).toHaveLength(1 + 12 * 5 * 3);
  const half = await cli(`bench all-reduce -b 64 -e 64 -d half,double -o max,min ${quick} --csv`);
  expect(half.out.match(/float16,max|float16,min|float64,max|float64,min/g)).toHaveLength(4);
});

describe("documents", () => {
  test("with --json stdout holds one document and nothing else, and --out the same", async () => {
    const path = join(folder, "out.json");
    const line = `bench all-to-allv -b 1K -e 2K ${quick} --spread 0.8 --seed 3 --json --out ${path}`;
    const { status, out } = await cli(line);
    expect(status).toBe(0);
    const document = JSON.parse(out) as BenchDocument;
    expect(document.results).toHaveLength(2);
    expect(document.results[0]).toMatchObject({ in_place: null, root: -1, redop: "none" });
    expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(document);
  });
  test("with --csv stdout holds only CSV", async () => {
    const { out } = await cli(`bench broadcast -b 64 -e 64 -r 2 ${quick} --csv`);
    const [header = "", row = "", ...rest] = out.split("\n");
    expect(header.startsWith("collective,backend,ranks,algorithm,size,count,type")).toBe(true);
    expect(row.startsWith("broadcast,sim,4,Ring LL,64,16,float32,none,2,")).toBe(true);
    expect(rest).toEqual([""]);
  });
  test("the table and --out together", async () => {
    const path = join(folder, "table.json");
    const { out } = await cli(`bench barrier ${quick} --out ${path}`);
    expect(out).toContain("# Out of bounds values : 0 OK");
    expect(JSON.parse(readFileSync(path, "utf8")).results).toHaveLength(1);
  });
});

test("the named algorithm is measured", async () => {
  const { out } = await cli(`bench all-reduce -b 64 -e 64 --algorithm linear ${quick} --csv`);
  expect(out).toContain("\nallReduce,sim,4,linear,");
});

test("a wrong element is counted and makes the exit status 1", async () => {
  const { status, out } = await cli(`bench all-reduce -b 64 -e 128 ${quick}`, broken);
  expect(status).toBe(1);
  expect(out).toContain("# Out of bounds values : 4 FAILED");
  expect((await cli(`bench all-reduce -b 64 -e 64 ${quick} --json`, broken)).status).toBe(1);
  const unchecked = await cli(`bench all-reduce -b 64 -e 64 ${quick} -c 0`, broken);
  expect(unchecked.status).toBe(0);
  expect(unchecked.out).toContain("not checked");
});

describe("graphs, latency and processes", () => {
  test("a graph and symmetric memory are in the head", async () => {
    const line = `bench all-reduce -b 64 -e 64 ${quick} --mode graph --symmetric`;
    const { status, out } = await cli(line);
    expect(status).toBe(0);
    expect(out).toContain("\n# graph, symmetric memory\n");
    expect((await cli(`${line} --mode both`)).status).toBe(2);
  });
  test("latency has columns of its own", async () => {
    const { out } = await cli(`bench all-reduce -b 64 -e 64 ${quick} --latency`);
    expect(out).toMatch(/median +p99 +#wrong/);
    expect(out).not.toContain("bus");
  });
  test("--processes is for GPUs", async () => {
    const { status, err } = await cli(`bench all-reduce ${quick} --processes`);
    expect({ status, err }).toMatchObject({
      status: 2,
      err: expect.stringContaining("needs --backend nccl"),
    });
  });
  test("--processes starts one process for each rank, and fails with their errors", () => {
    const main = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url));
    const args = [main, "bench", "all-reduce", "--backend", "nccl", "--processes", "-g", "2"];
    const env = { ...process.env, TWINCCL_CUDART_LIBRARY: join(folder, "libcudart.so") };
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { env, encoding: "utf8" });
    expect({ status, stdout }).toEqual({ status: 2, stdout: "" });
    expect(stderr).toContain("BackendUnavailableError: libcudart was not found");
    expect(stderr).toMatch(/rank [01] failed first .*exit status 2/);
  });
  longTest("tcp has a process for each rank, and rank 0 prints", async () => {
    const main = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url));
    const path = join(folder, "tcp.json");
    const line = "bench all-reduce -b 64 -e 128 -n 1 -w 0 -g 2 --backend tcp";
    const args = [main, ...line.split(" "), "--out", path];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
    expect(stdout).toMatch(/^# allReduce on backend tcp, 2 ranks in 2 processes, seed 0\n/);
    expect(stdout).not.toContain("simulated");
    expect(stdout).toContain("# Out of bounds values : 0 OK");
    const document = JSON.parse(readFileSync(path, "utf8")) as BenchDocument;
    expect(document).toMatchObject({ processes: 2, timing: "measured" });
    expect(document.results.map(({ backend, ranks, size }) => [backend, ranks, size])).toEqual([
      ["tcp", 2, 64],
      ["tcp", 2, 128],
    ]);
    const refused = await cli(`${line} --executor cpu`);
    expect(refused.err).toContain("tcp: executor cannot be set from here");
  });
  longTest("a refused call among many that are not awaited gives its own error", async () => {
    const main = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url));
    const line = "bench reduce-scatter -d bfloat16 -b 20 -e 20 -g 2 --symmetric --backend tcp";
    const args = [main, ...line.split(" ")];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    expect(status).toBe(2);
    expect(stderr).toContain("UnsupportedError: reduceScatter: symmetric bfloat16 at an address");
    expect(stderr).not.toContain("never awaited");
  });
  test("a rank that is not the first prints nothing", async () => {
    vi.stubEnv("TWINCCL_RANK", "1");
    vi.stubEnv("TWINCCL_SIZE", "2");
    vi.stubEnv("TWINCCL_LOCAL_RANK", "1");
    vi.stubEnv("TWINCCL_JOB_ID", "test");
    // Ranks agree on a backend before it is opened, so that a rank needs a store first.
    const { out, err } = await cli("bench all-reduce --backend nccl");
    expect(out).toBe("");
    expect(err).toContain("TWINCCL_PORT is not set");
    expect((await cli(`bench all-reduce -b 64 -e 64 ${quick}`)).out).toContain("# Out of bounds");
  });
});

test("progress is for terminals only, and is erased at the end", async () => {
  const line = `bench all-reduce -b 64 -e 64 ${quick}`;
  expect((await cli(line)).err).toBe("");
  const { err } = await cli(line, { terminal: true });
  expect(err).toContain("allReduce float32 sum 64 B (1 of 1)");
  expect(err.endsWith("\r\x1b[K")).toBe(true);
});

test.each(["-c 2", "-e 16M -i 1 -b 1", "--spread 2"])("refuses %s", async (options) => {
  expect((await cli(`bench all-to-all-v ${options}`)).status).toBe(2);
});
