import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { longTest } from "../../support/long-test.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-run-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** A program file with this body. */
function program(name: string, body: string): string {
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, `export default async (comm) => {${body}};\n`);
  return path;
}

test("results are printed by rank, buffers with their contents", async () => {
  const path = program(
    "sum",
    `const send = comm.alloc("float32", 3).fill(comm.rank);
     await comm.allReduce({ send, op: "sum" });
     return comm.rank === 1 ? send : { rank: comm.rank, big: 5n };`,
  );
  expect(await cli(`run ${path} -n 3 --seed 9`)).toEqual({
    status: 0,
    out: "rank 0: { rank: 0, big: 5n }\nrank 1: Float32Array(3) [ 3, 3, 3 ]\nrank 2: { rank: 2, big: 5n }\n",
    err: "",
  });
});

test("--schedule chooses how ranks resume, as schedule= does in the backend's name", async () => {
  const path = program(
    "resumed",
    `comm.work(comm.rank === 0 ? 1e9 : 1);
     const own = await comm.split({ color: comm.rank });
     for (let step = 0; step < 3; step++) await own.barrier();
     globalThis.resumed = (globalThis.resumed ?? "") + comm.rank;
     return globalThis.resumed;`,
  );
  const chosen = [`${path} --schedule virtual-time`, `${path} --backend sim:schedule=virtual-time`];
  for (const [at, line] of chosen.entries()) {
    const { out } = await cli(`run ${line} -n 2 --seed 4`);
    expect(out).toBe(`rank 0: '${"10".repeat(at + 1)}'\nrank 1: '${"10".repeat(at)}1'\n`);
  }
});

test("--strict finds a buffer that is written while it is lent, on the simulation", async () => {
  const path = program(
    "early",
    `const send = comm.alloc("float32", 2).fill(1);
     const sum = comm.allReduce({ send, op: "sum" });
     send.fill(0);
     await sum;`,
  );
  expect((await cli(`run ${path} -n 2`)).status).toBe(0);
  const { status, err } = await cli(`run ${path} -n 2 --strict`);
  expect(status).toBe(1);
  expect(err).toContain("allReduce: send: rank 1 wrote it while it was lent");
  const refused = await cli(`run ${path} -n 2 --strict --backend nccl`);
  expect(refused.status).toBe(2);
  expect(refused.err).toContain("backend nccl: strict cannot be set from here");
});

test("a mistake in the use of the library is shown with the lines of the program alone", async () => {
  const path = program("stuck", "if (comm.rank !== 2) await comm.barrier();");
  const { status, out, err } = await cli(`run ${path} -n 3`);
  expect({ status, out }).toEqual({ status: 1, out: "" });
  expect(err).toMatch(/^twinccl run: 2 of 3 ranks failed on "run"/);
  expect(err).toContain("DeadlockError: deadlock: rank 2 finished");
  expect(err).toMatch(/ {2}rank 0 {2}waits in barrier .* for rank 2 {2}\S*stuck\.mjs:\d+:\d+$/m);
  const [innermost, ...outer] = err.match(/^ {4}at .*$/gm) ?? [];
  expect(innermost).toMatch(/stuck\.mjs:\d+:\d+\)$/);
  expect(outer[0]).toContain("harness.ts");
  expect(outer.filter((line) => !line.includes("/test/unit/cli/"))).toEqual([]);
});

test("a bug in the program is shown with its stack", async () => {
  const path = program(
    "bug",
    'if (comm.rank === 1) throw new TypeError("mine"); await comm.barrier();',
  );
  const { status, err } = await cli(`run ${path} -n 2`);
  expect(status).toBe(1);
  expect(err).toContain("TypeError: mine");
  expect(err).toMatch(/^ {4}at .*bug\.mjs/m);
});

test("a trace is written, also of a run that failed", async () => {
  const body = 'await comm.barrier(); if (comm.rank === 0) throw new Error("late");';
  const path = program("late", body);
  const chrome = join(folder, "trace.json");
  const text = join(folder, "trace.txt");
  expect((await cli(`run ${path} -n 2 --trace ${chrome}`)).status).toBe(1);
  await cli(`run ${path} -n 2 --trace ${text}`);
  expect(JSON.parse(readFileSync(chrome, "utf8")).traceEvents.length).toBeGreaterThan(0);
  expect(readFileSync(text, "utf8")).toMatch(/^\d+ post rank=0 .*barrier/m);
});

