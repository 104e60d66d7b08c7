/**
 * Results against oracles that share no code with the library.
 *
 * Exact contents against naive loops; arbitrary bits against the fold orders of the papers, rounded step by step in
 * whole numbers, for every algorithm of the catalogue that folds; copies byte by byte, NaN payloads included.
 */

import { type SpecifiedCollective, specifications } from "twinccl";
import { catalogue } from "twinccl/algorithms";
import { sim } from "twinccl/sim";
import {
  type Placement,
  type Program,
  type ProgramCall,
  type ProgramFoldingCall,
  programs,
  runProgram,
} from "twinccl/testing";
import { describe, expect, test } from "vitest";
import { everyDType, isFloat, widths } from "../../src/testing/oracle/elements.ts";
import { type FoldOracle, judgeRun } from "../../src/testing/oracle/judge.ts";
import type { OracleDType, OracleOp } from "../../src/testing/oracle/rounding.ts";
import { orderOf } from "../support/fold-order.ts";
import { orderedReduce } from "../support/ordered-oracle.ts";
import { holds, isAll, seedFor, someOf } from "../support/seed.ts";

/** A row of the catalogue that folds. */
interface Row {
  readonly collective: ProgramFoldingCall["kind"];
  readonly algorithm: string;
}

const folding = (Object.keys(catalogue) as SpecifiedCollective[]).filter(
  (collective): collective is ProgramFoldingCall["kind"] => specifications[collective].reduces,
);
const rows: Row[] = folding.flatMap((collective) =>
  Object.keys(catalogue[collective]).map((algorithm) => ({ collective, algorithm })),
);

/** The first algorithm of every collective. */
const firsts: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(catalogue).map(([collective, algorithms]) => [
    collective,
    Object.keys(algorithms)[0]!,
  ]),
);

/** Runs a program with one collective done by one algorithm, the others by their first, and judges it. */
async function judge(
  { collective, algorithm }: Row,
  program: Program,
  bits: boolean,
): Promise<void> {
  const algorithms = { ...firsts, [collective]: algorithm };
  const ordered: FoldOracle = (call, ops, sent) =>
    orderedReduce((kind) => algorithms[kind]!, call, ops, sent);
  judgeRun(program, await runProgram(sim({ algorithms }), program), bits ? ordered : undefined);
}

test("every algorithm that folds has a hand-written order", () => {
  expect(rows.length).toBeGreaterThan(0);
  for (const { collective, algorithm } of rows) {
    expect(orderOf(collective, algorithm)).toBeTypeOf("function");
  }
  expect(() => orderOf("allReduce", "trial")).toThrow("allReduce by trial: no fold order");
});

describe.each(rows)("$collective by $algorithm", (row) => {
  const kinds = [row.collective, row.collective, row.collective, "broadcast", "barrier"] as const;

  test("exact contents give the results of naive loops", async () => {
    const cases = programs({ payload: "exact", kinds, maxElements: 70 });
    await holds(cases, (program) => judge(row, program, false), isAll ? 60 : 40);
  });

  test("arbitrary bits give the results of the paper's fold order", async () => {
    const cases = programs({ payload: "bits", kinds, maxElements: 70 });
    await holds(cases, (program) => judge(row, program, true), isAll ? 80 : 40);
  });
});

test("programs of all calls at once: arbitrary bits give the results of the papers' fold orders", async () => {
  const row: Row = { collective: "allReduce", algorithm: "ring" };
  await holds(programs({ payload: "bits" }), (program) => judge(row, program, true), 300);
});

/** Sizes and counts that every dtype and operator must pass: none, one, fewer than ranks, uneven, a few blocks. */
const grid: readonly (readonly [ranks: number, count: number])[] = [
  [1, 5],
  [2, 1],
  [2, 9],
  [3, 0],
  [3, 7],
  [4, 16],
  [5, 13],
  [8, 19],
  [13, 11],
  [16, 33],
  [17, 40],
];

const scalars = (dtype: OracleDType): OracleOp[] => {
  const width = BigInt(8 * widths[dtype]);
  const floats = [1 / 3, -2.5, 1e-3, 1e30, -0, 3, 1, 0.1];
  const most = (1n << (dtype.startsWith("u") ? width : width - 1n)) - 1n;
  const list = isFloat(dtype) ? floats : [2, 3, 0, 1, most, most / 3n, 7];
  return list.map((preMul) => ({ preMul }));
};

