/** `sim:machine=FILE`: the clock of a profile in a file, and an error with file, field and found value for every fault of it. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { type MachineProfile, machineProfiles, timeOf } from "../../../src/algorithms/index.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-machine-"));
afterAll(() => rmSync(folder, { recursive: true }));

const known = machineProfiles["h200x8"] as MachineProfile;

/** Writes a profile with another value at a path, and returns its file; `undefined` deletes the value. */
function written(name: string, path: string, value: unknown): string {
  const profile = structuredClone(known) as unknown as Record<string, unknown>;
  const names = path.split(".");
  const last = names.pop() as string;
  const at = names.reduce((found, each) => found[each] as Record<string, unknown>, profile);
  if (value === undefined) delete at[last];
  else at[last] = value;
  const file = join(folder, name);
  writeFileSync(file, JSON.stringify(profile));
  return file;
}

const slow = written("slow=1.json", "numbers.ring.LL.startUs", 40);
const explained = (backend: string) =>
  cli(`explain all-reduce -n 8 --count 1024 --backend ${backend}`);

describe("sim:machine=FILE", () => {
  test.each([
    "bench all-reduce -b 8 -e 8 -g 2 -n 1 -w 0 --out",
    "bench --calibration -g 2 -e 128 -n 1 -w 0 --out",
    "run package.json -n 2 --trace",
  ])("is not overwritten by %s", async (line) => {
    const file = written("kept.json", "name", "kept");
    const text = readFileSync(file, "utf8");
    const { status, out, err } = await cli(`${line} ${file} --backend sim:machine=${file}`);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(`${file}: is the same file as machine of --backend; name another one`);
    expect(readFileSync(file, "utf8")).toBe(text);
  });

  test("explains a call with the time of the file, also with an equals sign in its path", async () => {
    const { status, out, err } = await explained(`sim:machine=${slow}`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    const { ring } = known.numbers;
    const numbers = { ...known.numbers, ring: { ...ring, LL: { ...ring.LL, startUs: 40 } } };
    const call = { collective: "allReduce", ranks: 8, count: 1024, dtype: "float32" } as const;
    const { us } = timeOf({ ...known, numbers }, call);
    expect(us).toBeGreaterThan(timeOf(known, call).us + 30);
    expect(out).toContain(`${Math.round(1e6 * us) / 1e6} µs predicted`);
    expect(out).toContain("predicted for 8 x NVIDIA H200, NVSwitch, NCCL 2.28.9");
  });

  test("is the clock of a program", async () => {
    const program = join(folder, "program.mjs");
    writeFileSync(
      program,
      `export default async (comm) => {
        await comm.allReduce({ send: comm.alloc("float32", 1024), op: "sum" });
        return comm.stats().virtualNs > 45_000;
      };`,
    );
    const outputs = await Promise.all(
      [slow, written("same.json", "name", "same")].map((file) =>
        cli(`run ${program} -n 8 --backend sim:machine=${file}`),
      ),
    );
    expect(outputs.map(({ out }) => /true/.test(out))).toEqual([true, false]);
  });

  test("takes the version of the file where none is named, and names it where another one is", async () => {
    const older = written("older.json", "nccl", "2.28.3");
    const { status, out, err } = await explained(`sim:machine=${older}`);
    expect({ status, err }).toEqual({ status: 0, err: "" });
    expect(out).toContain("NCCL 2.28.3");
    const { err: why } = await explained(`sim:machine=${older},like=nccl-2.28`);
    expect(why).toContain('nccl: found "2.28.3", needs that of the plans, "2.28.9"');
    expect(why).toContain("hint: like nccl-2.28.3 fits");
    const like = `sim:machine=${older},like=nccl-2.28.3`;
    expect((await explained(like)).status).toBe(0);
  });

  const faults: [string, unknown, string][] = [
    ["numbers.ring.LL.hopUs", undefined, "found nothing, needs a value"],
    ["numbers.symmetric.low", undefined, "found nothing, needs a value"],
    ["numbers.ring.LL.hopUs", -1, "found -1, needs a number above 0"],
    ["numbers.ring.LL.hopUs", Number.NaN, "found null, needs a number above 0"],
    ["measured.allReduce.choices.Ring LL.ranks", [8, 2], "found 8 to 2, needs the least first"],
    ["mode.launch", "later", 'found "later", needs one of eager, graph'],
    ["nccl", "2.27.7", 'found "2.27.7"'],
    ["nccl", "3.1", 'found "3.1", times are modelled for'],
    ["topology", "h200-hosts", 'found "h200-hosts", times are modelled for h200x8'],
  ];
  test.each(faults)("refuses a file with %s of %j", async (path, value, found) => {
    const file = written("wrong.json", path, value);
    const { status, out, err } = await explained(`sim:machine=${file}`);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toContain(path);
    expect(err).toContain(found);
  });

  test("names the file of a fault", async () => {
    const file = written("wrong.json", "numbers.ring.LL.hopUs", -1);
    const { err } = await explained(`sim:machine=${file}`);
    expect(err).toContain(`${file}: numbers.ring.LL.hopUs: found -1`);
  });

  test.each([
    ["sim:machine=none.json", "there is no file none.json"],
    [`sim:machine=${slow},like=nccl-2.27`, "nccl: found"],
    [`sim:machine=${slow},like=nccl-2.28,topology=h200-hosts`, "topology: found"],
    [`tcp:machine=${slow}`, "machine"],
  ])("refuses %s", async (backend, why) => {
    const { status, err } = await explained(backend);
    expect(status).not.toBe(0);
    expect(err).toContain(why);
  });

  test("refuses other text", async () => {
    const file = join(folder, "text.json");
    writeFileSync(file, "hops: 2");
    const { status, err } = await explained(`sim:machine=${file}`);
    expect(status).toBe(2);
    expect(err).toContain(`${file}: no JSON`);
  });

  test("is named where a setting is unknown", async () => {
    const { err } = await explained("sim:clock=mine.json");
    expect(err).toContain("machine=FILE");
  });
});
