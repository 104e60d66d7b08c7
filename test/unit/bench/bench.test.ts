import {
  type CollectiveName,
  dtypes,
  InvalidArgumentError,
  namedReduceOps,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "twinccl";
import { type BenchResult, bench, tally } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { corrupting } from "./corrupting-backend.ts";

const quick = { ranks: 3, sizes: { min: 48, max: 48 }, iterations: 1, warmup: 0 } as const;
const collectives = Object.keys(specifications) as SpecifiedCollective[];

test.each(collectives)("%s: every dtype and operator is measured and right", async (collective) => {
  const seen: BenchResult[] = [];
  const document = await bench({
    ...quick,
    backend: sim(),
    collective,
    dtypes,
    ops: namedReduceOps,
    roots: [0, 2],
    onResult: (result) => seen.push(result),
  });
  const { reduces, rooted } = specifications[collective];
  const rows =
    collective === "barrier"
      ? 1
      : dtypes.length * (reduces ? namedReduceOps.length : 1) * (rooted ? 2 : 1);
  expect(document.results).toHaveLength(rows);
  expect(seen).toEqual(document.results);
  const { wrong, elements } = tally(document.results);
  expect(wrong).toBe(0);
  expect(elements).toBeGreaterThanOrEqual(rows * 3);
  expect(document.results.every(({ predicted_us }) => (predicted_us ?? 0) > 0)).toBe(true);
});

describe("a backend that corrupts one element of one rank", () => {
  const cases = collectives.filter((name) => name !== "barrier");
  test.each(cases)("%s: exactly that element is found", async (collective) => {
    const backend = corrupting(sim(), 0);
    const { results } = await bench({
      ...quick,
      backend,
      collective,
      dtypes,
      ops: ["sum", "avg"],
    });
    for (const { out_of_place, in_place } of results) {
      expect(out_of_place.nwrong).toBe(1);
      if (in_place !== null) expect(in_place.nwrong).toBe(1);
    }
  });
});

test("the document has nccl-tests' names and says where it comes from", async () => {
  const backend = sim({ algorithms: { allReduce: "ring" } });
  const options = { ...quick, backend, collective: "all-reduce", ranks: 8 };
  const document = await bench({ ...options, sizes: { min: 64, max: 256, factor: 2 } });
  expect(Object.keys(document)).toEqual(["machine", "versions", "commit", "timing", "results"]);
  expect(document.timing).toBe("simulated, in process");
  expect(document.machine.cores).toBeGreaterThan(0);
  expect(document.versions.node).toBe(process.versions.node);
  expect(JSON.stringify(document)).not.toContain(process.cwd());
  const [result] = document.results;
  expect(result).toMatchObject({
    collective: "allReduce" satisfies CollectiveName,
    algorithm: "ring",
    size: 64,
    count: 16,
    type: "float32",
    redop: "sum",
    root: -1,
  });
  const { time, alg_bw, bus_bw, nwrong, checked } = result!.out_of_place;
  expect(alg_bw).toBeCloseTo(64 / 1e9 / (time / 1e6), 12);
  expect(bus_bw).toBeCloseTo((alg_bw * 14) / 8, 12);
  expect({ nwrong, checked }).toEqual({ nwrong: 0, checked: 128 });
});

test("without a check nothing is claimed", async () => {
  const options = { ...quick, backend: sim(), collective: "allReduce", check: false };
  const { results } = await bench(options);
  expect(results[0]?.out_of_place).toMatchObject({ nwrong: null, checked: 0 });
  expect(tally(results)).toEqual({ wrong: 0, elements: 0, results: 0 });
});

test("predictions and traffic are the same in every run", async () => {
  const options = { ...quick, backend: sim(), collective: "allToAllv", seed: 5, spread: 0.9 };
  const figures = async (): Promise<unknown> =>
    (await bench(options)).results.map(({ size, predicted_us }) => [size, predicted_us]);
  expect(await figures()).toEqual(await figures());
});

describe("refuses", () => {
  const good = { ...quick, backend: sim(), collective: "allReduce" };
  test.each([
    ["an unknown collective", { collective: "allShuffle" }],
    ["no ranks", { ranks: 0 }],
    ["half an iteration", { iterations: 0.5 }],
    ["a root that is no rank", { roots: [3] }],
    ["an endless sweep", { sizes: { min: 8, max: 16, factor: 1 } }],
  ])("%s", async (_, wrong) => {
    await expect(bench({ ...good, ...wrong })).rejects.toThrow(InvalidArgumentError);
  });
  test("what the backend does not do", async () => {
    const backend = sim();
    const lacking = {
      ...backend,
      open: async (request: Parameters<typeof backend.open>[0]) => {
        const session = await backend.open(request);
        session.refusal = () => "not today";
        return session;
      },
    };
    await expect(bench({ ...good, backend: lacking })).rejects.toThrow(UnsupportedError);
  });
});
