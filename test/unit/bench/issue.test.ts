/** The timed calls of a benchmark: their number, and the graphs that hold them. */
import type { Communicator, Graph } from "twinccl";
import type { BenchOptions, Issue } from "twinccl/bench";
import { describe, expect, test } from "vitest";
import { benchOn } from "../../../src/bench/bench.ts";
import type { RankFigures } from "../../../src/bench/document.ts";
import { timeCalls, timedCalls } from "../../../src/bench/issue.ts";
import type { BenchJob } from "../../../src/bench/job.ts";

const eager: Issue = { mode: "eager", latency: false, symmetric: false };
const graph: Issue = { ...eager, mode: "graph" };

/** A communicator that counts: recorded calls, replays, and graphs that are left. */
function countingComm() {
  const counts = { recorded: 0, replays: 0, graphs: 0 };
  const comm = {
    capabilities: { virtualTime: false },
    barrier: async () => undefined,
    capture: async (calls: () => void): Promise<Graph> => {
      counts.graphs++;
      calls();
      return {
        replay: async () => void counts.replays++,
        dispose: () => void counts.graphs--,
      } as unknown as Graph;
    },
  };
  const call = async () => void counts.recorded++;
  return { comm: comm as unknown as Communicator, counts, call };
}

describe("timed calls", () => {
  test.each([
    [eager, 7, 7],
    [graph, 7, 7],
    [graph, 20, 20],
    [graph, 50, 60],
    [{ ...graph, latency: true }, 50, 50],
  ])("%o: %i become %i", (issue, iterations, calls) => {
    expect(timedCalls(iterations, issue)).toBe(calls);
  });

  test("in a graph are 20 calls, replayed until all are made; no graph is left", async () => {
    const { comm, counts, call } = countingComm();
    await timeCalls(comm, { iterations: 200, warmup: 0, issue: graph }, call);
    // The first replay is not timed.
    expect(counts).toEqual({ recorded: 20, replays: 1 + 10, graphs: 0 });
  });

  test("one by one are replays of a graph of one call; no graph is left", async () => {
    const { comm, counts, call } = countingComm();
    const issue = { ...graph, latency: true };
    const { samples } = await timeCalls(comm, { iterations: 5, warmup: 0, issue }, call);
    expect(samples).toHaveLength(5);
    expect(counts).toEqual({ recorded: 1, replays: 1 + 5, graphs: 0 });
  });
});

describe("a row that is measured in several rounds", () => {
  /** A job whose trials have these figures, after the two of the warm-up. */
  function scriptedJob(figures: readonly Partial<RankFigures>[]): BenchJob {
    const none: RankFigures = { began: 0, ended: 1e6, median: 0, p99: 0, wrong: 0, checked: 1 };
    let trials = 0;
    return {
      backend: "scripted",
      isWhole: true,
      // The long trials of the warm-up end it at once.
      run: async () => [{ ...none, ...figures[trials++ - 2] }],
      ask: async (question) =>
        question({
          capabilities: { virtualTime: false },
          supports: () => ({ supported: true }),
        } as unknown as Communicator),
      explain: () => ({ algorithm: "scripted", predictedNs: 0 }) as never,
      close: async () => undefined,
    };
  }

  const options: BenchOptions = {
    backend: undefined as never,
    collective: "broadcast",
    ranks: 1,
    sizes: { min: 8, max: 8 },
    iterations: 1,
    warmup: 0,
  };

  test("has the middle time, and the wrong elements of all", async () => {
    const job = scriptedJob([
      { ended: 30, wrong: 1 },
      { ended: 10 },
      { ended: 20 },
      ...[{ ended: 2 }, { ended: 1 }, { ended: 9 }],
    ]);
    const { results } = await benchOn(job, { ...options, rounds: 3 });
    expect(results[0]?.out_of_place).toMatchObject({ time: 20_000, nwrong: 1, checked: 3 });
    expect(results[0]?.in_place).toMatchObject({ time: 2000, nwrong: 0 });
  });
});
