/** The guardian of a launched job, whose launcher is killed while it starts ranks. */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { Guardian } from "../../../src/cli/launch/guardian.ts";
import { closeAfter } from "../../support/opened.ts";
import { linuxReason } from "../../support/skipped.ts";

/** A process as a launcher starts it, which has printed a line. */
async function started(jobId: string, source = ""): Promise<ChildProcess> {
  const lasting = `${source}; console.log("runs"); setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ["-e", lasting], {
    env: { ...process.env, TWINCCL_JOB_ID: jobId },
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  });
  closeAfter(async () => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  return child;
}

const newId = () => `launch-${randomBytes(8).toString("hex")}`;

describe.skipIf(linuxReason !== "")(
  `a rank that its launcher could not register${linuxReason}`,
  () => {
    test("is stopped where the launcher ends before all have started", async () => {
      const jobId = newId();
      const [rank, other] = [await started(jobId), await started(newId())];
      const ended = once(rank, "exit");
      new Guardian(60_000, jobId).close();
      expect(await ended).toEqual([null, "SIGTERM"]);
      expect(other.exitCode ?? other.signalCode).toBe(null);
    });

    test("is killed after the grace time", async () => {
      const jobId = newId();
      const rank = await started(jobId, `process.on("SIGTERM", () => undefined)`);
      const ended = once(rank, "exit");
      new Guardian(300, jobId).close();
      expect(await ended).toEqual([null, "SIGKILL"]);
    });

    test("outlives the guardian once all have started, as what ranks leave behind does", async () => {
      const jobId = newId();
      const left = await started(jobId);
      const registered = await started(newId());
      const ended = once(registered, "exit");
      const guardian = new Guardian(60_000, jobId);
      guardian.started(registered.pid as number);
      guardian.allStarted();
      guardian.close();
      expect(await ended).toEqual([null, "SIGTERM"]);
      expect(left.exitCode ?? left.signalCode).toBe(null);
    });
  },
);

test("a guardian that Node.js refuses to start is left out", () => {
  const guardian = new Guardian(60_000, "a\0b");
  guardian.started(1);
  guardian.allStarted();
  guardian.ended(1);
  guardian.close();
});
