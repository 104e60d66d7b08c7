/** Faults with one process per rank: killed, late and absent ranks. Survivors learn the ranks, and go on without them. */
import { spawn } from "node:child_process";
import { describe, expect, test } from "vitest";
import { isShared, jobPath, jobRanks, runJob } from "./launched-jobs.ts";
import { gpuSizes } from "./machine.ts";

const size = Math.min(4, jobRanks);
/** Of the jobs that lose ranks. */
const most = Math.min(8, jobRanks);
/** Of worlds in one process. */
const here = Math.min(4, (await gpuSizes()).length);

/** A survivor's error of one loss. */
interface Loss {
  readonly lost: number;
  readonly call: number;
  readonly completedCalls: number;
  readonly message: string;
  readonly reportedMs: number;
  readonly rebuilt: { readonly generation: number; readonly initialRanks: readonly number[] };
}

async function expectLosses(victims: readonly number[]): Promise<void> {
  const job = await runJob<{ losses: readonly Loss[] }>(most, "lost-ranks.mjs", victims.join());
  const survivors = job.results.flatMap((result, rank) => (victims.includes(rank) ? [] : [result]));
  expect(survivors.length).toBe(most - victims.length);
  for (const survivor of survivors) {
    expect(survivor?.losses.length, job.text).toBe(victims.length);
    for (const [at, loss] of survivor!.losses.entries()) {
      expect(loss, job.text).toMatchObject({
        name: "RankLostError",
        code: "ERR_COMM_LOST",
        collective: "allReduce",
        call: loss.completedCalls,
        ranks: [loss.lost],
      });
      expect(loss.message).toContain(`allReduce: call ${loss.completedCalls}`);
      expect(loss.message).toContain(`rank ${loss.lost}`);
      expect(loss.reportedMs, "milliseconds from the kill").toBeGreaterThan(0);
      expect(loss.reportedMs).toBeLessThan(5000);
      const gone = victims.slice(0, at + 1);
      const initialRanks = Array.from({ length: most }, (_, rank) => rank);
      expect(loss.rebuilt).toMatchObject({
        generation: at + 2,
        size: most - gone.length,
        initialRanks: initialRanks.filter((rank) => !gone.includes(rank)),
      });
    }
  }
  for (const victim of victims) expect(job.results[victim]).toBeUndefined();
}

describe("a lost rank", () => {
  test("case 7: killed mid-collective, survivors get RankLostError in time; a rebuild works twice in a row", () =>
    expectLosses(most >= 4 ? [1, 2] : [most - 1]));

  test("may be rank 0, first or later", () => expectLosses(most >= 4 ? [0, 1] : [0]));

  test("that never joins is named at the deadline", async () => {
    const { results, text } = await runJob<object>(size, "absent-rank.mjs");
    const there = Array.from({ length: size - 1 }, (_, rank) => rank);
    for (const rank of there) {
      expect(results[rank], text).toMatchObject({
        name: "RendezvousError",
        code: "ERR_COMM_RENDEZVOUS",
        joined: there,
        missing: [size - 1],
        message: expect.stringContaining(`${size - 1} of ${size} joined`),
      });
      expect(results[rank]).toMatchObject({
        message: expect.stringContaining(`missing rank ${size - 1}`),
      });
    }
  });

  /** Runs a job in which NCCL's start goes wrong on one rank; gives the others' errors. */
  async function startsWithout(how: "kill" | "fail", victim: number) {
    interface RankReport {
      readonly sums?: readonly number[];
      readonly at: number;
    }
    const job = await runJob<RankReport>(size, "lost-at-start.mjs", how, String(victim));
    const ended = performance.timeOrigin + performance.now();
    const others = job.results.filter((_, rank) => rank !== victim);
    for (const report of others) {
      expect(report, job.text).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [victim] });
      expect(report).toMatchObject({ tookMs: expect.toSatisfy((ms: number) => ms < 10_000) });
      // NCCL's start, which waits for ever for a rank that will not come, does not keep the process.
      expect(ended - report!.at, "milliseconds to the job's end").toBeLessThan(10_000);
    }
    return job;
  }

  test("during NCCL's start is reported at once, and the remaining ranks end", async () => {
    for (const victim of [0, size - 1]) {
      const { status, results, text } = await startsWithout("kill", victim);
      expect(status, text).toBe(137);
      expect(results[victim]).toBeUndefined();
    }
  });

  test("that fails its first start joins all again", async () => {
    for (const victim of [0, size - 1]) {
      const { status, results, text } = await startsWithout("fail", victim);
      expect(status, text).toBe(0);
      const sum = (size * (size + 1)) / 2;
      for (const report of results) expect(report?.sums, text).toEqual([sum, sum, sum]);
    }
  });

  test("that misses a call's deadline fails it for the others, and all rebuild", async () => {
    interface Late {
      readonly rank: number;
      readonly late?: { readonly tookMs: number };
    }
    const { status, results, text } = await runJob<Late>(size, "late-ranks.mjs");
    expect(status, text).toBe(0);
    for (const [rank, result] of results.entries()) {
      expect(result, text).toMatchObject({
        rank,
        sums: [size, size, size],
        generations: [1, 2, 3],
        stale: ["ERR_COMM_CLOSED", "ERR_COMM_CLOSED", "ERR_COMM_ARG", "ERR_COMM_ARG"],
      });
      if (rank === 1) continue;
      expect(result!.late, text).toMatchObject({
        code: "ERR_COMM_TIMEOUT",
        collective: "allReduce",
        call: 1,
        ranks: [1],
      });
      expect(result!.late!.tookMs).toBeGreaterThan(390);
      expect(result!.late!.tookMs).toBeLessThan(1500);
    }
  });
});

