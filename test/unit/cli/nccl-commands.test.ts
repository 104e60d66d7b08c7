/** NCCL's settings in command lines, with the simulation in the place of GPUs. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { sim } from "twinccl/sim";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { variantBackend } from "../../../src/cli/backends.ts";
import type { BackendSettings, BackendTable } from "../../../src/cli/context.ts";
import { runTcp } from "../../../src/cli/start-tcp.ts";
import { longTest } from "../../support/long-test.ts";
import { linuxReason } from "../../support/skipped.ts";
import { cli, inContext } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-nccl-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** The settings that reach a table, and backends with the simulation in the place of NCCL. */
function watched(gpus = 8) {
  const seen: BackendSettings[] = [];
  const backends: BackendTable = {
    sim: ({ seed = 0, like, plan }) =>
      sim({ seed, ...(like && { like: "nccl-2.28", ...(plan && { plan }) }) }),
    nccl: (settings) => {
      seen.push(settings);
      const backend = sim({ like: "nccl-2.28", plan: settings.plan ?? {} });
      const plan = { algorithm: "Ring", protocol: "LL", channels: 7 };
      return Object.assign(backend, {
        probe: ({ size }: { size: number }) => ({ ok: size <= gpus, reason: `${gpus} GPUs` }),
        plans: { take: () => (settings.readPlan === true ? [plan] : []) },
      });
    },
  };
  return { seen, backends };
}

describe("the name of a variant", () => {
  test("gives GPUs and pinned plans", async () => {
    const { seen, backends } = watched();
    await variantBackend(
      backends,
      "--backend",
      "nccl:devices=0+2,algorithm=Ring,protocol=LL128,channels=4,rings=0+1",
    );
    expect(seen[0]).toMatchObject({
      devices: [0, 2],
      plan: { algorithm: "Ring", protocol: "LL128", channels: 4, rings: [0, 1] },
    });
  });

  test.each([
    ["nccl:devices=0-1", /devices: found "0-1", needs numbers such as 0\+2\+1/],
    ["nccl:rings=a", /rings: found "a", needs numbers/],
    ["sim:devices=0", /found "devices=0" in "sim:devices=0", needs seed=N/],
  ])("%s is refused", async (name, message) => {
    expect((await cli(`bench all-reduce --backend ${name}`)).err).toMatch(message);
  });
});

test("verify covers the rank counts of both sides, and pinned plans agree with those that are followed", async () => {
  const { backends } = watched(3);
  const line =
    "verify --collective all-reduce --dtype float32 --op sum,avg --backend nccl:protocol=LL,channels=3,rings=0+2+1";
  const pinned = await cli(`${line} --against sim --ranks 3`, { backends });
  // A ring of three ranks does not fit the smaller worlds of a sweep.
  expect(pinned.err).toContain("rings: found 3 ranks, needs all 1 of the world");
  const free = line.replace(",rings=0+2+1", "");
  const like = "--against sim:like=nccl-2.28,protocol=LL,channels=3";
  const { status, out } = await cli(`${free} ${like}`, { backends });
  expect(status).toBe(0);
  expect(out).toContain("1 to 3 ranks");
  const [, results, onBits] = /allReduce +(\d+) +(\d+)/.exec(out) ?? [];
  expect(results).toBe(onBits);
});

test("run takes a pinned ring", async () => {
  const { backends } = watched();
  const file = join(folder, "order.mjs");
  const call = `{ collective: "allReduce", dtype: "float32", op: "sum", count: 1 }`;
  writeFileSync(
    file,
    `export default (comm) => comm.explain(${call}).chunkOf(0).order.join("");\n`,
  );
  const line = `run ${file} -n 3 --backend nccl:algorithm=Ring,rings=0+2+1`;
  const { out } = await cli(line, { backends });
  expect(out).toBe("rank 0: '210'\nrank 1: '210'\nrank 2: '210'\n");
  expect((await cli(`run ${file} --processes`)).err).toContain("--processes: needs --backend nccl");
});

