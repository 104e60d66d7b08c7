import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { longTest } from "../../support/long-test.ts";
import { cli } from "./harness.ts";

const folder = mkdtempSync(join(tmpdir(), "twinccl-predict-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Microseconds by algorithm of the only size. */
async function times(line: string): Promise<Record<string, number | null>> {
  const { status, out, err } = await cli(`predict ${line} --json`);
  expect({ status, err }).toEqual({ status: 0, err: "" });
  const [result] = JSON.parse(out).results;
  return Object.fromEntries(
    result.algorithms.map((each: { algorithm: string; predictedNs: number | null }) => [
      each.algorithm,
      each.predictedNs === null ? null : each.predictedNs / 1000,
    ]),
  );
}

describe("predict", () => {
  longTest("a table of sizes by algorithms, with the fastest marked", async () => {
    const { status, out, err } = await cli("predict all-reduce --ranks 1024 -b 1K -e 1G -f 1024");
    expect({ status, err }).toEqual({ status: 0, err: "" });
    const [first, head, ...lines] = out.trimEnd().split("\n");
    expect(first).toMatch(/^# predicted, not measured: .*ranks 1024.*topology crossbar/);
    expect(head).toMatch(
      /^# +size +ring +chain +double-tree +halving-doubling +recursive-doubling +linear/,
    );
    expect(lines.map((line) => line.trim().split(/ {2,}/)[0])).toEqual(["1 KiB", "1 MiB", "1 GiB"]);
    for (const line of lines) expect(line.match(/\*/g)).toHaveLength(1);
    expect(lines[0]).toMatch(/ 11\.03\* +211\.8$/);
  });

  test("times are the closed forms where nothing contends", async () => {
    // 1,048,576 ranks, 4 elements each: a million times latency, overhead and 16 bytes at 1 GB/s.
    const line =
      "all-gather --ranks 1048576 -b 16M -e 16M --latency-ns 10 --overhead-ns 5 --gigabytes-per-second 1";
    const found = await times(line);
    expect(found["ring"]).toBeCloseTo((1048575 * (10 + 5 + 16)) / 1000, 6);
    expect(found["bruck"]).toBeCloseTo((20 * (10 + 5) + 1048575 * 16) / 1000, 6);
  });

  test("links that are shared cost time, and wider ones less", async () => {
    const line = "all-to-all --ranks 32 -b 32M -e 32M --algorithm pairwise";
    const free = await times(line);
    const wide = await times(`${line} --topology fat-tree --groups 4 --hop-latency-ns 0`);
    const thin = await times(
      `${line} --topology fat-tree --groups 4 --hop-latency-ns 0 --oversubscription 4`,
    );
    const ring = await times(`${line} --topology ring --hop-latency-ns 0`);
    expect(wide["pairwise"]).toBeGreaterThanOrEqual(free["pairwise"]!);
    expect(thin["pairwise"]).toBeGreaterThan(2 * wide["pairwise"]!);
    expect(ring["pairwise"]).toBeGreaterThan(2 * free["pairwise"]!);
  });

  test("too few credits delay senders", async () => {
    const line = "reduce --ranks 8 -b 1M -e 1M --algorithm chain --latency-ns 5000";
    const [free, one] = [await times(line), await times(`${line} --credits 1`)];
    expect(one["chain"]).toBeGreaterThan(free["chain"]!);
  });

  longTest("a size that is too large is left out, with a note", async () => {
    const line = "all-reduce --ranks 1048576 -b 8 -e 8 --algorithm ring,recursive-doubling";
    expect(await times(line)).toEqual({ ring: null, "recursive-doubling": expect.any(Number) });
    expect((await cli(`predict ${line}`)).out).toMatch(/ - +22\.\d+\*\n# -: a program too large/);
  });

  test("--out takes the document beside the table", async () => {
    const path = join(folder, "table.json");
    const line = "predict barrier --ranks 5";
    const { out } = await cli(`${line} --out ${path}`);
    expect(out).toContain("dissemination");
    expect(readFileSync(path, "utf8")).toBe((await cli(`${line} --json`)).out);
    expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ predicted: true, ranks: 5 });
  });

  test("a row for each number of elements, and none for sizes below one element", async () => {
    const sizes = async (line: string): Promise<number[]> => {
      const { results } = JSON.parse((await cli(`predict ${line} --json`)).out);
      return results.map(({ bytes }: { bytes: number }) => bytes);
    };
    expect(await sizes("all-reduce -b 1 -e 8")).toEqual([4, 8]);
    expect(await sizes("all-reduce -b 8 -e 16 -i 2")).toEqual([8, 12, 16]);
    // A block for each of 8 ranks.
    expect(await sizes("all-gather -b 1 -e 64")).toEqual([32, 64]);
    expect(await sizes("all-reduce -b 0 -e 4 -i 1")).toEqual([0, 4]);
    expect(await sizes("barrier")).toEqual([0]);
  });

  test("a line on the terminal shows the progress, and is erased at the end", async () => {
    const { err } = await cli("predict all-reduce --ranks 600 -b 4 -e 4 --algorithm ring", {
      terminal: true,
    });
    expect(err).toContain("predicting ring, 4 B on 600 ranks: 0.5 million messages");
    expect(err.endsWith("\r\x1b[K")).toBe(true);
  });

  test.each([
    ["all-to-allv", "is no collective|has no algorithms"],
    ["all-reduce --ranks 2000000", "--ranks: found"],
    ["all-reduce --algorithm star", '--algorithm: found "star"'],
    ["all-reduce --root 1", "--root: allReduce has none"],
    ["all-reduce --groups 8", "--groups goes with fat-tree"],
    ["all-reduce --hop-latency-ns 5", "a crossbar has no shared links"],
    ["all-reduce --topology torus", "needs --dimensions"],
    ["all-reduce --topology torus --dimensions 3x3", "makes 9 ranks, --ranks says 8"],
    ["all-reduce --topology fat-tree --groups 2,x", "needs whole numbers"],
    [
      "all-reduce --topology fat-tree --groups 0x2,1e1",
      '--groups: found "0x2", needs whole numbers',
    ],
    ["all-reduce --topology fat-tree --oversubscription 0.5", "--oversubscription: found"],
    ["all-reduce --latency-ns fast", "--latency-ns: found"],
    ["all-reduce --credits 0", "--credits: found"],
    ["all-reduce -b 1 -e 3", "--maxbytes: found 3, needs bytes of at least 4"],
    ["all-gather -b 1 -e 31", "--maxbytes: found 31, needs bytes of at least 32"],
  ])("refuses %s", async (line, why) => {
    const { status, out, err } = await cli(`predict ${line}`);
    expect({ status, out }).toEqual({ status: 2, out: "" });
    expect(err).toMatch(new RegExp(why));
  });
});
