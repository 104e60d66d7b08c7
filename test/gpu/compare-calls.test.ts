/** Processes that compare their calls before NCCL sees them: wrong ones fail on every rank, and nothing hangs. */
import { expect, test } from "vitest";
import { jobRanks, runJob } from "./launched-jobs.ts";

const size = Math.min(4, jobRanks);

interface RankReport {
  readonly rank: number;
  readonly outcomes: readonly unknown[];
  readonly found: number;
}

const mismatch = (field: string, ranks: readonly number[]): object => {
  return { name: "CollectiveMismatchError", code: "ERR_COMM_MISMATCH", field, ranks };
};

for (const compareCalls of ["always", "once"] as const) {
  test(`compareCalls: "${compareCalls}": wrong calls fail on every rank, and all continue`, async () => {
    const { status, results, text } = await runJob<RankReport>(
      size,
      "compare-calls.mjs",
      compareCalls,
    );
    expect(status, text).toBe(0);
    const outcomes = [
      mismatch("count", [1]),
      "fine",
      mismatch("collective", [1]),
      // Rank 0 is the first with another block length there.
      mismatch("sendCounts[1]", [0, 1]),
      "fine",
      compareCalls === "always" ? mismatch("symmetric send", [1]) : "fine",
      "fine",
      mismatch("count", [size - 1]),
      "fine",
    ];
    const sum = (size * (size + 1)) / 2;
    for (const [rank, result] of results.entries()) {
      expect(result, text).toEqual({ rank, outcomes, found: sum });
    }
  });
}
