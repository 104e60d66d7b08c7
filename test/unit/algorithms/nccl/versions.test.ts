/** Versions of NCCL: each one's partition against a transcription of its scheduler, names of libraries, and claims. */

import { createWorld, type DType } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { topologies } from "../../../../src/algorithms/nccl/machines.ts";
import { partition } from "../../../../src/algorithms/nccl/pieces.ts";
import type { ChannelPlan, PlanRequest } from "../../../../src/algorithms/nccl/plan-types.ts";
import { ncclPlan } from "../../../../src/algorithms/nccl/request.ts";
import {
  libraryNames,
  libraryOf,
  ncclVersions,
  rulesOf,
} from "../../../../src/algorithms/nccl/rules.ts";

/** A call as NCCL's scheduler sees it. */
interface Task {
  readonly count: number;
  readonly elementBytes: number;
  /** Traffic for each byte, with the factor of LL. */
  readonly factor: number;
  readonly channels: number;
  readonly budget: number;
}

/** scheduleCollTasksToPlan of NCCL for a lone call: counts by channel; the two constants differ between versions. */
function scheduled(task: Task, least: number, step: number): number[] {
  const { count, elementBytes, factor, channels, budget } = task;
  const up = (a: number, b: number): number => Math.ceil(a / b);
  const all = Math.max(least, count * elementBytes * factor);
  const share = Math.floor(all / Math.min(budget, channels));
  const perChannel = step === 1 ? Math.max(least, share) : up(share, step) * step;
  const cellBytes = up(up(least, factor), 16) * 16;
  const perCell = cellBytes / elementBytes;
  const cells = up(count * elementBytes, cellBytes);
  const most = Math.min(cells, up(perChannel, cellBytes * factor));
  const low = channels === 1 ? cells : most;
  let middle = Math.floor((cells - low) / most);
  let high = (cells - low) % most;
  let inMiddle = most;
  if (high === 0 && middle > 0) [high, middle] = [most, middle - 1];
  if (1 + middle + (high > 0 ? 1 : 0) > channels) {
    middle = channels - 2;
    inMiddle = Math.floor((cells - low) / (middle + 1));
    high = cells - low - middle * inMiddle;
  }
  if (high === 0 && middle === 0) return [count];
  const parts = [low, ...Array<number>(middle).fill(inMiddle)].map((each) => each * perCell);
  return [...parts, count - parts.reduce((sum, each) => sum + each, 0)];
}

