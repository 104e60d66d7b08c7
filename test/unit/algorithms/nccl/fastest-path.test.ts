/** The advice which way is the fastest agrees with the figures that were kept. */
import { readdirSync, readFileSync } from "node:fs";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { fastestPath } from "../../../../src/algorithms/nccl/fastest-path.ts";

interface Row {
  readonly collective: string;
  readonly mode: string;
  readonly bytes: number;
  readonly peers: { readonly twinccl: { readonly median_us: number } };
}

const folder = new URL("../../../../bench/results/", import.meta.url);
const files = readdirSync(folder).filter((name) => /^gpu-h200x\d+\.json$/.test(name));
const modes = ["eager", "graph", "symmetric", "symmetric+graph"];

/** A path is as good as another when it takes no more than a tenth longer: medians of other runs differ so much. */
const asGood = 1.1;

describe.each(files)("by %s", (name) => {
  const { results, ranks } = JSON.parse(readFileSync(new URL(name, folder), "utf8")) as {
    readonly results: readonly Row[];
    readonly ranks: number;
  };
  for (const collective of ["allReduce", "allGather", "reduceScatter"]) {
    const rows = results.filter((row) => row.collective === collective);
    const sizes = [...new Set(rows.map(({ bytes }) => bytes))];

    test(`${collective}: the advised choice is as fast as the best`, () => {
      expect(sizes.length).toBeGreaterThan(3);
      for (const bytes of sizes) {
        const times = modes.map((mode) => {
          const row = rows.find((each) => each.bytes === bytes && each.mode === mode);
          return row?.peers.twinccl.median_us as number;
        });
        const path = fastestPath(collective, ranks, bytes);
        const at = (path?.memory === "symmetric" ? 2 : 0) + (path?.recorded === true ? 1 : 0);
        const advised = times[at] as number;
        expect(advised / Math.min(...times), `${bytes} bytes`).toBeLessThan(asGood);
      }
    });
  }
});

test("explain shows the choice, by the bytes of all blocks", async () => {
  const world = await createWorld({ backend: sim(), size: 4 });
  try {
    const question = { collective: "allReduce", dtype: "float32", op: "sum" } as const;
    const small = world.explain({ ...question, count: 2 });
    expect(small.fastest).toBe("symmetric memory, replayed from a recording");
    expect(String(small)).toMatch(/^ {2}fastest, as measured: symmetric memory, replayed/m);
    expect(world.explain({ ...question, count: 2 ** 15 }).fastest).toBe(
      "ordinary memory, replayed from a recording",
    );
    const gather = { collective: "allGather", dtype: "float32" } as const;
    expect(world.explain({ ...gather, count: 2 ** 19 }).fastest).toBe("symmetric memory");
    expect(world.explain({ ...question, count: 2 ** 24 }).fastest).toBe("ordinary memory");
    expect(world.explain({ ...gather, collective: "broadcast", count: 8 }).fastest).toBeUndefined();
  } finally {
    await world.close();
  }
});
