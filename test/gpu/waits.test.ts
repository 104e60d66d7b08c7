/** A rank that waits for others leaves its core alone, and stops waiting when its signal says so. */
import { expect, test } from "vitest";
import { isShared, jobRanks, runJob } from "./launched-jobs.ts";

const size = Math.min(2, jobRanks);

interface Waited {
  readonly rank: number;
  readonly sums: readonly number[];
  readonly waitedMs: number;
  readonly busyMs: number;
  readonly givenUp?: { readonly tookMs: number };
}

test("a long wait uses no processor time; a signal ends the next wait, and all rebuild", async () => {
  const awayMs = 4000;
  const job = await runJob<Waited>(size, "waits.mjs", String(awayMs));
  expect(job.status, job.text).toBe(0);
  for (const result of job.results) expect(result?.sums, job.text).toEqual([size, size, size]);
  const [first] = job.results as readonly [Waited];
  expect(first.waitedMs).toBeGreaterThan(awayMs / 2);
  const share = first.busyMs / first.waitedMs;
  process.stderr.write(`a waiting process used ${(100 * share).toFixed(1)} % of a core\n`);
  // One that looks without a pause uses all of it: over sockets, NCCL has a thread that does.
  expect(share, job.text).toBeLessThan((isShared ? 1 : 0) + 0.15);
  expect(first, job.text).toMatchObject({
    givenUp: {
      name: "CommAbortedError",
      code: "ERR_COMM_ABORTED",
      collective: "allReduce",
      call: 3,
    },
    next: "ERR_COMM_ABORTED",
  });
  expect(first.givenUp?.tookMs).toBeGreaterThan(250);
  expect(first.givenUp?.tookMs).toBeLessThan(2000);
});
