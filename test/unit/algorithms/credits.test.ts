/** Deadlocks of programs: the cycle that is printed, and how many credits are enough. */

import {
  buildProgram,
  catalogue,
  findDeadlock,
  type ProgramBuilder,
  smallestSafeCredits,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";

const { linear, ring } = catalogue.allReduce;

describe("a program", () => {
  test("that only deadlocks prints the cycle, and says how many credits it needs", () => {
    const program = buildProgram("allReduce", ring, 3, -1);
    expect(findDeadlock(program, 0)).toEqual([
      "rank 0 waits for rank 1 (take in[2], send to 1)",
      "rank 1 waits for rank 2 (take in[0], send to 2)",
      "rank 2 waits for rank 0 (take in[1], send to 0)",
    ]);
    expect(findDeadlock(program, 1)).toBeUndefined();
    expect(smallestSafeCredits(program, 5)).toBe(1);
    expect(smallestSafeCredits(program, 0)).toBeUndefined();
  });

  test("that waits for itself never has enough credits", () => {
    const write = (program: ProgramBuilder): void => {
      program.everyRank((lane, rank) => {
        lane.wait(1 - rank).signal(1 - rank);
      });
    };
    const program = buildProgram("barrier", { ...linear, write }, 2, -1);
    expect(smallestSafeCredits(program, 8)).toBeUndefined();
    expect(findDeadlock(program, 8)).toHaveLength(2);
  });
});
