/** Programs with mistakes that no single changed operation of the catalogue makes, and what the verifier says. */
import type { SpecifiedCollective } from "twinccl";
import {
  input,
  layoutOf,
  output,
  type Program,
  ProgramBuilder,
  type ProgramHead,
  scratch,
  verifyProgram,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { interpret } from "../support/interpreter.ts";

function built(
  collective: SpecifiedCollective,
  head: Partial<ProgramHead>,
  write: (program: ProgramBuilder) => void,
): Program {
  const usual = { algorithm: "none", ranks: 2, root: -1, chunksPerBlock: 1 };
  const builder = new ProgramBuilder({ collective, ...usual, ...head });
  write(builder);
  return builder.build();
}

function problemsOf(program: Program): string[] {
  return verifyProgram(program).problems.map(({ pass, text }) => `${pass}: ${text}`);
}

/** Each rank keeps its own block, and lane 1 sends what lane 0 stores beside it. */
const race = built("allGather", { channels: 2 }, (program) => {
  program.everyRank((lane, rank) => lane.copy(input(0), output(rank)));
  program.everyRank((lane, rank) => {
    lane.send(output(rank), 1 - rank).recv(1 - rank, output(1 - rank));
  }, 1);
});

describe("the verifier notices", () => {
  test("lanes of one rank that race for a chunk in some resume order", () => {
    expect(problemsOf(race)).toContain(
      "hazard: rank 0: out[0] is written by one lane and touched by another beside it",
    );
    const layout = layoutOf(race, { count: 3 });
    const inputs = [1, 2].map((value) => new Float64Array(3).fill(value));
    const run = (order: number) =>
      interpret({
        program: race,
        layout,
        inputs,
        arithmetic: undefined,
        credits: 1,
        order,
        inPlace: false,
      }).outputs;
    expect(run(0)[1]).toEqual(Float64Array.of(1, 1, 1, 2, 2, 2));
    expect(run(1)[1]).not.toEqual(run(0)[1]);
  });

  test("an in-place output of one lane that overlaps another lane's input", () => {
    const program = built("allReduce", { ranks: 1, channels: 2, chunksPerBlock: 2 }, (builder) => {
      builder.lane(0, 0).copy(input(0), output(0), { final: true });
      builder.lane(0, 1).copy(input(0), scratch(0)).copy(input(1), output(1), { final: true });
    });
    expect(problemsOf({ ...program, scratchChunks: 1 })).toEqual([
      "hazard: rank 0: out[0] is written by one lane and touched by another beside it",
    ]);
  });

  test("a step that overwrites chunks before it reads them", () => {
    const program = built("allGather", { scratchChunks: 3 }, (builder) => {
      builder.everyRank((lane, rank) => {
        lane
          .copy(input(0), scratch(0))
          .send(input(0), 1 - rank)
          .recv(1 - rank, scratch(1));
        lane.copy(scratch(0), scratch(1), { span: 2 });
        lane.copy(scratch(1), output(rank)).copy(scratch(2), output(1 - rank));
      });
    });
    expect(problemsOf(program)[0]).toMatch(/hazard: .*reads other chunks from/);
  });

  test("a chunk stored in a place that may have another length", () => {
    const program = built("allReduce", { ranks: 1, chunksPerBlock: 2 }, (builder) => {
      builder.lane(0).copy(input(0), output(1)).copy(output(1), output(0), { final: true });
      builder.lane(0).copy(input(1), output(1), { final: true });
    });
    expect(problemsOf(program)[0]).toMatch(/hazard: rank 0 .*may have another length/);
  });

  test("a block stored in a place that may have other counts of the caller", () => {
    const write = (builder: ProgramBuilder): void => {
      builder.everyRank((lane, rank) => {
        lane.copy(input(1 - rank), output(rank)).copy(input(rank), output(rank));
        lane.send(input(1 - rank), 1 - rank).recv(1 - rank, output(1 - rank));
      });
    };
    expect(problemsOf(built("allToAll", {}, write))).toEqual([]);
    expect(problemsOf(built("allToAllv", {}, write))[0]).toMatch(/may have another length/);
  });

  test("peers that do not exist", () => {
    const program = built("barrier", {}, (builder) => {
      builder.lane(0).signal(2).wait(1);
      builder.lane(1).signal(0).wait(-3);
    });
    expect(problemsOf(program)).toEqual(
      expect.arrayContaining([
        "match: rank 0 names rank 2, which does not exist",
        "match: rank 1 names rank -3, which does not exist",
      ]),
    );
  });

  test("a send of nothing", () => {
    const program = built("broadcast", { root: 0 }, (builder) => {
      builder.lane(0).copy(input(0), output(0)).send(-1, 1);
      builder.lane(1).recv(0, output(0));
    });
    expect(problemsOf(program)[0]).toMatch(/hazard: rank 0 .*takes nothing/);
  });
});
