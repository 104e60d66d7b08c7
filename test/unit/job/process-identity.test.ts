/** Detection of the process that left a file behind, under any name and owner. */
import { spawn } from "node:child_process";
import { copyFileSync, readFileSync } from "node:fs";
import { expect, onTestFinished, test, vi } from "vitest";
import { stateOf, thisProcess } from "../../../src/job/file-record.ts";
import { closeAfter } from "../../support/opened.ts";
import { scratch } from "./launched.ts";

test("this process runs, and a process of its number with another start time has ended", () => {
  const identity = thisProcess();
  expect(stateOf(identity)).toBe("runs");
  expect(stateOf({ ...identity, started: `${Number(identity.started) - 1}` })).toBe("ended");
  // Where that is not known, the number has to do.
  expect(stateOf({ ...identity, started: "" })).toBe("runs");
});

test("a process's name may look like the rest of the line in /proc", async () => {
  const path = scratch("a) S 1 (b");
  copyFileSync("/bin/sleep", path);
  const child = spawn(path, ["100"]);
  closeAfter(async () => child.kill("SIGKILL"));
  const pid = child.pid as number;
  const stat = (): string => readFileSync(`/proc/${pid}/stat`, "latin1");
  await expect.poll(stat).toContain("(a) S 1 (b)");
  const started = stat().slice(stat().lastIndexOf(")")).split(" ")[20] as string;
  expect(stateOf({ ...thisProcess(), pid, started })).toBe("runs");
  expect(stateOf({ ...thisProcess(), pid, started: `${Number(started) + 1}` })).toBe("ended");
});

test("a process that may not be inspected runs, and a missing one has ended", () => {
  for (const [code, state] of [
    ["EPERM", "runs"],
    ["ESRCH", "ended"],
  ]) {
    const kill = vi.spyOn(process, "kill").mockImplementation(() => {
      throw Object.assign(new Error(code), { code });
    });
    onTestFinished(() => kill.mockRestore());
    expect(stateOf(thisProcess())).toBe(state);
  }
});
