/** Closing takes a bounded time on real GPUs, whatever the other ranks do, and leaves a process that ends by itself. */
import { describe, expect, test } from "vitest";
import { type JobResults, jobRanks, runJob } from "./launched-jobs.ts";

const size = Math.min(2, jobRanks);

interface Closed {
  readonly tookMs?: number;
  readonly failure?: { readonly name: string; readonly code: string };
  readonly open?: unknown;
  readonly warnings: readonly object[];
}

/** NCCL's longest time to end or abort, and the slack for slow machines. */
const [ncclMs, slackMs] = [10_000, 5_000];

/** Rank 0 closes while the others do nothing for so long. */
async function closed(
  how: "open" | "idle",
  patienceMs: number,
  stuckMs: number,
): Promise<JobResults<Closed> & { readonly first: Closed }> {
  const job = await runJob<Closed>(size, "close.mjs", how, String(patienceMs), String(stuckMs));
  expect(job.status, job.text).toBe(0);
  return { ...job, first: job.results[0] as Closed };
}

describe("a rank that closes while the others are stuck", () => {
  test("waits for its open call until its deadline, then aborts it", async () => {
    const patienceMs = 5000;
    const { first, text } = await closed("open", patienceMs, 20_000);
    expect(first.tookMs, text).toBeGreaterThan(patienceMs - 100);
    expect(first.tookMs, text).toBeLessThan(patienceMs + ncclMs + slackMs);
    expect(first.open, text).toMatchObject({
      name: "CommAbortedError",
      code: "ERR_COMM_ABORTED",
    });
  });

  test("waits a bounded time for the other ranks' part of closing", async () => {
    const { first, text } = await closed("idle", 60_000, 15_000);
    expect(first.tookMs, text).toBeLessThan(2 * ncclMs + slackMs);
    expect(first.failure, text).toBeUndefined();
    // A rank that gave up waiting warns.
    const warned = (first.tookMs as number) >= ncclMs ? [{ code: "ERR_COMM_TIMEOUT" }] : [];
    expect(first.warnings, text).toMatchObject(warned);
  });
});

test("a call behind the end of a communicator leaves the event loop free while it waits for another rank", async () => {
  const { status, results, text } = await runJob<{ readonly longestMs: number }>(
    size,
    "behind-an-end.mjs",
  );
  expect(status, text).toBe(0);
  // The other rank comes 400 ms later.
  expect(results[0]?.longestMs, text).toBeLessThan(200);
});

test("communicators end beside calls that ranks make on several streams in different orders", async () => {
  const { status, results, text } = await runJob<{ readonly sums: readonly number[] }>(
    size,
    "ends-beside-streams.mjs",
  );
  expect(status, text).toBe(0);
  const sums = Array.from({ length: 24 }, () => size);
  expect(results, text).toMatchObject(Array.from({ length: size }, () => ({ sums })));
});

test("a job of processes that end without close() succeeds", async () => {
  const began = performance.now();
  const { status, results, text } = await runJob<{ readonly sum: number }>(
    size,
    "never-closes.mjs",
  );
  expect(status, text).toBe(0);
  expect(performance.now() - began, text).toBeLessThan(60_000);
  expect(results, text).toMatchObject(Array.from({ length: size }, () => ({ sum: 3 })));
});

test("a closed job opens again, whichever rank closed it last", async () => {
  const { status, results, text } = await runJob<{ readonly sums: unknown }>(
    size,
    "opens-again.mjs",
  );
  expect(status, text).toBe(0);
  const sums = Array.from({ length: 3 }, () => Array.from({ length: 4 }, () => 3));
  expect(results, text).toMatchObject(Array.from({ length: size }, () => ({ sums })));
});
