import { existsSync } from "node:fs";
import {
  type CollectiveName,
  createWorld,
  dtypes,
  InvalidArgumentError,
  namedReduceOps,
  type SpecifiedCollective,
  specifications,
  UnsupportedError,
} from "twinccl";
import type { CallObserver, CallSet } from "twinccl/backend";
import { type BenchOptions, type BenchResult, bench, tally } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { figuresOf } from "../../../src/bench/document.ts";
import { someOf } from "../../support/seed.ts";
import { corrupting } from "./corrupting-backend.ts";

const quick = { ranks: 3, sizes: { min: 48, max: 48 }, iterations: 1, warmup: 0 } as const;
const collectives = Object.keys(specifications) as SpecifiedCollective[];

test.each(someOf(collectives))(
  "%s: every dtype and operator is measured and right",
  async (collective) => {
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
  },
);

describe("a backend that corrupts one element of one rank", () => {
  const cases = collectives.filter((name) => name !== "barrier");
  test.each(someOf(cases))("%s: exactly that element is found", async (collective) => {
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

test("the document has nccl-tests' names and names its source", async () => {
  const backend = sim({ algorithms: { allReduce: "ring" } });
  const options = { ...quick, backend, collective: "all-reduce", ranks: 8 };
  const document = await bench({ ...options, sizes: { min: 64, max: 256, factor: 2 } });
  expect(Object.keys(document)).toEqual([
    ...["machine", "versions", "commit", "timing"],
    ...["mode", "latency", "symmetric", "processes", "results"],
  ]);
  expect(document).toMatchObject({ mode: "eager", latency: false, symmetric: false, processes: 1 });
  expect(document.timing).toBe("simulated, in process");
  expect(document.machine.cores).toBeGreaterThan(0);
  expect(document.commit).toBe("of-the-tests");
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

test("without TWINCCL_COMMIT the commit is that of the checkout", async () => {
  vi.stubEnv("TWINCCL_COMMIT", "");
  onTestFinished(() => void vi.unstubAllEnvs());
  const { commit } = await bench({ ...quick, backend: sim(), collective: "barrier" });
  const isCheckout = existsSync(new URL("../../../.git", import.meta.url));
  if (isCheckout) expect(commit).toMatch(/^[0-9a-f]{40}(-dirty)?$/);
  else expect(commit).toBeNull();
});

test("a row for each number of elements, and none for sizes below one element", async () => {
  const rows = async (chosen: Partial<BenchOptions>): Promise<string[]> => {
    const options = { ...quick, backend: sim(), collective: "allReduce", ...chosen };
    return (await bench(options)).results.map(({ type, size }) => `${type} ${size}`);
  };
  const sizes = { min: 1, max: 8, factor: 2 };
  expect(await rows({ sizes })).toEqual(["float32 4", "float32 8"]);
  expect(await rows({ sizes, dtypes: ["float64"] })).toEqual(["float64 8"]);
  expect(await rows({ sizes: { min: 2, max: 2 }, dtypes: ["float16", "float32"] })).toEqual([
    "float16 2",
  ]);
  // A block for each of 3 ranks.
  expect(await rows({ sizes: { min: 4, max: 25, step: 1 }, collective: "allGather" })).toEqual([
    "float32 12",
    "float32 24",
  ]);
  expect(await rows({ sizes: { min: 0, max: 4, step: 1 } })).toEqual(["float32 0", "float32 4"]);
  expect(await rows({ sizes, collective: "barrier" })).toEqual(["none 0"]);
});

describe("the issuing of calls", () => {
  const silent: CallObserver = {
    posting: () => undefined,
    posted: () => undefined,
    findWrite: () => undefined,
    settled: () => undefined,
    failed: () => undefined,
  };

  /** The order of events in a world of two ranks: p0 and p1 for posted calls, x for executed ones. */
  const watched = async (virtualTime: boolean, chosen: Partial<BenchOptions>): Promise<string> => {
    const backend = sim();
    let events = "";
    const note = (event: string): void => {
      events += event;
    };
    const open = async (request: Parameters<typeof backend.open>[0]) => {
      const session = await backend.open(request);
      const capabilities = { ...session.info.capabilities, virtualTime };
      const observer = { ...silent, posting: (rank: number) => note(`p${rank} `) };
      return new Proxy(session, {
        get(target, key) {
          if (key === "info") return { ...session.info, capabilities };
          if (key === "observer") return observer;
          const value = Reflect.get(target, key, target);
          const bound = typeof value === "function" ? value.bind(target) : value;
          if (key !== "execute") return bound;
          return (set: CallSet) => {
            note("x ");
            return bound(set);
          };
        },
      });
    };
    const options = { ...quick, ranks: 2, backend: { ...backend, open }, iterations: 30 };
    const { results } = await bench({ ...options, collective: "allReduce", ...chosen });
    expect(tally(results).wrong).toBe(0);
    return events;
  };
  const queue = "p0 ".repeat(30);

  test("calls are timed back to back in real time, and one by one in virtual time", async () => {
    expect(await watched(false, {})).toContain(queue);
    expect(await watched(true, {})).not.toContain("p0 p0 p0");
    expect(await watched(false, { latency: true, warmup: 0 })).toContain("x p0 p1 x p0 p1 x");
  });
  test("a graph holds the timed calls, and results are right", async () => {
    for (const collective of someOf(collectives)) {
      const { mode, results } = await bench({
        ...{ ...quick, backend: sim(), collective, mode: "graph", iterations: 3 },
      });
      expect({ collective, mode, wrong: tally(results).wrong }).toMatchObject({ wrong: 0 });
      expect(tally(results).elements).toBeGreaterThan(0);
    }
  });
  test("a checked result is that of a graph where the timed calls are in one", async () => {
    const last = async (mode: "eager" | "graph"): Promise<string> => {
      const backend = sim();
      let name = "";
      const open = async (request: Parameters<typeof backend.open>[0]) => {
        const session = await backend.open(request);
        return new Proxy(session, {
          get(target, key) {
            const value = Reflect.get(target, key, target);
            const bound = typeof value === "function" ? value.bind(target) : value;
            if (key !== "execute") return bound;
            return (set: CallSet) => {
              name = set.collective;
              return bound(set);
            };
          },
        });
      };
      await bench({ ...quick, backend: { ...backend, open }, collective: "allReduce", mode });
      return name;
    };
    expect(await last("eager")).toBe("allReduce");
    expect(await last("graph")).toBe("replay");
  });
  test("latency: the median is the time, and the 99th percentile is beside it", async () => {
    const options = { ...quick, backend: sim(), collective: "allReduce", iterations: 20 } as const;
    for (const mode of ["eager", "graph"] as const) {
      const { results } = await bench({ ...options, latency: true, mode });
      const { time, p99 = 0 } = results[0]!.out_of_place;
      expect(time).toBeGreaterThan(0);
      expect(p99).toBeGreaterThanOrEqual(time);
    }
    expect((await bench(options)).results[0]?.out_of_place).not.toHaveProperty("p99");
  });
  test.each([
    [1, 1, 1],
    [2, 1, 2],
    [3, 2, 3],
    [20, 10, 20],
    [100, 50, 99],
    [500, 250, 495],
  ])("of %i calls: median %i, 99th percentile %i", (count, median, p99) => {
    const samples = Array.from({ length: count }, (_, at) => at + 1);
    const timed = { began: 0, ended: 0, samples };
    expect(figuresOf(timed, { wrong: 0, checked: 0 })).toMatchObject({ median, p99 });
  });
  test("symmetric memory is passed to the calls", async () => {
    const found = new Set<boolean | undefined>();
    const backend = sim();
    const open = async (request: Parameters<typeof backend.open>[0]) => {
      const session = await backend.open(request);
      for (const rank of session.info.localRanks) {
        const device = session.device(rank);
        const allocate = device.allocate.bind(device);
        device.allocate = (bytes, symmetric) => {
          if (bytes > 0) found.add(symmetric);
          return allocate(bytes, symmetric);
        };
      }
      return session;
    };
    const options = { ...quick, backend: { ...backend, open }, collective: "allReduce" };
    expect(tally((await bench({ ...options, symmetric: true })).results).wrong).toBe(0);
    expect([...found]).toEqual([true]);
  });
});

test("one rank of a job sends the others its figures and measures the same", async () => {
  const options = { ...quick, ranks: 1, backend: sim(), connected: true };
  const { processes, results } = await bench({ ...options, collective: "reduceScatter" });
  expect(processes).toBe(1);
  expect(results[0]?.out_of_place).toMatchObject({ nwrong: 0, checked: 12 });
  expect(results[0]?.out_of_place.time).toBeGreaterThan(0);
  const barrier = await bench({ ...options, collective: "barrier" });
  expect(barrier.results[0]?.out_of_place).toMatchObject({ nwrong: null, checked: 0 });
});

test("without a check no correctness is claimed", async () => {
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

test.each(["allReduce", "reduceScatter", "allGather"] as const)(
  "%s in symmetric memory: plan and prediction are those of symmetric memory",
  async (collective) => {
    const bytes = 2 ** 23;
    const { results } = await bench({
      ...{ ...quick, ranks: 2, backend: sim(), collective, check: false, symmetric: true },
      sizes: { min: bytes, max: bytes },
    });
    const world = await createWorld({ backend: sim(), size: 2 });
    const count = bytes / 4 / (collective === "allReduce" ? 1 : 2);
    const question = { collective, dtype: "float32", op: "sum", count } as const;
    const op = collective === "allGather" ? undefined : question.op;
    const plan = world.explain({ ...question, op, symmetric: true });
    const ordinary = world.explain({ ...question, op });
    await world.close();
    expect(results[0]?.algorithm).toBe(plan.algorithm);
    expect([plan.algorithm, ordinary.algorithm].map((each) => each.split(" ")[0])).toEqual([
      "Symmetric",
      expect.stringMatching("Ring|Tree|PAT"),
    ]);
    expect(results[0]?.predicted_us).toBeCloseTo((plan.predictedNs as number) / 1000, 6);
    expect(plan.predictedNs).toBeLessThan(ordinary.predictedNs as number);
  },
);

describe("refuses", () => {
  const good = { ...quick, backend: sim(), collective: "allReduce" };
  test.each([
    ["an unknown collective", { collective: "allShuffle" }],
    ["no ranks", { ranks: 0 }],
    ["half an iteration", { iterations: 0.5 }],
    ["null iterations", { iterations: null as never }],
    ["no round", { rounds: 0 }],
    ["null rounds", { rounds: null as never }],
    ["null warm-up calls", { warmup: null as never }],
    ["a null mode", { mode: null as never }],
    ["a null spread", { spread: null as never }],
    ["a root that is no rank", { roots: [3] }],
    ["sizes that hold no element", { sizes: { min: 1, max: 3, step: 1 } }],
    ["an endless sweep", { sizes: { min: 8, max: 16, factor: 1 } }],
  ])("%s", async (_, wrong) => {
    await expect(bench({ ...good, ...wrong })).rejects.toThrow(InvalidArgumentError);
  });
  test.each(["dtypes", "ops", "roots"])("an empty list: %s", async (field) => {
    const measured = bench({ ...good, [field]: [] });
    await expect(measured).rejects.toThrow(InvalidArgumentError);
    await expect(measured).rejects.toMatchObject({
      field,
      message: `bench: ${field}: found none, needs at least one`,
    });
  });
  test("calls that the backend refuses", async () => {
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
