// Writes `N passed, N failed` (and `, N skipped`) as the very last line of a test run, and in CI the slowest tests before it.
//
// It is written while the process exits, because anything earlier can be followed by other output.
// What is not a test case but went wrong (a file that did not load, a failed hook, an unhandled
// error, a run that never ended) counts as failed: a green line must mean a green run.

import { writeSync } from "node:fs";
import type { Reporter, SerializedError, TestModule, TestRunEndReason } from "vitest/node";

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

function countModule(testModule: TestModule, counts: Counts): void {
  for (const testCase of testModule.children.allTests()) {
    const { state } = testCase.result();
    if (state === "passed") counts.passed += 1;
    else if (state === "failed") counts.failed += 1;
    else counts.skipped += 1;
  }
  counts.failed += testModule.errors().length;
  for (const suite of testModule.children.allSuites()) counts.failed += suite.errors().length;
}

/** Tests that CI shows with their times. */
const slowestShown = 20;

function slowestOf(testModules: readonly TestModule[]): string[] {
  const timed = testModules.flatMap((testModule) =>
    [...testModule.children.allTests()].map((testCase) => ({
      ms: testCase.diagnostic()?.duration ?? 0,
      name: `${testModule.relativeModuleId}: ${testCase.fullName}`,
    })),
  );
  timed.sort((a, b) => b.ms - a.ms);
  return timed.slice(0, slowestShown).map(({ ms, name }) => `${(ms / 1000).toFixed(1)} s  ${name}`);
}

function writeLine(line: string): void {
  // A full pipe makes a synchronous write fail with EAGAIN; the reader will come.
  for (;;) {
    try {
      writeSync(1, `${line}\n`);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") return;
    }
  }
}

// biome-ignore lint/style/noDefaultExport: vitest loads a reporter by its default export
export default class ClosingLineReporter implements Reporter {
  // Until a run has ended, the truth is that it failed.
  private counts: Counts = { passed: 0, failed: 1, skipped: 0 };

  onInit(): void {
    process.on("exit", (code) => {
      const { passed, skipped } = this.counts;
      const failed = code === 0 ? this.counts.failed : Math.max(1, this.counts.failed);
      const tail = skipped > 0 ? `, ${skipped} skipped` : "";
      writeLine(`${passed} passed, ${failed} failed${tail}`);
      if (failed > 0 && code === 0) process.exitCode = 1;
    });
  }

  onTestRunEnd(
    testModules: readonly TestModule[],
    unhandledErrors: readonly SerializedError[],
    reason: TestRunEndReason,
  ): void {
    const counts: Counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const testModule of testModules) countModule(testModule, counts);
    if (reason !== "passed") counts.failed = Math.max(1, counts.failed);
    this.counts = counts;
    if (process.env["CI"] !== undefined) {
      writeLine(`the slowest tests:\n${slowestOf(testModules).join("\n")}`);
    }
  }
}
