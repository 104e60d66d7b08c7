/** Programs and algorithms that are none are refused by field, before anything reads them. */
import { InvalidArgumentError } from "twinccl";
import {
  type Algorithm,
  algorithmsOf,
  briefLane,
  buildProgram,
  evaluate,
  execute,
  findAlgorithm,
  findDeadlock,
  fuse,
  lanesOfProgram,
  type Program,
  proveFusion,
  rowBlocks,
  smallestSafeCredits,
  stepAt,
  stepCount,
  verifyProgram,
  writtenLanes,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";

const ofPrograms: Readonly<Record<string, (program: Program) => unknown>> = {
  evaluate: (program) => evaluate(program, undefined, [], undefined as never),
  execute: (program) => execute(program, false),
  findDeadlock: (program) => findDeadlock(program, 1),
  fuse,
  lanesOfProgram,
  proveFusion: (program) => proveFusion(program, { groups: [] } as never),
  rowBlocks: (program) => rowBlocks(program, [1]),
  smallestSafeCredits: (program) => smallestSafeCredits(program, 1),
  stepAt: (program) => stepAt(program, 0),
  stepCount,
  verifyProgram: (program) => verifyProgram(program),
};

const ofAlgorithms: Readonly<Record<string, (algorithm: Algorithm) => unknown>> = {
  briefLane: (algorithm) => briefLane("allReduce", algorithm, 2),
  buildProgram: (algorithm) => buildProgram("allReduce", algorithm, 2, -1),
  writtenLanes: (algorithm) => writtenLanes("allReduce", algorithm, 2),
};

describe.each([
  ["program", ofPrograms],
  ["algorithm", ofAlgorithms],
])("another value in place of the %s", (field, functions) => {
  test.each(Object.entries(functions))("is refused by %s", (name, call) => {
    for (const wrong of [undefined, null, 3, "ring", {}, [], () => undefined]) {
      const run = (): unknown => call(wrong as never);
      expect(run).toThrow(InvalidArgumentError);
      expect(run).toThrow(expect.objectContaining({ field }));
      expect(run).toThrow(`${name}: ${field}: found `);
    }
  });
});

test.each(Object.entries({ algorithmsOf, findAlgorithm }))(
  "a collective that the catalogue lacks is refused by %s",
  (_, find) => {
    for (const wrong of [undefined, null, 3, "all-reduce", "constructor", {}]) {
      const run = (): unknown => find(wrong as never, undefined);
      expect(run).toThrow(InvalidArgumentError);
      expect(run).toThrow(/^catalogue: collective: found .*, needs one of allReduce, reduce, /);
    }
  },
);