/** Numbers from a seed. */
function* drawn(seed: number): Generator<(n: number) => number> {
  let state = seed;
  const below = (n: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
  for (;;) yield below;
}

describe.each([
  ["2.27.7", 16_384, 1],
  ["2.28.9", 16_384, 1],
  ["2.29.2", 32_768, 16],
  ["2.29.7", 32_768, 16],
  ["2.30.7", 32_768, 16],
])("NCCL %s", (version, least, step) => {
  test("cuts the range as its scheduler does", () => {
    let done = 0;
    for (const below of drawn(least + step)) {
      const elementBytes = 2 ** below(4);
      const channels = [1, 2, 3, 4, 8, 24][below(6)] as number;
      const ranks = 2 + below(15);
      const collective = (["allReduce", "reduceScatter", "reduce"] as const)[below(3)] as "reduce";
      const protocol = (["LL", "LL128", "Simple"] as const)[below(3)] as "LL";
      const count = 1 + below(2 ** (1 + below(22)));
      const budget = 1 + below(channels);
      const call = { collective, protocol, ranks, count, elementBytes, channels, budget };
      const blocks =
        collective === "reduce" ? 1 : (collective as string) === "allReduce" ? 2 : ranks;
      const factor = blocks * ((protocol as string) === "LL" ? 4 : 1);
      const parts = partition({ ...call, rules: rulesOf(version) }).map(({ length }) => length);
      const stated = scheduled({ count, elementBytes, factor, channels, budget }, least, step);
      expect(parts, JSON.stringify(call)).toEqual(stated);
      if (++done === 4000) break;
    }
  });
});

function request(version: string, ranks: number, count: number): PlanRequest {
  const topology = topologies.h200x8(ranks);
  const forced = { algorithm: "Ring", protocol: "Simple" } as const;
  return { version, topology, collective: "allReduce", dtype: "float32", op: "sum", count, forced };
}

test("a call of 100,000 elements has 10 channels until 2.28 and 9 from 2.29 on", () => {
  const parts = (version: string): readonly (readonly [number, number])[] => {
    const plan = ncclPlan(request(version, 4, 100_000)) as ChannelPlan;
    return [plan.parts[0], plan.parts.at(-1)].map((part) => [
      part?.channel ?? -1,
      part?.length ?? 0,
    ]);
  };
  for (const version of ["2.27", "2.28"])
    expect(parts(version)).toEqual([
      [0, 10_240],
      [9, 7840],
    ]);
  for (const version of ["2.29", "2.30"])
    expect(parts(version)).toEqual([
      [0, 12_288],
      [8, 1696],
    ]);
});

test("names of libraries stand for versions", () => {
  const versions = Object.fromEntries(
    libraryNames.map((name) => [name, rulesOf(libraryOf(name)?.version ?? "").version]),
  );
  expect(versions).toEqual({
    "nccl-2.27": "2.27.7",
    "nccl-2.28": "2.28.9",
    "nccl-2.29": "2.29.7",
    "nccl-2.30": "2.30.7",
    "torch-2.10": "2.28.9",
    "torch-2.11": "2.28.9",
    "torch-2.12": "2.29.7",
    "torch-2.13": "2.29.7",
    "torch-2.14": "2.30.7",
  });
  expect(libraryOf("nccl-2.29.3")?.version).toBe("2.29.3");
  for (const name of [
    "nccl-2.31",
    "torch-2.9",
    "torch-2.14-rc1",
    "nccl-",
    "gloo",
    "nccl-constructor",
  ]) {
    expect(libraryOf(name), name).toBeUndefined();
  }
});

test("only the recorded version claims more than the source", () => {
  for (const version of ncclVersions) {
    const { evidence } = ncclPlan(request(version, 4, 1000));
    expect(evidence).toBe(version === "2.28" ? "measured" : "source");
  }
  expect(ncclPlan(request("2.28.3", 4, 1000)).evidence).toBe("source");
});

test.each(["2.27", "2.29", "2.30"])(
  "kernels of symmetric memory are not known for %s",
  (version) => {
    const symmetric = { send: 0, recv: 0 };
    const call = { ...request(version, 4, 1000), symmetric };
    expect(() => ncclPlan(call)).toThrow(/the kernels of NCCL 2\.\d+\.7 are not known/);
    const product = ncclPlan({ ...call, op: "prod" });
    expect(product.algorithm).toBe("Ring");
  },
);

test("a gather of symmetric memory is defined from 2.30 on", () => {
  const symmetric = { send: 2, recv: 2 };
  const call = { ...request("2.28", 4, 1001), symmetric, dtype: "float16" as DType, op: undefined };
  const blocks = (version: string): number =>
    ncclPlan({ ...call, version, forced: {}, collective: "allGather" }).undefinedBlocks.length;
  expect(blocks("2.29")).toBeGreaterThan(0);
  expect(blocks("2.30")).toBe(0);
});

test("explain names the NCCL of a torch, and the lack of a record", async () => {
  const world = await createWorld({ backend: sim({ like: "torch-2.12" }), size: 4 });
  const text = `${world.explain({ collective: "allReduce", dtype: "float32", op: "sum", count: 100_000 })}`;
  await world.close();
  expect(text).toContain("as NCCL 2.29.7, of torch 2.12 for CUDA 13, does it on h200x8");
  expect(text).toContain(
    "the same bits as NCCL 2.29.7 on h200x8 without in-switch reduction: from the source, not measured",
  );
});
