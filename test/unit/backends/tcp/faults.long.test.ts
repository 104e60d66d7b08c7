/** Faults with a process for each rank: lost, stopped, late and absent ranks, wrong calls, ends of the job. Nothing hangs. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { type JobResults, runScript, type ScriptSettings } from "../../../support/script-jobs.ts";
import { isRunning, type Launch, launch } from "../../job/launched.ts";

const size = 3;
const env = { TWINCCL_TEST_BACKEND: "tcp" };

/** Runs a script of the tests on GPUs. */
function shared<R>(ranks: number, script: string, ...args: readonly string[]) {
  return runScript<R>(ranks, pathOf(`../../../gpu/jobs/${script}`), args, { env });
}

function pathOf(path: string): string {
  return fileURLToPath(new URL(path, import.meta.url));
}

/** The outcome of a call. */
interface Outcome {
  readonly code: string;
  readonly ranks?: readonly number[];
  readonly message?: string;
  readonly tookMs: number;
}

type Report = Readonly<Record<string, Outcome>> & {
  readonly sum?: number;
  readonly found?: readonly number[];
  readonly calls?: number;
};

/** Runs a scenario of `jobs/faults.mjs`. */
function scenario(
  name: string,
  args: readonly string[] = [],
  watch?: ScriptSettings["watch"],
): Promise<JobResults<Report>> {
  const path = pathOf("jobs/faults.mjs");
  return runScript<Report>(size, path, [name, ...args], watch === undefined ? {} : { watch });
}

describe("a lost rank", () => {
  interface Loss {
    readonly lost: number;
    readonly completedCalls: number;
  }
  test.each([
    [1, 2],
    [0, 1],
  ])(
    "killed in a stream of calls, rank %i then rank %i: survivors have its name and rebuild",
    async (...victims) => {
      const job = await shared<{ losses: readonly Loss[] }>(4, "lost-ranks.mjs", victims.join());
      const survivors = job.results.filter((_, rank) => !victims.includes(rank));
      for (const survivor of survivors) {
        expect(survivor?.losses.length, job.text).toBe(2);
        for (const [at, loss] of survivor!.losses.entries()) {
          expect(loss, job.text).toMatchObject({
            ...{ name: "RankLostError", code: "ERR_COMM_LOST", collective: "allReduce" },
            ...{ call: loss.completedCalls, ranks: [loss.lost] },
            message: expect.stringContaining(`rank ${loss.lost}`),
            reportedMs: expect.toSatisfy((ms: number) => ms < 5000),
            rebuilt: { generation: at + 2, size: 3 - at },
          });
        }
      }
    },
  );

  test("that hosts the store is named too, without a launcher", async () => {
    const all = {
      TWINCCL_JOB_ID: `alone-${process.pid}`,
      TWINCCL_SIZE: "3",
      TWINCCL_LOCAL_SIZE: "3",
    };
    const ranks = [0, 1, 2].map((rank) => {
      const place = { TWINCCL_RANK: `${rank}`, TWINCCL_LOCAL_RANK: `${rank}` };
      const child = spawn(process.execPath, [pathOf("jobs/faults.mjs"), "endless"], {
        env: { ...process.env, ...all, ...place },
        stdio: ["ignore", "pipe", "inherit"],
        timeout: 60_000,
      });
      child.stdout.setEncoding("utf8");
      return child;
    });
    const texts = ranks.map(async ({ stdout }) => {
      let text = "";
      for await (const chunk of stdout) text += chunk;
      return text;
    });
    await once(ranks[0]!.stdout, "data");
    await new Promise((resolve) => setTimeout(resolve, 500));
    ranks[0]!.kill("SIGKILL");
    for (const text of (await Promise.all(texts)).slice(1)) {
      expect(text).toMatch(/"code":"ERR_COMM_LOST","ranks":\[0\]/);
    }
  });

  test("that throws is named, and the others rebuild", async () => {
    const { results, text } = await scenario("throws");
    for (const report of [results[0], results[2]]) {
      expect(report, text).toMatchObject({ lost: { code: "ERR_COMM_LOST", ranks: [1] }, sum: 2 });
    }
  });

  test("that never joins is named at the deadline", async () => {
    const { results, text } = await shared<object>(size, "absent-rank.mjs");
    const facts = { code: "ERR_COMM_RENDEZVOUS", joined: [0, 1], missing: [2] };
    for (const report of results.slice(0, 2)) expect(report, text).toMatchObject(facts);
  });

  test("that misses a deadline is named, and all rebuild", async () => {
    const { status, results, text } = await shared<object>(size, "late-ranks.mjs");
    expect(status, text).toBe(0);
    for (const [rank, report] of results.entries()) {
      expect(report, text).toMatchObject({ sums: [size, size, size], generations: [1, 2, 3] });
      if (rank === 1) continue;
      const late = { code: "ERR_COMM_TIMEOUT", collective: "allReduce", call: 1, ranks: [1] };
      expect(report, text).toMatchObject({ late });
    }
  });

  test("that is stopped is named at the deadline, and continues with the others", async () => {
    const { results, status, text } = await scenario("stops", [], async (job) => {
      await Promise.all([0, 2].map((rank) => job.printed(`tried ${rank}`)));
      process.kill(await pidOf(job, 1), "SIGCONT");
    });
    expect(status, text).toBe(0);
    for (const [rank, report] of results.entries()) {
      expect(report?.sum, text).toBe(size);
      if (rank === 1) continue;
      expect(report?.["stopped"], text).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
      // The stopped rank has a second to answer.
      expect(report?.["stopped"]?.tookMs, text).toBeLessThan(4500);
    }
    expect(results[1]?.["stopped"]?.code, text).not.toBe("fine");
  });
});

