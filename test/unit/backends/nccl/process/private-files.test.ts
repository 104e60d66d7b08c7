/** Where NCCL's log and graph files cannot lie, an error says so, and nothing is settled. */
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import {
  startPinned,
  startPinnedJob,
} from "../../../../../src/backends/nccl/process/pinned-start.ts";
import { PlanLogFile } from "../../../../../src/backends/nccl/process/plan-log.ts";
import { ProcessSettings } from "../../../../../src/backends/nccl/process/process-settings.ts";

const missing = join(import.meta.dirname, "there is no such folder");
const unusableFolder = expect.objectContaining({
  code: "ERR_COMM_BACKEND",
  message: expect.stringMatching(
    /^nccl: no folder can be made in .*there is no such folder: ENOENT.*\nhint: .*TMPDIR/s,
  ),
});

afterEach(() => vi.unstubAllEnvs());

test("for the log", () => {
  vi.stubEnv("TMPDIR", missing);
  expect(() => new PlanLogFile()).toThrow(unusableFolder);
  const env: NodeJS.ProcessEnv = {};
  const settings = new ProcessSettings(env);
  expect(() => settings.settle({ buffSize: 4096 }, true)).toThrow(unusableFolder);
  expect(env).toEqual({});
  settings.settle({ buffSize: 8192 }, false);
  expect(env).toEqual({ NCCL_BUFFSIZE: "8192" });
});

const started = () => ({ abort: async () => undefined });

test("for the graphs of a pinned ring", async () => {
  vi.stubEnv("TMPDIR", missing);
  const starting = startPinned({ rings: [1, 0] }, ["a", "b"], started);
  await expect(starting).rejects.toThrow(unusableFolder);
});

test("and graphs that NCCL did not write are reported", async () => {
  await expect(startPinned({ rings: [1, 0] }, ["a", "b"], started)).rejects.toMatchObject({
    code: "ERR_COMM_BACKEND",
    message: expect.stringMatching(/^nccl: NCCL wrote no graphs: ENOENT/),
  });
});

test("files are removed at the end of a process that does not come to the end of a start", async () => {
  const place = mkdtempSync(join(tmpdir(), "twinccl-test-"));
  onTestFinished(() => rmSync(place, { recursive: true }));
  vi.stubEnv("TMPDIR", place);
  const before = new Set(process.listeners("exit"));
  let giveUp = (): void => undefined;
  const open = new Promise<never>((_, reject) => {
    giveUp = () => reject(new Error("given up"));
  });
  const starting = startPinnedJob({ rings: [1, 0] }, ["a", "b"], {
    agreeOnId: () => open,
    begin: () => open,
    share: () => open,
  });
  expect(readdirSync(place)).toHaveLength(1);
  const added = process.listeners("exit").filter((listener) => !before.has(listener));
  for (const listener of added) listener(0);
  expect(readdirSync(place)).toEqual([]);
  giveUp();
  await expect(starting).rejects.toThrow("given up");
  expect(process.listeners("exit").filter((listener) => !before.has(listener))).toEqual([]);
});
