/** Checkpoints in a directory: what a power cut and a killed process leave of them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createWorld } from "twinccl";
import { Checkpoints, directoryFiles, ParameterSet, Random } from "twinccl/parallel";
import { sim } from "twinccl/sim";
import { afterEach, expect, test, vi } from "vitest";

const directories: string[] = [];
async function temporary(): Promise<string> {
  const directory = await fs.mkdtemp(join(tmpdir(), "twinccl-directory-"));
  directories.push(directory);
  return directory;
}
afterEach(async () => {
  vi.restoreAllMocks();
  for (const each of directories.splice(0)) await fs.rm(each, { recursive: true });
});

test("names are flushed where they are kept: of files, and of the folders that were made for them", async () => {
  const directory = await temporary();
  const flushed: string[] = [];
  const open = fs.open.bind(fs);
  vi.spyOn(fs, "open").mockImplementation(async (path, flags) => {
    const handle = await open(path, flags);
    const sync = handle.sync.bind(handle);
    handle.sync = () => {
      flushed.push(String(path).slice(directory.length));
      return sync();
    };
    return handle;
  });
  const files = directoryFiles(join(directory, "a", "b"));
  await files.write("save-1/file", Uint8Array.of(1));
  // The file itself; the folders that were there before or made for it, each for the name that is new in it.
  expect(flushed.toSorted()).toEqual(["", "/a", "/a/b", "/a/b/save-1", "/a/b/save-1/file"]);
  flushed.length = 0;
  await files.write("save-1/other", Uint8Array.of(1));
  expect(flushed).toEqual(["/a/b/save-1/other", "/a/b/save-1"]);
  flushed.length = 0;
  await files.rename("save-1/other", "save-1/third");
  expect(flushed).toEqual(["/a/b/save-1"]);
});

const job = fileURLToPath(new URL("jobs/saving.mjs", import.meta.url));

/** Runs the job and kills it `delayMs` after it began its second save; the steps that it began and finished saving. */
async function killedJob(
  directory: string,
  delayMs: number,
): Promise<{ began: number; saved: number }> {
  const child = spawn(process.execPath, [job, directory], { stdio: ["ignore", "pipe", "inherit"] });
  const found = { began: 0, saved: 0 };
  let saves = 0;
  for await (const line of createInterface(child.stdout)) {
    const [what, step] = line.split(" ");
    if (what === "saved") found.saved = Number(step);
    else found.began = Number(step);
    if (what !== "saved" && ++saves === 2) setTimeout(() => child.kill("SIGKILL"), delayMs);
  }
  if (child.signalCode === null) await once(child, "exit");
  expect(child.signalCode).toBe("SIGKILL");
  return found;
}

/** The contents of the directory, loaded on some ranks: the step, and the faults. */
function loaded(directory: string, size: number): Promise<{ step: number; wrong: number }[]> {
  return createWorld({ backend: sim(), size }).then(async (world) => {
    const results = await world.run(async (comm) => {
      const model = new ParameterSet([{ name: "w", shape: [50_000] }]);
      const random = new Random(0);
      const parts = { shared: { model }, perRank: { random } };
      const { step } = (await new Checkpoints(comm, directoryFiles(directory)).load(parts))!;
      const expected = new Random(7, comm.rank);
      for (let drawn = 0; drawn < step; drawn++) expected.word();
      const values = model.get("w").value.filter((each) => each !== step);
      return { step, wrong: values.length + (random.word() === expected.word() ? 0 : 1) };
    });
    await world.close();
    return results;
  });
}

test("a job that is killed in the middle of a save continues from its last whole checkpoint", async () => {
  const directory = await temporary();
  let torn = 0;
  // A few kills, and until some have struck a save.
  for (let kill = 0; kill < 7 || (torn < 2 && kill < 40); kill++) {
    const { began, saved } = await killedJob(directory, (7 * kill) % 47);
    const folders = await fs.readdir(directory);
    const whole = await Promise.all(
      folders.map(async (each) =>
        (await fs.readdir(join(directory, each))).includes("manifest.json"),
      ),
    );
    torn += whole.filter((each) => !each).length;
    for (const size of [3, 2]) {
      for (const { step, wrong } of await loaded(directory, size)) {
        expect(wrong).toBe(0);
        // Every finished save is there; a save that was begun may be.
        expect(step).toBeGreaterThanOrEqual(saved);
        expect(step).toBeLessThanOrEqual(began);
      }
    }
  }
  expect(torn).toBeGreaterThan(1);
}, 120_000);