describe("a rank that fails inside NCCL while the others wait for it", () => {
  interface RankReport {
    readonly code: string;
    readonly tookMs: number;
    readonly sums: readonly number[];
    readonly at: number;
  }
  const victim = size - 1;
  const sumWithout = (lost: number | undefined): number => {
    const ranks = Array.from({ length: size }, (_, rank) => rank);
    return ranks.reduce((sum, rank) => (rank === lost ? sum : sum + rank + 1), 0);
  };

  for (const where of ["connectInBackground", "registerWindowInBackground", "splitInBackground"]) {
    test(`in ${where}: killed, the others fail by name and continue without it`, async () => {
      const job = await runJob<RankReport>(size, "lost-in-nccl.mjs", "kill", where, String(victim));
      const ended = performance.timeOrigin + performance.now();
      expect(job.status, job.text).toBe(137);
      const sum = sumWithout(victim);
      for (const report of job.results.slice(0, victim)) {
        // Of a split NCCL itself may hear first.
        const code = where === "splitInBackground" ? /ERR_COMM_(LOST|NCCL)/ : /ERR_COMM_LOST/;
        expect(report, job.text).toMatchObject({ code: expect.stringMatching(code) });
        expect(report).toMatchObject({ sums: [sum, sum, sum] });
        expect(report!.tookMs).toBeLessThan(5000);
        expect(ended - report!.at, "milliseconds to the job's end").toBeLessThan(10_000);
      }
    });

    test(`in ${where}: failing, all fail in time and continue`, async () => {
      const job = await runJob<RankReport>(size, "lost-in-nccl.mjs", "fail", where, String(victim));
      expect(job.status, job.text).toBe(0);
      const sum = sumWithout(undefined);
      for (const [rank, report] of job.results.entries()) {
        // Of a split NCCL itself hears; else the failing rank reports it, or the deadline comes first.
        const code = /ERR_COMM_(ABORTED|TIMEOUT|NCCL)/;
        if (rank !== victim)
          expect(report, job.text).toMatchObject({ code: expect.stringMatching(code) });
        expect(report, job.text).toMatchObject({ sums: [sum, sum, sum] });
        expect(report!.tookMs).toBeLessThan(5000);
      }
    });
  }
});

describe("a rank that ends the communicator where others wait without a deadline", () => {
  /** The error of another rank, its delay, and the sum of the next generation. */
  interface RankReport {
    readonly rank: number;
    readonly code?: string;
    readonly ranks?: readonly number[];
    readonly message?: string;
    readonly tookMs?: number;
    readonly sum?: number;
  }
  const ways = [
    ["abort", "ERR_COMM_ABORTED", /has aborted it: as planned/, 5000],
    ["rebuild", "ERR_COMM_ABORTED", /has aborted it: it was rebuilt/, 5000],
    ["close", "ERR_COMM_REMOTE", /will not make it: it has closed its end/, 20_000],
  ] as const;

  for (const [how, code, message, maxMs] of ways) {
    test(`${how}: the error of the others names it, and their waits end`, async () => {
      const victim = size - 1;
      const { results, status, text } = await runJob<RankReport>(
        size,
        "gives-up.mjs",
        how,
        `${victim}`,
      );
      expect(status, text).toBe(0);
      for (const [rank, report] of results.entries()) {
        if (how === "rebuild") expect(report?.sum, text).toBe(size);
        if (rank === victim) continue;
        // Over sockets one rank may hear of a close, and the others of that one.
        const heard = isShared && how === "close" && report?.code === "ERR_COMM_ABORTED";
        if (!heard) expect(report, text).toMatchObject({ code, ranks: [victim] });
        expect(report?.message, text).toMatch(message);
        expect(report?.tookMs, text).toBeLessThan(maxMs);
      }
    });
  }
});

describe("a rank missing when ranks first connect", () => {
  /** The error of a rank's call. */
  interface RankReport {
    readonly code: string;
    readonly ranks: readonly number[];
    readonly tookMs: number;
  }
  /** Calls that only rank 0 makes. */
  const messages = ["send", "answer"];
  const calls = [
    ...["allReduce", "largeAllReduce", "ring", "allToAll", "symmetric", "moreSymmetric"],
    ...["split", "partAllReduce", "partAllToAll"],
  ];

  test("is named by the deadline, and so is a rank killed there", async () => {
    const { results, text } = await runJob<{ errors: Readonly<Record<string, RankReport>> }>(
      size,
      "first-connections.mjs",
    );
    for (const [rank, result] of results.entries()) {
      if (rank === 1) continue;
      const { errors } = result ?? expect.fail(text);
      const names = rank === 0 ? [...calls, ...messages] : calls;
      expect(Object.keys(errors).sort(), text).toEqual([...names, "killed"].sort());
      for (const name of names) {
        expect(errors[name], name).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
        expect(errors[name]!.tookMs, name).toBeLessThan(1150);
      }
      const { killed } = errors;
      expect(killed).toMatchObject({ code: "ERR_COMM_LOST", ranks: [1] });
      expect(killed!.tookMs).toBeLessThan(5000);
    }
  });
});

/** Runs `ends.mjs`. */
function ended(ranks: number, how: string): Promise<readonly [how: string, status: number | null]> {
  const child = spawn(process.execPath, [jobPath("ends.mjs"), String(ranks), how], {
    stdio: ["ignore", "ignore", "inherit"],
    timeout: 60_000,
  });
  return new Promise((resolve) => {
    child.once("close", (status) => resolve([how, status]));
  });
}

test("five processes that end without closing anything end with status 0", async () => {
  const ways = ["return", "exit", "split", "graph", "open-calls"];
  const ends = await Promise.all(ways.map((how) => ended(Math.min(2, here), how)));
  expect(ends).toEqual(ways.map((how) => [how, 0]));
});
