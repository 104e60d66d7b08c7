/** The verifier accepts every program of the catalogue, for every number of ranks that a test can afford. */

import { specifications } from "twinccl";
import {
  algorithmsOf,
  builtCollectives,
  catalogue,
  evaluate,
  layoutOf,
  verifyAlgorithm,
} from "twinccl/algorithms";
import { describe, expect, test } from "vitest";
import { isAll } from "../../support/seed.ts";

const rows = builtCollectives.flatMap((collective) =>
  algorithmsOf(collective).map((algorithm) => ({ collective, algorithm, name: algorithm.name })),
);

/** Numbers of ranks: in `npm test` above 16 those about powers of two, and every ninth. */
const sizes = Array.from({ length: 64 }, (_, at) => at + 1).filter(
  (ranks) => isAll || ranks <= 16 || ranks % 9 === 0 || [31, 32, 33, 64].includes(ranks),
);

describe("the verifier", () => {
  const { ring } = catalogue.allReduce;
  const { chain } = catalogue.broadcast;
  test.each<[field: string, call: readonly unknown[]]>([
    ["collective", ["allreduce", ring, 3]],
    ["collective", ["toString", ring, 3]],
    ["algorithm", ["allReduce", "ring", 3]],
    ["algorithm", ["allReduce", undefined, 3]],
    ["ranks", ["allReduce", ring, 0]],
    ["ranks", ["allReduce", ring, 1.5]],
    ["root", ["broadcast", chain, 3, 3]],
    ["root", ["broadcast", chain, 3, -1]],
  ])("refuses a wrong %s: %j", (field, call) => {
    const verify = () => verifyAlgorithm(...(call as Parameters<typeof verifyAlgorithm>));
    expect(verify).toThrow(expect.objectContaining({ code: "ERR_COMM_ARG", field }));
    expect(verify).toThrow(`verifyAlgorithm: ${field}: found `);
  });

  test("takes root 0 where none is given", () => {
    const { problems, program } = verifyAlgorithm("broadcast", chain, 3);
    expect([problems, program.root]).toEqual([[], 0]);
  });

  test.each(rows)("accepts $collective $name for 1 to 64 ranks", ({ collective, algorithm }) => {
    const problems: string[] = [];
    for (const ranks of sizes) {
      const { rooted } = specifications[collective];
      const someRoots = [0, ranks - 1, ranks >> 1];
      const roots = rooted ? someRoots.filter((_, at) => isAll || at === ranks % 3) : [-1];
      for (const root of new Set(roots)) {
        const verdict = verifyAlgorithm(collective, algorithm, ranks, root);
        for (const { pass, text } of verdict.problems) {
          problems.push(`n=${ranks} root=${root} ${pass}: ${text}`);
        }
      }
    }
    expect(problems.slice(0, 5)).toEqual([]);
  });

  test("judges at least one program of every collective", () => {
    expect(new Set(rows.map(({ collective }) => collective)).size).toBe(builtCollectives.length);
    expect(Object.keys(specifications).sort()).toEqual([...builtCollectives].sort());
  });

  test.each(rows)("counts for $collective $name the rounds and elements of the engine", (row) => {
    for (const ranks of [1, 2, 3, 5, 8, 13, 24]) {
      const root = specifications[row.collective].rooted ? ranks >> 1 : -1;
      const found = verifyAlgorithm(row.collective, row.algorithm, ranks, root);
      const { program, steps, sentElements } = found;
      const layout = layoutOf(program, { count: 4 * program.chunksPerBlock });
      const start = new Float64Array(ranks);
      const oneRound = { latency: 0, occupancy: () => 1 };
      const timing = evaluate(program, layout, start, oneRound);
      expect(steps, `${ranks} ranks`).toBe(Math.max(...timing.finished));
      expect(sentElements, `${ranks} ranks`).toBe(Math.max(...timing.sentElements));
    }
  });

  test("requires an order of folding from every algorithm that folds", () => {
    const { order: _, ...silent } = catalogue.allReduce.ring;
    const { problems } = verifyAlgorithm("allReduce", silent, 4);
    expect(problems).toEqual([
      { pass: "association", text: "the header states no order of folding" },
    ]);
    for (const { collective, algorithm } of rows) {
      expect(algorithm.order !== undefined, `${collective} ${algorithm.name}`).toBe(
        specifications[collective].reduces,
      );
    }
  });
});
