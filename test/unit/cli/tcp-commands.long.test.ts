/** Commands with a process for each rank, beyond what verify-command.test.ts and run-command.test.ts show in every run. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-processes-"));
afterAll(() => rmSync(folder, { recursive: true }));
const main = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url));

/** The path of a file with this program. */
function program(name: string, body: string): string {
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, `export default async (comm) => {\n${body}\n};\n`);
  return path;
}

function command(args: readonly string[], env = process.env) {
  return spawnSync(process.execPath, [main, ...args], { encoding: "utf8", env });
}

describe("verify", () => {
  test("has the bits of the simulation as the other side too", async () => {
    const line = "verify --against tcp --ranks 2 --dtype float32 --op sum --counts 0,33";
    const { status, out } = await cli(`${line} --collective all-reduce`);
    expect(status).toBe(0);
    expect(out).toMatch(/\nverify: (\d+) of \1 identical\n$/);
  });

  test.each([
    ["differ", "process.pid", 1, ""],
    ["cannot be sent", "() => 1", 2, "the result of rank 0 cannot be sent to be compared"],
    [
      "are an error",
      "comm.allReduce({ send: 3 })",
      1,
      /rank 0 of 1 failed on "verify".*on tcp: the ranks have ended with status 1/s,
    ],
  ])("results that %s fail", (name, result, status, message) => {
    const path = program(name.replaceAll(" ", "-"), `return ${result};`);
    const found = command(["verify", path, "--backend", "tcp", "--against", "sim", "-n", "1"]);
    expect(found.status).toBe(status);
    expect(found.stderr).toMatch(message);
    if (message === "") expect(found.stdout).toMatch(/^rank 0: its result: \d+ on tcp, \d+ on sim/);
  });
});

/** Rank 1 fails at its first figures or hash, and its process takes longer to end than that of a rank which fails by it. */
const breaking = join(folder, "breaking.mjs");
writeFileSync(
  breaking,
  `import crypto from "node:crypto";
   import { syncBuiltinESMExports } from "node:module";
   const isFirst = process.env.TWINCCL_RANK === "1";
   if (process.env.TWINCCL_RANK !== undefined) {
     const endMs = isFirst ? 1500 : 500;
     process.on("exit", () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, endMs));
   }
   if (isFirst) {
     const fail = () => { throw new RangeError("my own"); };
     const { createHash } = crypto;
     Float64Array.from = fail;
     crypto.createHash = (...given) =>
       new Error().stack.includes("hashOf") ? fail() : createHash(...given);
     syncBuiltinESMExports();
   }`,
);

test.each([
  `verify ${program("first", "if (comm.rank === 1) Float64Array.from([]); await comm.barrier();")} --backend tcp --against sim -n 2`,
  "bench all-reduce --backend tcp -g 2 -b 64 -e 64 -n 1 -w 0",
  "bench --calibration --backend tcp -g 2 -e 2K -n 1 -w 0",
  "invariant all-reduce --ranks 2 --ask size --count 1..1K --backend tcp",
])("%s names the rank that failed first", (line) => {
  const env = { ...process.env, NODE_OPTIONS: `--import ${pathToFileURL(breaking)}` };
  const { status, stderr } = command(line.split(" "), env);
  expect(status).toBe(1);
  expect(stderr).toContain("RangeError: my own");
  expect(stderr).toMatch(/\ntwinccl \w+: rank 1 failed first after .* s: exit status 1; rank 0/);
});

describe("run", () => {
  const run = (path: string) => command(["run", path, "--backend", "tcp", "-n", "2"]);

  test("prints the lines of the ranks before their results", () => {
    const talking = program("talking", "console.log(comm.rank); return process.pid;");
    const lines = run(talking).stdout.split("\n");
    expect(lines.slice(0, 2).sort()).toEqual(["0", "[1] 1"]);
    const pids = lines.slice(2, 4).map((line) => /^rank [01]: (\d+)$/.exec(line)?.[1]);
    expect(new Set(pids).size).toBe(2);
  });

  test("fails where a rank ends before the others are done", () => {
    const path = program("leaving", "if (comm.rank === 1) process.exit(0); await comm.barrier();");
    const { status, stderr } = run(path);
    expect(status).toBe(1);
    expect(stderr).toContain("before the run was over: rank 1 had not returned");
    // Both end with a failure, at about the same time.
    expect(stderr).toMatch(/\ntwinccl run: rank [01] failed first after .* s: exit status 1/);
  });
});