// Most of their time is waits of the ranks.
describe.concurrent("a rank that ends the communicator", () => {
  const ways = [
    ["abort", /has aborted it: as planned/],
    ["rebuild", /has aborted it: it was rebuilt/],
    ["close", /rank 2 will not make it: it has closed its end/],
  ] as const;
  const waits = ways.flatMap(([how, message]) =>
    ["allReduce", "recv"].map((call) => ({ how, call, message })),
  );
  test.each(waits)("by $how ends the $call of the others with its name", async (row) => {
    const { how, call, message } = row;
    const { results, status, text } = await shared<Outcome>(size, "gives-up.mjs", how, "2", call);
    expect(status, text).toBe(0);
    for (const report of results.slice(0, 2)) {
      expect(report?.code, text).toMatch(/ERR_COMM_(ABORTED|REMOTE)/);
      expect(report?.message, text).toMatch(message);
      expect(report?.tookMs, text).toBeLessThan(5000);
    }
  });

  test("after its part of a gather leaves the others their call", async () => {
    const { results, status, text } = await scenario("leaves-early");
    expect(status, text).toBe(0);
    for (const report of results) expect(report?.["gather"]?.code, text).toBe("fine");
    expect(results[0]?.found).toEqual([1, 2, 3]);
  });

  test("leaves the others their messages", async () => {
    const { results, status, text } = await scenario("messages-of-the-others");
    expect(status, text).toBe(0);
    const facts = { message: { code: "fine" }, found: [2, 2, 2, 2] };
    expect([results[0], results[2]], text).toMatchObject([facts, facts]);
  });

  test("waits a bounded time for stuck ranks", async () => {
    const jobs = [
      shared<Outcome>(2, "close.mjs", "open", "3000", "12000"),
      shared<Outcome>(2, "close.mjs", "idle", "60000", "12000"),
    ];
    for (const { results, status, text } of await Promise.all(jobs)) {
      expect(status, text).toBe(0);
      expect(results[0]?.tookMs, text).toBeLessThan(10_000);
    }
  });

  test("opens again with the others", async () => {
    const { results, status, text } = await shared<object>(size, "opens-again.mjs");
    expect(status, text).toBe(0);
    for (const report of results)
      expect(report, text).toMatchObject({ sums: [[6], [6], [6]].map(() => [6, 6, 6, 6]) });
  });
});

