/**
 * One process per rank, as `twinccl launch` starts them: every collective has the simulation's bits, also between
 * imitated nodes, and ranks that come late, twice or from another job are waited for or refused.
 */
import fc from "fast-check";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import {
  type ConformanceParts,
  expectSame,
  gatherRun,
  programs,
  runProgram,
} from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { claimedBits, takenByNccl } from "../support/claimed-programs.ts";
import { LaunchedRanks } from "../support/launched-ranks.ts";
import { replay, runsOf } from "../support/seed.ts";
import { isShared, jobPath, jobRanks, runJob } from "./launched-jobs.ts";
import { gpuSizes, testOn } from "./machine.ts";

const found = (await gpuSizes()).length;
const size = Math.min(4, jobRanks);
/** Nodes that are imitated: ranks that share a GPU have one each. NCCL's order is known there for exact values alone. */
const apart = isShared ? size : 2;
const sharing = isShared ? { exact: true, symmetric: false } : {};

/** The output of a rank of `every-call-job.mjs`. */
interface EveryCall {
  readonly rank: number;
  readonly calls: Readonly<Record<string, string>>;
  readonly entered: number;
  readonly left: number;
  readonly smallMs: number;
}

/** The same calls in a simulated world. */
async function simulated(
  ranks: number,
  options: object,
): Promise<Readonly<Record<string, string>>[]> {
  const path = new URL("jobs/every-call.mjs", import.meta.url).href;
  const { everyCall } = await import(path);
  const world = await createWorld({ backend: sim(), size: ranks });
  try {
    return await world.run((comm) => everyCall(comm, options));
  } finally {
    await world.close();
  }
}

/** Dtypes that the GPUs do not take are no difference. */
function assertSame(
  norm: readonly Readonly<Record<string, string>>[],
  results: readonly (EveryCall | undefined)[],
  text: string,
): void {
  for (const [rank, needed] of norm.entries()) {
    const calls = results[rank]?.calls;
    expect(calls, `rank ${rank} has a result; ${text}`).toBeDefined();
    const names = Object.keys(needed).filter((name) => !name.includes("float8") || name in calls!);
    expect(Object.keys(calls!).sort(), `calls of rank ${rank}`).toEqual(names.sort());
    const different = names.filter((name) => calls![name] !== needed[name]);
    const shown = different.slice(0, 5).map((name) => [name, calls![name], needed[name]]);
    expect(shown, `rank ${rank}: ${different.length} of ${names.length} results`).toEqual([]);
  }
}

/** Case 9. */
function assertBarrierHeld(results: readonly (EveryCall | undefined)[]): void {
  const lastEntered = Math.max(...results.map((each) => each!.entered));
  const firstLeft = Math.min(...results.map((each) => each!.left));
  expect(firstLeft, "no rank leaves before the last enters").toBeGreaterThanOrEqual(lastEntered);
}

describe(isShared ? "processes that share a GPU" : "one process per GPU", () => {
  for (const ranks of [2, 4, 8]) {
    testOn(ranks, jobRanks)(
      `gives the simulation's bits on ${ranks}; case 9: a barrier really holds`,
      async () => {
        const nodes = isShared ? ["--nodes", String(ranks)] : [];
        const job = await runJob<EveryCall>(ranks, "every-call-job.mjs", ...nodes);
        const { status, results, text } = job;
        expect(status, text).toBe(0);
        assertSame(await simulated(ranks, sharing), results, text);
        assertBarrierHeld(results);
      },
    );
  }

  testOn(2, found)(
    "on two imitated nodes gives exact results; case 13: small messages over sockets take far below a millisecond",
    async () => {
      const job = await runJob<EveryCall>(size, "every-call-job.mjs", "--nodes", "2");
      expect(job.status, job.text).toBe(0);
      assertSame(await simulated(size, { exact: true, symmetric: false }), job.results, job.text);
      assertBarrierHeld(job.results);
      const times = job.results.map((each) => each!.smallMs);
      process.stderr.write(
        `4 KiB over sockets: ${times.map((ms) => ms.toFixed(3)).join(", ")} ms\n`,
      );
      // The stalls that this case is about are delayed acknowledgements of 40 ms and more.
      for (const ms of times) expect(ms).toBeLessThan(1);
    },
  );

  const seed = replay.seed;
  for (const [name, nodes, gpus] of [
    ["between GPUs of one host", 1, 2],
    [`on ${apart} imitated nodes`, apart, isShared ? 1 : 2],
  ] as const) {
    testOn(gpus, found)(
      `random programs have the simulation's bits ${name}, seed ${seed}`,
      async () => {
        const exact = { payload: "exact", scalarsDiffer: false } as const;
        const sizes = fc.constant(size);
        const drawn = programs({ ...(nodes > 1 ? exact : claimedBits), sizes, maxSplits: 1 });
        const taken = fc.sample(drawn, { seed, numRuns: runsOf(40) }).map(takenByNccl);
        expect(taken.length).toBeGreaterThan(0);
        const ranks = await LaunchedRanks.open<ConformanceParts>({
          size,
          script: jobPath("conformance-rank.mjs"),
          args: ["--nodes", String(nodes)],
          partMs: 150_000,
        });
        const held = await ranks.each("programs", taken);
        await ranks.close();
        for (const [at, program] of taken.entries()) {
          const byRank = held.map((each) => each[at] ?? []);
          expectSame(gatherRun(program, byRank, "nccl"), await runProgram(sim(), program));
        }
      },
    );
  }

  test("first messages connect in any order of the calls, and calls that differ fail", async () => {
    const job = await runJob<Readonly<Record<string, unknown>>>(size, "first-exchanges.mjs");
    expect(job.status, job.text).toBe(0);
    for (const [rank, report] of job.results.entries()) {
      const came = rank < 2 ? true : undefined;
      expect(report?.["receivesFirst"], job.text).toBe(came);
      expect(report?.["sendsFirst"], job.text).toBe(came);
      const unlike = /^ERR_COMM_TIMEOUT .*all ranks made the call, but its setup did not complete/;
      expect(report?.["counts"], job.text).toMatch(unlike);
      expect(report?.["symmetric"], job.text).toMatch(unlike);
    }
  });

  test("case 8: a slow-starting rank joins; a duplicate rank and a stale job id are refused", async () => {
    interface Intruded {
      readonly before: number;
      readonly after: number;
      readonly refused?: readonly unknown[];
    }
    const { status, results, text } = await runJob<Intruded>(size, "intruders.mjs");
    expect(status, text).toBe(0);
    const sum = (size * (size + 1)) / 2;
    for (const each of results) expect(each, text).toMatchObject({ before: sum, after: sum });
    const refusal = { name: "RendezvousError", code: "ERR_COMM_RENDEZVOUS" };
    expect(results[0]?.refused).toEqual([refusal, refusal]);
  });
});
