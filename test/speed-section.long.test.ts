/** The tool that writes the speeds of bench/results into docs/benchmarks.md and README.md, and finds a difference. */
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
  spawnSync(process.execPath, [`${root}bench/speed-section.mjs`, ...args], { encoding: "utf8" });

describe("the section of a result of NCCL", () => {
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

  test("holds the medians, the ratios, and empty cells for measurements that were not made", () => {
    const { stdout } = tool(file, "--print");
    expect(stdout).toContain("2 × NVIDIA H200, driver 580.1, NCCL 2.28.9");
    expect(stdout).toContain("| 8 B | 13.3 | 12.0 | 47.0 | 11.5 | 11.0 | 4.5 | 1.10 |");
    expect(stdout).toContain("| broadcast | 2 KiB | 9.0 | 10.0 |  | 0.90 |");
    expect(stdout).toContain("| eager | 23.0 (46.0) | 21.0 (42.0) |");
    expect(stdout).toContain("20 processes ended without closing their world: 19");
    expect(stdout).not.toContain("opened, used and closed");
  });
  test("compares neighbouring measurements where they were kept", () => {
    const turns = (...turns_us: number[]) => ({ ...cell(turns_us[1] as number), turns_us });
    const peers = { twinccl: turns(6, 7, 20), native: turns(5, 12, 16) };
    const kept = join(folder, "turns.json");
    const rows = [row("allReduce", "eager", 8, peers), row("broadcast", "eager", 2048, peers)];
    writeFileSync(kept, JSON.stringify({ ...document, results: rows }));
    const { stdout } = tool(kept, "--print");
    expect(stdout).toContain("| 8 B | 7.0 | 12.0 | 1.20 |");
    expect(stdout).toContain("| broadcast | 2 KiB | 7.0 | 12.0 |  | 1.20 |");
  });
  test("gives the median and the largest ratio of all rows of a kind", () => {
    const times = (us: number) => ({ twinccl: cell(us), native: cell(10) });
    const rows = [
      row("allReduce", "eager", 8, { ...times(11), "twinccl, one process": cell(14) }),
      row("allReduce", "symmetric", 2048, times(13)),
      row("broadcast", "eager", 2 ** 20 - 4, times(12)),
      row("broadcast", "graph", 8, times(10.5)),
      row("broadcast", "graph", 2 ** 20, times(9)),
      row("broadcast", "eager", 2 ** 25, { native: cell(10), twinccl: missing }),
    ];
    const cycles = { cycles: 30, size: 2, settling: 20, cycle_ms: 560 };
    const bytes = { device_bytes_per_cycle: 0, host_bytes_per_cycle: 4321 };
    const path = join(folder, "ratios.json");
    const written = (more: object) => {
      const found = { ...document, results: rows, cycles: { ...cycles, ...bytes, ...more } };
      writeFileSync(path, JSON.stringify(found));
      return tool(path, "--print").stdout;
    };
    const text = written({ allocated_bytes_per_cycle: 21 });
    expect(text).toContain("| below 1 MiB, call by call | 1.20, at most 1.30 (3 rows) |\n");
    expect(text).toContain("| below 1 MiB, in graphs | 1.05, at most 1.05 (1 row) |\n");
    expect(text).toContain("| from 1 MiB | 0.90, at most 0.90 (1 row) |\n");
    expect(text).toContain(
      "resident host memory grew by 4,321 bytes. Memory allocated by malloc grew by 21 bytes a cycle.",
    );
    expect(written({})).toContain("resident host memory grew by 4,321 bytes.");
    expect(written({ host_bytes_per_cycle: -7.2 })).toContain("memory shrank by 7 bytes.");
    expect(text).toMatch(/Measured as well: .*4 × NVIDIA H200 at commit \w{7} \(`bench/);
  });
  test("is written once, in its place, and a wrong figure is found", () => {
    const page = join(folder, "PAGE.md");
    const readme = join(folder, "README.md");
    const pages = ["--page", page, "--readme", readme];
    writeFileSync(page, "# Name\n\nText.\n");
    writeFileSync(readme, "# Name\n\n<!-- speed: summary -->\n<!-- end of speed -->\n");
    expect(tool(file, ...pages).status).toBe(0);
    const once = readFileSync(page, "utf8");
    expect(once.indexOf("## Speed on GPUs")).toBeGreaterThan(once.indexOf("Text."));
    expect(tool(file, ...pages).status).toBe(0);
    expect(readFileSync(page, "utf8")).toBe(once);
    const absent = tool("--check", ...pages).stderr;
    expect(absent.match(/^PAGE.md has no section for .*$/gm)?.join("\n")).toBe(absent.trimEnd());
    const documents = Array.from(
      absent.matchAll(/ for (?:.*, )?(\S+\.json)$/gm),
      ([, name]) => name,
    );
    expect(documents).toContain("webgpu-h200.json");
    for (const name of documents) expect(tool(`bench/results/${name}`, ...pages).status).toBe(0);
    expect(tool("--check", ...pages).status).toBe(0);
    const both = readFileSync(page, "utf8");
    expect(both.indexOf("## Speed through WebGPU")).toBeGreaterThan(
      both.indexOf("## Speed on GPUs"),
    );
    const short = readFileSync(readme, "utf8");
    expect(short).toContain(
      "| every collective below 1 MiB, one process per GPU | the same loop in C++ | 0.90 times as long, at most 1.10 | 2 × H200, NCCL 2.28.9, commit 0123456 |",
    );
    writeFileSync(readme, short.replace("0.90", "0.80"));
    expect(tool("--check", ...pages).stderr).toMatch(/^README.md's table differs from PAGE.md/);
    writeFileSync(page, both.replace("13.3", "10.3"));
    const { status, stderr } = tool("--check", ...pages);
    expect(status).toBe(1);
    expect(stderr).toMatch(/^PAGE.md's section differs from .*result.json: .*\n$/);
  });
});

describe("the section of a result of WebGPU", () => {
  const fold = (collective: string, dtype: string, inFlight: number, milliseconds: number) => {
    const figures = { milliseconds, gigabytesPerSecond: 1234.5 / milliseconds, ofCopy: 0.5 };
    return { name: "fold", collective, dtype, inFlight, ...figures };
  };
  const document = {
    versions: { node: "20.20.2" },
    ...{ commit: "0123456789abcdef", date: "2026-01-02T03:04:05.678Z", bytes: 2 ** 20, ranks: 3 },
    adapter: "NVIDIA: 580.1 580.1.0, nvidia-h200",
    results: [
      { name: "copy", milliseconds: 1, gigabytesPerSecond: 2345.6 },
      fold("reduce", "float16", 4, 1),
      fold("reduce", "float16", 1, 2),
      { ...fold("reduce", "float16", 4, 3), name: "form", form: "halves", right: true },
      { ...fold("reduce", "float16", 1, 4), name: "form", form: "halves", right: true },
      { ...fold("reduce", "float16", 4, 5), name: "form", form: "all", right: false },
      { ...fold("reduce", "float16", 1, 6), name: "form", form: "all", right: false },
      { name: "latency", bytes: 1024, medianUs: 49.4, samples: 1125 },
      { name: "cpu", milliseconds: 100, slower: 321.4 },
    ],
  };
  const file = join(folder, "webgpu-result.json");
  writeFileSync(file, JSON.stringify(document));
  writeFileSync(
    join(folder, "webgpu-result-verify.json"),
    JSON.stringify({ elements: 12345678, calls: 901, fine: true }),
  );

  test("holds the folds, the forms of addition, and the comparisons", () => {
    const { stdout } = tool(file, "--print");
    expect(stdout).toContain(
      "NVIDIA H200, driver 580.1, through Dawn, Node.js 20.20.2, commit 0123456, 2026-01-02.",
    );
    expect(stdout).toContain("copy of 1 MiB in the same run, 2,346 GB/s");
    expect(stdout).toContain(
      "| 3 ranks × 1 MiB | one call at a time | 4 communicators in flight |",
    );
    expect(stdout).toContain(
      "| reduce, float16 | 2.00 ms, 617 GB/s, 50 % | 1.00 ms, 1,235 GB/s, 50 % |",
    );
    expect(stdout).toContain(
      "| by the device's own float16 | 4.00 ms, 309 GB/s, 50 % | 3.00 ms, 412 GB/s, 50 % |",
    );
    expect(stdout).toContain(
      "| in float32, rounded by bits: not exact here, so not used | 6.00 ms",
    );
    expect(stdout).toContain("of 1 KiB takes 49 µs");
    expect(stdout).toContain("takes 321 times as long on `cpu()`");
    expect(stdout).toContain(
      "12,345,678 elements of 901 random calls were compared with `cpu()` there: none differs.",
    );
  });
});

describe("the section of a result beside others on a CPU", () => {
  const sample = (name: string, unit: string, median: number, goal: object = {}) => {
    return { name, unit, median, least: median, most: median, ...goal, times: [median] };
  };
  const document = {
    machine: { cpu: "AMD EPYC", cores: 2 },
    versions: { node: "20.20.2" },
    peers: { mpi: "mpirun (Open MPI) 4.1.4", simgrid: "3.32" },
    ...{ commit: "0123456789abcdef", date: "2026-01-02T03:04:05.678Z", rounds: 5 },
    rows: [
      sample("reduce", "ms", 12.34),
      sample("Open MPI reduce", "ms", 123.4),
      sample("small", "ms", 0.00812, { at_most: 0.008, met: false }),
      sample("rate", "/s", 5432.1, { at_least: 5000, met: true }),
      { name: "verification", skipped: "problems" },
      { name: "SMPI ring", skipped: "smpicc was not found" },
    ],
    ratios: [
      {
        name: "reduce",
        peer: "Open MPI reduce",
        times_faster: 10.04,
        goal: 3,
        met: true,
        each: [],
      },
      { name: "small", peer: "reduce", times_faster: 0.5, goal: 0.6, met: false, each: [] },
      { name: "rate", peer: "SMPI ring", times_faster: 7, each: [] },
    ],
  };
  const file = join(folder, "peers-result.json");
  writeFileSync(file, JSON.stringify(document));

  test("holds the machine, the ratios, and the requested plain figures", () => {
    const { stdout } = tool(file, "--print");
    expect(stdout).toContain(
      "AMD EPYC, 2 cores, Node.js 20.20.2, Open MPI 4.1.4, SimGrid 3.32, commit 0123456, 2026-01-02.",
    );
    expect(stdout).toContain("Medians of 5 rounds");
    expect(stdout).toContain("| reduce | 12.3 ms | Open MPI reduce | 123 ms | 10.04 | ≥ 3.00 |");
    expect(stdout).toContain("| small | 8.12 µs | reduce | 12.3 ms | 0.50 | ≥ 0.60, missed |");
    expect(stdout).toContain(
      "| rate | 5,432 /s | SMPI ring | not run: smpicc was not found | 7.00 |  |",
    );
    expect(stdout).toContain("| small | 8.12 µs | ≤ 8.00 µs, missed |");
    expect(stdout).toContain("| rate | 5,432 /s | ≥ 5,000 /s |");
    expect(stdout).toContain("| verification | not run: problems |  |");
    expect(stdout).not.toContain("\n| SMPI ring |");
  });
});

describe("the section of a result of processes", () => {
  const found = (median: number, more: object = {}) => ({ median, least: 1, most: 9, ...more });
  const skipped = { skipped: "mpicc was not found" };
  const document = {
    machine: { cpu: "AMD EPYC", cores: 2 },
    versions: { node: "20.20.2" },
    peers: { mpi: "mpirun (Open MPI) 4.1.4" },
    ...{ commit: "0123456789abcdef", date: "2026-01-02T03:04:05.678Z", rounds: 3 },
    rows: [
      { collective: "allreduce", ranks: 2, bytes: 8, ms: { twinccl: found(0.0123), mpi: skipped } },
      {
        collective: "alltoallv",
        ranks: 4,
        bytes: 2 ** 20,
        ms: { twinccl: found(1.5), mpi: found(2) },
      },
      {
        ...{ collective: "allreduce", ranks: 2, bytes: 4096, calls: 10_000, latency: true },
        ms: { twinccl: found(0.1, { p99: 0.25 }), mpi: skipped },
      },
    ],
    memory: [{ ranks: 2, bytes: 2 ** 26, besideBytes: 5.25 * 2 ** 20 }],
  };
  const file = join(folder, "tcp-result.json");
  writeFileSync(file, JSON.stringify(document));

  test("holds the medians by subject, the spread of awaited calls, and the reasons of missing ones", () => {
    const { stdout } = tool(file, "--print");
    expect(stdout).toContain(
      "AMD EPYC, 2 cores, Node.js 20.20.2, Open MPI 4.1.4, commit 0123456, 2026-01-02.",
    );
    expect(stdout).toContain("| microseconds a call | twinccl | mpi |");
    expect(stdout).toContain("| all-reduce, 2 x 8 B | 12.3 | not run: mpicc was not found |");
    expect(stdout).toContain("| all-to-allv, skewed, 4 x 1 MiB | 1,500 | 2,000 |");
    expect(stdout).toContain("| twinccl, 2 x 4 KiB, 10,000 calls | 100 | 250 | 9,000 |");
    expect(stdout).toContain("| 2 x 64 MiB | 5.3 |");
  });
});