/** One call of a row; where its buffers lie changes from place to place. */
function callOf(
  { collective }: Row,
  dtype: OracleDType,
  op: OracleOp,
  [size, count]: readonly [number, number],
  place: number,
): ProgramCall {
  const form: Placement["form"] = place % 2 === 0 ? "inPlace" : "apart";
  const placement = { form, lead: place % 3, tail: 1, host: place % 5 === 0 };
  const data = { dtype, op, payload: "bits", seed: seedFor(place), placement } as const;
  if (collective === "reduce") return { ...data, kind: collective, count, root: place % size };
  if (collective !== "reduceScatterv") return { ...data, kind: collective, count };
  const counts = Array.from({ length: size }, (_, rank) => (count * (rank + 1)) % 7);
  return { ...data, kind: collective, counts };
}

function together(size: number, calls: readonly ProgramCall[]): Program {
  const steps = calls.map((call) => ({ kind: "call", comm: 0, call }) as const);
  return { size, issue: "together", splits: [], steps };
}

/** Shapes of a row: in `npm test` one of three, so that the rows together have every operator on every one of them. */
const shapesOf = (row: number): (readonly [number, (typeof grid)[number]])[] =>
  [...grid.entries()].filter(([place]) => isAll || place === [1, 4, 7][Math.floor(row / 3) % 3]);

describe("every dtype and every operator", () => {
  test.each(everyDType)("%s: arbitrary bits, all operators, 1 to 17 ranks", async (dtype) => {
    const ops: OracleOp[] = ["sum", "prod", "min", "max", "avg", ...scalars(dtype)];
    for (const [at, row] of rows.entries()) {
      for (const [place, shape] of shapesOf(at)) {
        // Every operator on every third size: each row gets them all.
        const some = ops.filter((_, i) => (i + place + at) % 3 === 0);
        const calls = some.map((op, i) => callOf(row, dtype, op, shape, 11 * place + i));
        await judge(row, together(shape[0], calls), true);
      }
    }
  });

  test.each(everyDType)(
    "%s: a single rank keeps its bytes unless a scalar multiplies them",
    async (dtype) => {
      const ops: OracleOp[] = [
        "sum",
        "prod",
        "min",
        "max",
        ...(isFloat(dtype) ? [] : ["avg" as const]),
      ];
      const place = everyDType.indexOf(dtype);
      for (const row of rows.filter((_, at) => isAll || at % 3 === place % 3)) {
        const calls = ops.map((op, i) => callOf(row, dtype, op, [1, 64], i));
        const { outcomes } = await runProgram(
          sim({ algorithms: { [row.collective]: row.algorithm } }),
          together(1, calls),
        );
        for (const { ranks } of outcomes) {
          expect(ranks[0]?.sent.length).toBeGreaterThan(0);
          expect(ranks[0]?.bytes).toEqual(ranks[0]?.sent);
        }
      }
    },
  );
});

describe("buffers longer than an executor's block", () => {
  const long: readonly (readonly [OracleDType, number])[] = [
    ["int8", 2 * 16_384 + 5],
    ["uint64", 2 * 2048 + 1],
    ["float16", 8192 + 3],
    ["float32", 4096 * 2],
    ["float64", 2048 * 3 - 1],
  ];
  test.each(someOf(long))(
    "%s[%i]: exact sums on 1, 2 and 3 ranks, in place and apart",
    async (dtype, count) => {
      for (const size of [1, 2, 3]) {
        for (const form of ["inPlace", "apart"] as const) {
          const placement = { form, lead: 1, tail: 1, host: false } as const;
          const data = { dtype, payload: "exact", seed: size, placement } as const;
          const calls: ProgramCall[] = [
            { ...data, kind: "allReduce", op: "sum", count },
            { ...data, kind: "broadcast", root: size - 1, count },
          ];
          for (const [at, algorithm] of ["ring", "linear"].entries()) {
            if (!isAll && (size + at) % 2 !== Number(form === "apart")) continue;
            await judge({ collective: "allReduce", algorithm }, together(size, calls), false);
          }
        }
      }
    },
  );
});