test("a rank of a job with a wrong call in its program fails, and is not wrong usage", async () => {
  const { backends } = watched();
  const file = join(folder, "wrong.mjs");
  const call = `{ send: comm.alloc("float32", 4), op: "summ" }`;
  writeFileSync(file, `export default (comm) => comm.allReduce(${call});\n`);
  const job = { RANK: "0", SIZE: "1", LOCAL_RANK: "0", JOB_ID: "test" };
  for (const [name, value] of Object.entries(job)) vi.stubEnv(`TWINCCL_${name}`, value);
  onTestFinished(() => void vi.unstubAllEnvs());
  const { status, err } = await cli(`run ${file} --backend nccl`, { backends });
  expect(status).toBe(1);
  expect(err).toMatch(
    /^twinccl run: rank 0 of 1 failed on "run"\n {2}rank 0 {2}InvalidArgumentError: .*"summ"/,
  );
});

test("golden record writes the plan that was logged, not the predicted one", async () => {
  const recorded = new URL("../../golden/nccl-2.28.9-h200x8.jsonl", import.meta.url);
  const lines = readFileSync(recorded, "utf8")
    .split("\n")
    .filter((line) => line !== "");
  const path = join(folder, "cases.jsonl");
  writeFileSync(
    path,
    `${lines
      .filter((line) => JSON.parse(line).count < 100)
      .slice(0, 4)
      .join("\n")}\n`,
  );
  const { backends, seen } = watched();
  const { status, out } = await cli(`golden record ${path} --backend nccl`, { backends });
  expect(status).toBe(0);
  const [, ...records] = out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(records.map(({ plan }) => plan)).toEqual(
    records.map(() => ({ algorithm: "Ring", protocol: "LL", channels: 7 })),
  );
  expect(seen.every(({ readPlan }) => readPlan === true)).toBe(true);
});

test("start names the reason where it cannot start processes, and is fine", async () => {
  const { status, out } = await inContext(async (context) => ((await runTcp(context)) ? 0 : 1), {
    main: "/nowhere/main.js",
  });
  expect(out).toMatch(/^# the table of processes over TCP is left out: .*\/nowhere\/main\.js/m);
  expect(status).toBe(0);
});

longTest(
  "start shows the tables of processes and of NCCL, and the bits where there are two GPUs",
  async () => {
    const { backends } = watched(2);
    const { status, out } = await cli("start", { backends });
    expect(out).toMatch(/^# all-reduce of NCCL: 2 GPUs, driven in this one process$/m);
    const [, identical, all] = /^bits: (\d+) of (\d+) identical$/m.exec(out) ?? [];
    expect(Number(all)).toBeGreaterThan(100);
    expect(identical).toBe(all);
    expect(out).toMatch(
      /^# all-reduce: 2 ranks in 2 processes, over TCP\n(#.*\n)+( +\d+ .*\n){4}(#.*\n)+checked [\d,]+ elements of 8 results on 2 ranks: 0 wrong$/m,
    );
    expect(out).toMatch(/\nchecked [\d,]+ elements of 66 results on 8 ranks: 0 wrong\n$/);
    expect(status).toBe(0);
  },
  240_000,
);

describe.skipIf(linuxReason !== "")(
  `on Linux, where a process lists its children${linuxReason}`,
  () => {
    longTest(
      "start ends by a signal that comes while its processes run",
      async () => {
        const main = new URL("../../../dist/cli/main.js", import.meta.url);
        const child = spawn(process.execPath, [fileURLToPath(main), "start"], { stdio: "ignore" });
        const ended = once(child, "exit");
        const children = `/proc/${child.pid}/task/${child.pid}/children`;
        const ranks = () => readFileSync(children, "utf8").trim().split(" ");
        await expect.poll(ranks, { timeout: 120_000 }).toHaveLength(2);
        // The ranks measure for seconds.
        await setTimeout(500);
        child.kill("SIGINT");
        expect(await ended).toEqual([null, "SIGINT"]);
      },
      240_000,
    );
  },
);
