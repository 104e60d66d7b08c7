/** Predictions of the simulation beside the times of GPUs, and their place in the output. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test, vi } from "vitest";

interface Row {
  readonly collective: string;
  readonly mode: string;
  readonly bytes: number;
  readonly count: number;
  readonly traffic: readonly (readonly number[])[];
  readonly predicted_us?: number;
}
interface Found {
  readonly names: readonly string[];
  readonly driver: string | null;
}

const load = (name: string) =>
  import(/* @vite-ignore */ fileURLToPath(new URL(`../../../bench/gpu/${name}`, import.meta.url)));
const { predict, modelOf, modelText } = (await load("predicted.mjs")) as {
  predict(
    rows: readonly Row[],
    ranks: number,
  ): Promise<{ readonly rows: readonly Row[]; readonly not_predicted?: string }>;
  modelOf(): object;
  modelText(model: object): string;
};
const { rowsOf } = (await load("plan.mjs")) as {
  rowsOf(ranks: number, options: { readonly quick: boolean }): readonly Row[];
};
const { tableText } = (await load("table.mjs")) as {
  tableText(rows: readonly object[], names: readonly string[]): string;
};
const { gpus, besideText } = (await load("found.mjs")) as {
  gpus(): Found;
  besideText(found: Found): string;
};

describe("the predicted time", () => {
  test("is that of all eager rows, and only of those", async () => {
    const rows = rowsOf(4, { quick: false });
    const { rows: found, not_predicted: why } = await predict(rows, 4);
    expect(why).toBeUndefined();
    expect(found.map(({ predicted_us: _, ...row }) => row)).toEqual(rows);
    for (const { mode, predicted_us: us } of found) {
      if (mode === "eager") expect(us).toBeGreaterThan(0);
      else expect(us).toBeUndefined();
    }
  });

  test("is the virtual time of the call in a world like NCCL's", async () => {
    const { rows } = await predict(rowsOf(3, { quick: false }), 3);
    const of = (collective: string, bytes: number) =>
      rows.find((row) => row.collective === collective && row.bytes >= bytes) as Row;
    const [reduced, uneven] = [of("allReduce", 2 ** 15), of("allToAllv", 2 ** 11)];
    const world = await createWorld({ backend: sim({ like: "nccl-2.28" }), size: 3 });
    onTestFinished(() => world.close());
    const reduceNs = await world.run(async (comm) => {
      await comm.allReduce({ send: comm.alloc("float32", reduced.count), op: "sum" });
      return comm.stats().virtualNs;
    });
    const slowestNs = Math.max(...reduceNs.map((ns) => ns ?? Number.NaN));
    expect(reduced.predicted_us).toBeCloseTo(slowestNs / 1000, 6);
    const timeNs = await world.estimate({
      collective: "allToAllv",
      dtype: "float32",
      counts: uneven.traffic,
    });
    expect(uneven.predicted_us).toBe(timeNs / 1000);
  });

  test("is left out, with the reason, for more ranks than the machine has", async () => {
    const rows = rowsOf(16, { quick: true });
    const { rows: found, not_predicted: why } = await predict(rows, 16);
    expect(found).toEqual(rows);
    expect(why).toMatch(/h200x8.* 16 ranks, has 8 GPUs/);
  });

  test("has a column of its own, and the machine is named", () => {
    const row = { collective: "allReduce", mode: "eager", bytes: 8, peers: {} };
    const peers = { twinccl: { median_us: 20 } };
    expect(tableText([{ ...row, peers, predicted_us: 14 }], ["twinccl"])).toBe(
      "# allReduce, float32, eager (us)\nsize  twinccl  predicted\n 8 B    20.00      14.00\n\n",
    );
    expect(tableText([{ ...row, peers }], ["twinccl"])).not.toContain("predicted");
    expect(modelOf()).toMatchObject({
      ...{ timing: "predicted", like: "nccl-2.28", topology: "h200x8" },
      ...{ machine: "8 x NVIDIA H200, NVSwitch", nccl: "2.28.9" },
    });
    expect(modelText(modelOf())).toMatch(
      /^predicted, not measured: .* NCCL 2\.28\.9 takes on 8 x NVIDIA H200, NVSwitch, .*h200x8/,
    );
  });
});

describe("the micro-benchmarks", () => {
  /** Puts an `nvidia-smi` on the path that prints so and ends with this status. */
  function driver(prints: string, status = 0): void {
    const folder = mkdtempSync(join(tmpdir(), "twinccl-smi-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = join(folder, "nvidia-smi");
    writeFileSync(path, `#!/bin/sh\nprintf '${prints}'\nexit ${status}\n`);
    chmodSync(path, 0o755);
    vi.stubEnv("PATH", `${folder}${delimiter}${process.env["PATH"]}`);
    onTestFinished(() => {
      vi.unstubAllEnvs();
    });
  }

  test("link to those on GPUs where there are any", () => {
    driver("NVIDIA One, 580.1\\nNVIDIA Two, 580.1\\n");
    expect(gpus()).toEqual({ names: ["NVIDIA One", "NVIDIA Two"], driver: "580.1" });
    expect(besideText(gpus())).toMatch(/npm run bench:gpu measures NCCL on NVIDIA One, NVIDIA Two/);
  });

  test("state their absence", () => {
    driver("no devices", 9);
    expect(gpus()).toEqual({ names: [], driver: null });
    expect(besideText(gpus())).toMatch(/there is no GPU here/);
  });
});
