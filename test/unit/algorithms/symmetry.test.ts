/** The verifier's report on symmetries that are stated and not there. */
import { type Algorithm, catalogue, input, output, verifyAlgorithm } from "twinccl/algorithms";
import { describe, expect, test } from "vitest";

const { ring } = catalogue.allGather;

function problemsOf(algorithm: Algorithm, ranks: number): string[] {
  const { problems } = verifyAlgorithm("allGather", algorithm, ranks);
  return problems.map(({ pass, text }) => `${pass}: ${text}`);
}

describe("the verifier notices", () => {
  test("ranks that are not symmetric", () => {
    // Rank 1 takes its two steps the other way round, which the collective does not mind.
    const write: Algorithm["write"] = (program) => {
      program.everyRank((lane, rank) => {
        lane.copy(input(0), output(rank));
        const send = () => lane.send(output(rank), 1 - rank);
        const recv = () => lane.recv(1 - rank, output(1 - rank));
        for (const half of rank === 0 ? [send, recv] : [recv, send]) half();
      });
    };
    const uneven: Algorithm = {
      ...ring,
      credits: () => 0,
      cost: () => ({ steps: 2, sentElements: 4 }),
      write,
    };
    expect(problemsOf({ ...uneven, symmetry: () => undefined }, 2)).toEqual([]);
    expect(problemsOf(uneven, 2)).toEqual([
      "symmetry: rotation: rank 0 (take out[0], send to 1), rank 1 (receive from 0, store in out[0])",
    ]);
  });

  test("a wrong renumbering", () => {
    expect(problemsOf(ring, 4)).toEqual([]);
    const [problem] = problemsOf({ ...ring, symmetry: () => "hypercube" }, 4);
    expect(problem).toMatch(
      /^symmetry: hypercube: rank 0 \(.*send to 1\), rank 1 \(.*send to 2\)$/,
    );
  });

  test("a stated repetition that does not repeat", () => {
    const write: Algorithm["write"] = (program) => {
      const { ranks } = program;
      program.everyRank((lane, rank) => {
        // To the ranks 1, 3, 2 and 4 on: the first and the last time tell nothing about those between.
        const distances = [1, 3, 2, 4];
        lane.copy(input(0), output(rank));
        lane.repeat(4, (time) => lane.send(output(rank), (rank + distances[time]!) % ranks));
        for (const distance of [1, 2, 3, 4]) {
          const peer = (rank - distance + ranks) % ranks;
          lane.recv(peer, output(peer));
        }
      });
    };
    const late: Algorithm = { ...ring, cost: () => ({ steps: 5, sentElements: 16 }), write };
    expect(problemsOf({ ...late, symmetry: () => undefined }, 5)).toEqual([]);
    expect(problemsOf(late, 5)).toEqual([
      "symmetry: the brief lane differs from rank 0 (receive from 4, store in out[4])",
    ]);
  });
});
