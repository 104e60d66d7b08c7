/**
 * Communication hides behind backward: how much of it, on the virtual clock, where both take equally long.
 *
 * docs/parallel.md shows these measurements; `npm run docs:overlap` redraws its picture.
 */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { overlapSvg } from "../../support/overlap-picture.ts";
import {
  hiddenShare,
  longest,
  type Overlap,
  type OverlapCase,
  overlapOf,
  type RankStep,
  referenceBucketBytes,
  referenceLengths,
} from "../../support/overlap-run.ts";

const known = new Map<string, Promise<Overlap>>();

/** Each case is run once, and its result shared. */
function measured(which: OverlapCase): Promise<Overlap> {
  const key = JSON.stringify(which);
  const found = known.get(key) ?? overlapOf(which);
  known.set(key, found);
  return found;
}

/** The calls that sum buckets, in the order in which they are sent. */
function bucketsIn(calls: RankStep["calls"]) {
  return calls
    .filter(({ name }) => name.startsWith("allReduce"))
    .map(({ name, ...times }) => ({ count: Number(/\[(\d+)\]/.exec(name)![1]), ...times }));
}

/** When backward has made so many elements of gradients. */
function readyNs(work: RankStep["work"], elements: number): number {
  let made = 0;
  for (const { name, endNs } of work) {
    made += referenceLengths.get(name)!;
    if (made >= elements) return endNs;
  }
  return Number.POSITIVE_INFINITY;
}

const KiB = 1024;

describe.each([2, 4, 8])("on %i ranks", (size) => {
  test.each([referenceBucketBytes / 2, referenceBucketBytes, 1.5 * referenceBucketBytes])(
    "ready-hooks hide at least seven tenths of the communication, in buckets of %i bytes",
    async (bucketBytes) => {
      const overlap = await measured({ size, bucketBytes });
      expect(overlap.buckets).toBeGreaterThan(5);
      expect(hiddenShare(overlap, overlap.during)).toBeGreaterThanOrEqual(0.7);
      // The measure must not say so of communication that nothing hides.
      expect(hiddenShare(overlap, overlap.after)).toBeCloseTo(0, 6);
    },
  );

  test("a single bucket hides no communication", async () => {
    const overlap = await measured({ size, bucketBytes: 25 * 2 ** 20 });
    expect(overlap.buckets).toBe(1);
    expect(hiddenShare(overlap, overlap.during)).toBeCloseTo(0, 6);
  });

  test("a bucket is sent when its gradients are ready and the one before it has arrived", async () => {
    const { during, communicationNs } = await measured({ size, bucketBytes: referenceBucketBytes });
    for (const { work, calls, stepNs } of during) {
      const buckets = bucketsIn(calls);
      expect(buckets.length).toBeGreaterThan(5);
      let sent = 0;
      let freeNs = 0;
      for (const { count, beginNs, endNs } of buckets) {
        sent += count;
        expect(beginNs).toBeCloseTo(Math.max(freeNs, readyNs(work, sent)), 2);
        freeNs = endNs;
      }
      expect(readyNs(work, sent)).toBeCloseTo(communicationNs, 0);
      expect(stepNs).toBeGreaterThan(freeNs);
    }
  });
});

test("ready-hooks hide as much on ports of 400 GB/s, where latency takes most of the time", async () => {
  const overlap = await measured({ size: 8, bucketBytes: 64 * KiB, link: {} });
  expect(hiddenShare(overlap, overlap.during)).toBeGreaterThanOrEqual(0.7);
  expect(hiddenShare(overlap, overlap.after)).toBeCloseTo(0, 6);
});

describe("docs/parallel.md", () => {
  test("has the picture of a step on 4 ranks", async () => {
    const overlap = await measured({ size: 4, bucketBytes: referenceBucketBytes });
    const picture = overlapSvg(overlap, "A training step on 4 ranks, in virtual time");
    await expect(picture).toMatchFileSnapshot("../../../docs/images/overlap.svg");
  });

  test("has the figures of several sizes of buckets on 8 ranks", async () => {
    const rows: string[] = [];
    for (const kib of [1024, 240, 120, 80, 40, 16]) {
      const overlap = await measured({ size: 8, bucketBytes: kib * KiB });
      const { buckets, communicationNs, after, during } = overlap;
      const times = [communicationNs, longest(after), longest(during)];
      const cells = times.map((ns) => `${(ns / 1000).toFixed(0)} µs`).join(" | ");
      const hidden = Math.round(100 * hiddenShare(overlap, during)) + 0;
      rows.push(`| ${kib} KiB | ${buckets} | ${cells} | ${hidden} % |`);
    }
    const page = readFileSync(new URL("../../../docs/parallel.md", import.meta.url), "utf8");
    expect(page.split("\n").filter((line) => /^\| \d+ KiB /.test(line))).toEqual(rows);
  }, 60_000);
});
