/**
 * Results against oracles that share no code with the library.
 *
 * Exact payloads against naive loops; arbitrary bits against the fold orders of the papers, rounded hop by hop in
 * whole numbers; copies against a naive transpose, NaN payloads included.
 */

import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { comparable, everyDType, firstDifference, isFloat } from "../support/element-bits.ts";
import { type OrderedAlgorithm, orderedReduce } from "../support/fold-order.ts";
import { naiveOutcome } from "../support/naive-oracle.ts";
import {
  type ProgramCall,
  type RankOutcome,
  type ReduceCall,
  runProgram,
  sentBits,
  type TestProgram,
} from "../support/program.ts";
import type { OracleDType, OracleOp } from "../support/rounding-oracle.ts";
import { holds, seedFor } from "../support/seed.ts";
import { programs, scalarsFor } from "./arbitraries.ts";

const algorithms: readonly OrderedAlgorithm[] = ["ring", "linear"];

/** What each rank must hold; `undefined` for calls that another oracle judges. */
type Oracle = (call: ProgramCall, ranks: number) => readonly RankOutcome[] | undefined;

async function judge(
  algorithm: OrderedAlgorithm,
  program: TestProgram,
  oracle: Oracle,
): Promise<void> {
  const backend = sim({ algorithms: { allReduce: algorithm } });
  const outcome = await runProgram(backend, program);
  for (const [at, call] of program.calls.entries()) {
    const needed = oracle(call, program.size);
    if (needed === undefined || call.kind === "barrier") continue;
    for (const [rank, expected] of needed.entries()) {
      const found = outcome[at]?.[rank] as RankOutcome;
      expect(found.recvCounts).toEqual(expected.recvCounts);
      expect(found.recvOffsets).toEqual(expected.recvOffsets);
      const extreme = call.kind === "allReduce" && (call.op === "min" || call.op === "max");
      // Which zero a naive minimum finds depends on its order.
      const view = (bytes: Uint8Array): Uint8Array =>
        extreme && program.size > 1 ? comparable(call.dtype, "min", bytes) : bytes;
      const difference = firstDifference(call.dtype, view(found.bytes), view(expected.bytes));
      if (difference !== undefined) {
        throw new Error(
          `${algorithm}, call ${at} (${call.kind} ${call.dtype}), rank ${rank}: ${difference}`,
        );
      }
    }
  }
}

function orderedOutcome(algorithm: OrderedAlgorithm): Oracle {
  return (call, ranks) => {
    if (call.kind !== "allReduce") return naiveOutcome(call, ranks);
    const everyRank = Array.from({ length: ranks }, (_, rank) => rank);
    const sent = everyRank.map((rank) => sentBits(call, ranks, rank));
    const bytes = orderedReduce(algorithm, call.dtype, call.op, sent);
    return everyRank.map(() => ({ bytes }));
  };
}

describe.each(algorithms)("with the %s all-reduce", (algorithm) => {
  test("exact payloads give what naive loops give", async () => {
    await holds(
      programs({ payload: "exact" }),
      (program) => judge(algorithm, program, naiveOutcome),
      300,
    );
  });

  test("arbitrary bits give what the paper's order gives", async () => {
    await holds(
      programs({ payload: "bits" }),
      (program) => judge(algorithm, program, orderedOutcome(algorithm)),
      300,
    );
  });
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

function reduceCall(dtype: OracleDType, op: OracleOp, count: number, place: number): ReduceCall {
  const form = place % 2 === 0 ? "inPlace" : "apart";
  const placement = { form, lead: place % 3, tail: 1, host: place % 5 === 0 } as const;
  return { kind: "allReduce", dtype, payload: "bits", seed: seedFor(place), placement, op, count };
}

describe("every dtype and every operator", () => {
  test.each(everyDType)("%s: arbitrary bits, all operators, 1 to 17 ranks", async (dtype) => {
    const scalars = scalarsFor(dtype, "bits").map((preMul) => ({ preMul }));
    const ops: OracleOp[] = ["sum", "prod", "min", "max", "avg", ...scalars];
    for (const [place, [size, count]] of grid.entries()) {
      const calls = ops.map((op, i) => reduceCall(dtype, op, count, 11 * place + i));
      for (const algorithm of algorithms) {
        await judge(algorithm, { size, issue: "together", calls }, orderedOutcome(algorithm));
      }
    }
  });

  test.each(everyDType)(
    "%s: one rank alone keeps its bytes unless a scalar meets them",
    async (dtype) => {
      const ops: OracleOp[] = [
        "sum",
        "prod",
        "min",
        "max",
        ...(isFloat(dtype) ? [] : ["avg" as const]),
      ];
      const calls = ops.map((op, i) => reduceCall(dtype, op, 64, i));
      const outcome = await runProgram(sim(), { size: 1, issue: "each", calls });
      for (const [at, call] of calls.entries()) {
        const sent = await runProgram(sim(), {
          size: 1,
          issue: "each",
          calls: [{ ...call, kind: "broadcast", root: 0 }],
        });
        expect(sentBits(call, 1, 0)).toHaveLength(64);
        expect(outcome[at]?.[0]?.bytes).toEqual(sent[0]?.[0]?.bytes);
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
  test.each(long)(
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
          for (const algorithm of algorithms) {
            await judge(algorithm, { size, issue: "each", calls }, naiveOutcome);
          }
        }
      }
    },
  );
});