test("a trace does not overwrite the program", async () => {
  const path = program("kept", "await comm.barrier();");
  const text = readFileSync(path, "utf8");
  const { status, err } = await cli(`run ${path} -n 2 --trace ${path}`);
  expect(status).toBe(2);
  expect(err).toContain(`--trace ${path}: is the same file as the program; name another one`);
  expect(readFileSync(path, "utf8")).toBe(text);
});

test.each([
  ["undefined", "export const a = 1;\n"],
  ["number", "export default 1;\n"],
  ["a class", "export default class Program {}\n"],
])("a file with %s as its default export is wrong usage", async (found, text) => {
  const path = join(folder, `${found.replace(" ", "-")}.mjs`);
  writeFileSync(path, text);
  const { status, err } = await cli(`run ${path}`);
  expect(status).toBe(2);
  expect(err).toContain(`${path}: its default export is ${found}, needs async (comm) => result`);
});

test("a folder is refused by name", async () => {
  expect(await cli(`run ${folder}`)).toMatchObject({
    status: 2,
    err: expect.stringContaining(`${folder} is a folder; name a file in it`),
  });
});

describe("--backend tcp, a process for each rank", () => {
  const main = fileURLToPath(new URL("../../../dist/cli/main.js", import.meta.url));
  function run(
    path: string,
    ...args: readonly string[]
  ): { status: number | null; out: string; err: string } {
    const words = [main, "run", path, "--backend", "tcp", ...args];
    const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: "utf8" });
    return { status, out: stdout, err: stderr };
  }

  longTest("prints the results of the simulation by rank", async () => {
    const path = program(
      "processes",
      `const send = comm.alloc("float32", 3).fill(0.1 * (comm.rank + 1));
       await comm.allReduce({ send, op: "sum" });
       return comm.rank === 1 ? send : { rank: comm.rank, big: 5n };`,
    );
    const { out } = await cli(`run ${path} -n 2`);
    expect(run(path, "-n", "2")).toEqual({ status: 0, out, err: "" });
  });

  test("fails with the error of the rank and the status of run, and prints no result", () => {
    const path = program(
      "odd",
      `return comm.allReduce({ send: new Int8Array(comm.rank), op: "sum" });`,
    );
    const { status, out, err } = run(path, "-n", "2");
    expect({ status, out }).toEqual({ status: 1, out: "" });
    expect(err).toMatch(/twinccl run: rank [01] of 2 failed on "run"/);
    expect(err).toContain('CollectiveMismatchError: call 0 on "run": rank 1 differs in count');
  });

  test("fails with the program's own error, whatever calls it left unawaited", () => {
    const path = program(
      "unawaited",
      `void comm.broadcast({ send: new Int8Array(1), recv: new Int8Array(1), root: 7 });
       throw new RangeError("my own");`,
    );
    const { status, out, err } = run(path, "-n", "2");
    expect({ status, out }).toEqual({ status: 1, out: "" });
    expect(err).toContain("RangeError: my own");
    expect(err).not.toContain("never awaited");
  });

  test("names the rank that failed first, whatever its program left open", () => {
    const path = program(
      "open",
      `if (comm.rank === 0) {
         // A busy launcher sees the end of rank 1 first all the same.
         process.on("exit", () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500));
         return comm.barrier();
       }
       setInterval(() => {}, 1000);
       throw new RangeError("my own");`,
    );
    const { status, err } = run(path, "-n", "2");
    expect(status).toBe(1);
    expect(err).toMatch(/\ntwinccl run: rank 1 failed first after .* s: exit status 1; rank 0/);
  });

  test.each(["strict", "seed 3", "schedule random", "executor cpu", "trace /tmp/x.json"])(
    "refuses --%s, which is of the simulation",
    async (option) => {
      const path = program("none", "");
      const { status, err } = await cli(`run ${path} --backend tcp --${option}`);
      expect(status).toBe(2);
      expect(err).toContain(`backend tcp: ${option.split(" ")[0]} cannot be set from here`);
    },
  );

  test("a missing file is one line, and no process is started", async () => {
    const { status, err } = await cli("run no-such-file.mjs --backend tcp -n 2");
    expect({ status, err }).toEqual({
      status: 2,
      err: "twinccl run: there is no file no-such-file.mjs\nsee twinccl run --help\n",
    });
  });
});
