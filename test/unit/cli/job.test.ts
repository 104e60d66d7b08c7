/** Jobs of one command: several, one after another or at a time. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { runJob } from "../../../src/cli/launch/job.ts";
import { JobProcesses } from "../../../src/cli/launch/processes.ts";
import { PrefixedOutput } from "../../../src/cli/launch/report.ts";
import { onOutputClosed } from "../../../src/cli/output.ts";
import { startRanks } from "../../../src/cli/placement.ts";
import { posixReason } from "../../support/skipped.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-job-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs a script in one process; `onReady` is called with its first message. */
function job(name: string, source: string, onReady?: () => void): Promise<number> {
  const script = join(folder, `${name}.cjs`);
  writeFileSync(script, source);
  return runJob(
    {
      ...{ name, size: 1, hosts: 1, command: [script], onFailure: "kill", graceMs: 20_000 },
      report: new PrefixedOutput(),
      onMessage: () => onReady?.(),
    },
    { err: () => undefined },
  );
}

/** Takes some time for its end after a signal. */
const tidy = `process.on("SIGHUP", () => setTimeout(() => process.exit(7), 500));
  setInterval(() => undefined, 1000);
  process.send({ toTwincclLauncher: "ready" });`;

describe.skipIf(posixReason !== "")(`a signal${posixReason}`, () => {
  test("is handed on once, also to a job after others", async () => {
    expect(await job("first", "process.disconnect();")).toBe(0);
    const second = job("second", tidy, () => process.kill(process.pid, "SIGHUP"));
    expect(await second).toBe(7);
  });

  test("of the program's own does not end the launcher after the job", async () => {
    expect(await job("over", "process.disconnect();")).toBe(0);
    const raised = vi.spyOn(process, "kill").mockReturnValue(true);
    onTestFinished(() => raised.mockRestore());
    for (const signal of ["SIGUSR1", "SIGUSR2"] as const) process.emit(signal, signal);
    expect(raised).not.toHaveBeenCalled();
  });
});

/** As a failed write does. */
function closeOutput(): void {
  for (const listener of onOutputClosed) listener();
}

describe.skipIf(posixReason !== "")(`an output without a reader${posixReason}`, () => {
  test("ends a job with status 141, also where its rank ends well at SIGTERM", async () => {
    const ends = `process.on("SIGTERM", () => process.exit(0));
      setInterval(() => undefined, 1000);
      process.send({ toTwincclLauncher: "ready" });`;
    expect(await job("unread", ends, closeOutput)).toBe(141);
  });

  test("does not end the grace time of a job that is being stopped", async () => {
    const isTidied = job("interrupted", tidy, () => {
      process.kill(process.pid, "SIGHUP");
      setTimeout(closeOutput, 100);
    });
    expect(await isTidied).toBe(7);
  });
});

test("the summary lists runs of ranks by their ends", async () => {
  const script = join(folder, "five.cjs");
  writeFileSync(
    script,
    `if (process.env.TWINCCL_RANK === "4") process.exit(3);
     setInterval(() => undefined, 1000);`,
  );
  let summary = "";
  const status = await runJob(
    {
      ...{ name: "launch", size: 5, hosts: 1, command: [script], onFailure: "kill" },
      ...{ graceMs: 20_000, report: new PrefixedOutput(), onEnded: () => undefined },
    },
    { err: (text) => (summary += text) },
  );
  expect(status).toBe(3);
  expect(summary).toMatch(/^twinccl launch: rank 4 failed first .*; ranks 0\.\.3 stopped\n$/);
});

describe.skipIf(posixReason !== "")(`a process that Node.js refuses to start${posixReason}`, () => {
  test("ends the job as one that could not start, by rank and script", async () => {
    const script = join(folder, "refused.cjs");
    let summary = "";
    const status = await runJob(
      {
        ...{ name: "launch", size: 2, hosts: 1, command: [script, "a\0b"], onFailure: "kill" },
        ...{ graceMs: 20_000, report: new PrefixedOutput(), onEnded: () => undefined },
      },
      { err: (text) => (summary += text) },
    );
    expect(status).toBe(127);
    expect(summary).toMatch(
      /^twinccl launch: rank 0 failed first after .* s: it could not start: .*refused\.cjs: .* null bytes.*; rank 1 /,
    );
  });

  test("stops the other ranks", async () => {
    const script = join(folder, "lasting.cjs");
    writeFileSync(script, "setInterval(() => undefined, 1000);");
    const job = new JobProcesses({
      ...{ size: 3, hosts: 1, command: [script], jobId: "launch-refused", onFailure: "kill" },
      ...{ graceMs: 20_000, report: new PrefixedOutput(), onEnded: () => undefined },
      variables: (rank) => (rank === 1 ? { NAME: "a\0b" } : process.env),
    });
    const ends = await job.ended;
    expect(ends.map(({ rank, status, isStopped }) => ({ rank, status, isStopped }))).toEqual([
      { rank: 1, status: 127, isStopped: false },
      { rank: expect.any(Number), status: 143, isStopped: true },
      { rank: expect.any(Number), status: 143, isStopped: true },
    ]);
  });
});

test("messages that a program sends by itself are not for the launcher", async () => {
  const script = join(folder, "sending.cjs");
  writeFileSync(
    script,
    `for (const each of ["ready", null, { toString: 1 }, { toTwincclLauncher: "own" }]) process.send(each);
     process.disconnect();`,
  );
  const found: unknown[] = [];
  const onMessage = (_: number, message: unknown): void => void found.push(message);
  const context = { err: () => undefined, main: script, clearProgress: () => undefined };
  await startRanks({ name: "run", args: [], size: 1, onMessage }, context);
  expect(found).toEqual(["own"]);
});

test("the line of progress is erased before a line of a rank", async () => {
  const script = join(folder, "speaking.cjs");
  writeFileSync(script, 'console.error("a line");');
  const shown: string[] = [];
  const writing = vi.spyOn(process.stderr, "write").mockImplementation((text) => {
    shown.push(String(text));
    return true;
  });
  const context = { err: () => undefined, main: script, clearProgress: () => shown.push("erased") };
  await startRanks({ name: "record", args: [], size: 1 }, context);
  writing.mockRestore();
  expect(shown).toEqual(["erased", "a line\n"]);
});