describe("calls that differ", () => {
  test("fail without comparison by the length of a message", async () => {
    const { results, status, text } = await scenario("differs", ["off"]);
    expect(status, text).toBe(0);
    for (const report of results) {
      expect(report?.["differs"]?.code, text).toMatch(/ERR_COMM_(MISMATCH|ABORTED)/);
      expect(report?.["differs"]?.tookMs, text).toBeLessThan(4500);
      expect(report?.sum, text).toBe(size);
    }
    expect(results.map((report) => report?.["differs"]?.code)).toContain("ERR_COMM_MISMATCH");
  });

  test("of a new kind on one rank fail by name when compared once", async () => {
    const { results, status, text } = await scenario("differs", ["once"]);
    expect(status, text).toBe(0);
    expect(results[1]?.["differs"], text).toMatchObject({ code: "ERR_COMM_MISMATCH" });
    for (const report of results) {
      expect(report?.["differs"]?.code, text).toMatch(/ERR_COMM_(MISMATCH|ABORTED)/);
      expect(report?.sum, text).toBe(size);
    }
  });

  test.each(["always", "once"])(
    "fail on every rank when compared %s, and all continue",
    async (mode) => {
      interface Compared {
        readonly outcomes: readonly unknown[];
        readonly found: number;
      }
      const { results, status, text } = await shared<Compared>(size, "compare-calls.mjs", mode);
      expect(status, text).toBe(0);
      const mismatch = (field: string, ranks: readonly number[]) => ({
        ...{ name: "CollectiveMismatchError", code: "ERR_COMM_MISMATCH", field, ranks },
      });
      const outcomes = [
        mismatch("count", [1]),
        "fine",
        mismatch("collective", [1]),
        mismatch("sendCounts[1]", [0, 1]),
        "fine",
        mode === "always" ? mismatch("symmetric send", [1]) : "fine",
        "fine",
        mismatch("count", [size - 1]),
        "fine",
      ];
      for (const report of results) expect(report, text).toMatchObject({ outcomes, found: 6 });
    },
  );
});

describe("the end of a job", () => {
  test.each([1, 100_000])(
    "by the exit of a rank after its call leaves the others its %i elements",
    async (length) => {
      const { results, status, text } = await scenario("exits-after-broadcast", [`${length}`]);
      expect(status, text).toBe(0);
      for (const report of results)
        expect(report, text).toMatchObject({ broadcast: { code: "fine" }, wrong: 0 });
    },
  );

  test.each([1, 100_000])(
    "by the exit of a rank after it has sent leaves a later receiver its %i elements",
    async (length) => {
      const { status, results, text } = await scenario("exits-after-send", [`${length}`]);
      expect(status, text).toBe(0);
      expect(results[1], text).toMatchObject({ recv: { code: "fine" }, wrong: 0 });
    },
  );

  test("by the exit of a rank with unread reports leaves a receiver that computes its messages", async () => {
    const { status, results, text } = await scenario("exits-with-unread-reports", ["250000"]);
    expect(status, text).toBe(0);
    expect(results[1], text).toMatchObject({ recv: { code: "fine" }, wrong: 0 });
  });

  test.each([1, 20_000])(
    "by the exit of a rank leaves the others its %i elements that another rank passes on late",
    async (length) => {
      const { results, status, text } = await scenario("exits-before-they-are-passed-on", [
        `${length}`,
      ]);
      expect(status, text).toBe(0);
      for (const report of results)
        expect(report, text).toMatchObject({ broadcast: { code: "fine" }, wrong: 0 });
    },
  );

  test.each([1, 200_000])(
    "by the exit of a rank leaves the others its %i elements for a call that begins within the bound of its loss",
    async (length) => {
      const { results, status, text } = await scenario("exits-before-a-later-call", [`${length}`]);
      expect(status, text).toBe(0);
      for (const report of results)
        expect(report, text).toMatchObject({ broadcast: { code: "fine" }, wrong: 0 });
    },
  );

  test("by the user's interrupt ends all ranks", async () => {
    const path = pathOf("jobs/faults.mjs");
    const job = launch(["-n", String(size), "--grace", "2", "--", path, "endless"]);
    const pids = await Promise.all([0, 1, 2].map((rank) => pidOf(job, rank)));
    job.process.kill("SIGINT");
    await job.ended;
    await expect.poll(() => pids.filter(isRunning), { timeout: 10_000 }).toEqual([]);
  });

  test("by the end of its launcher ends all ranks", async () => {
    const path = pathOf("jobs/faults.mjs");
    const job = launch(["-n", String(size), "--grace", "2", "--", path, "endless"]);
    const pids = await Promise.all([0, 1, 2].map((rank) => pidOf(job, rank)));
    job.process.kill("SIGKILL");
    await expect.poll(() => pids.filter(isRunning), { timeout: 20_000 }).toEqual([]);
  });

  test("20 processes end without a close, with status 0 and their results", async () => {
    const jobs = Array.from({ length: 10 }, () => shared<{ sum: number }>(2, "never-closes.mjs"));
    for (const { status, results, text } of await Promise.all(jobs)) {
      expect(status, text).toBe(0);
      expect(
        results.map((report) => report?.sum),
        text,
      ).toEqual([3, 3]);
    }
  });
});

/** The process of a rank, once it has printed its number. */
async function pidOf(job: Launch, rank: number): Promise<number> {
  const text = await job.printed(`of rank ${rank}\n`);
  return Number(new RegExp(`pid (\\d+) of rank ${rank}`).exec(text)?.[1]);
}
