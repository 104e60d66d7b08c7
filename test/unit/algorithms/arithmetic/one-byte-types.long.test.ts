/** Exhaustive: every pair of 1-byte operands, for every operator. */
import { describe, expect, test } from "vitest";
import {
  bitsToNumber,
  foldFor,
  numberToBits,
} from "../../../../src/algorithms/arithmetic/index.ts";
import type { DType } from "../../../../src/api/dtype.ts";
import { type ReduceOp, reduceOpName } from "../../../../src/api/reduce-op.ts";
import { oracleFinish, oracleFold, oracleScalar } from "../../../../src/testing/oracle/rounding.ts";
import { pairs } from "./lane-bits.ts";

const all = Array.from({ length: 0x100 }, (_, bits) => BigInt(bits));
const [left, right] = pairs(all, all).map((column) => Uint8Array.from(column, Number)) as [
  Uint8Array,
  Uint8Array,
];
const pairCount = left.length;

/** `left ∘ right` by the library, begun with `left`. */
function folded(dtype: DType, op: ReduceOp, ranks: number): Uint8Array {
  const fold = foldFor(dtype, op, ranks, "fused");
  const acc = new Uint8Array(pairCount);
  fold.begin(acc, 0, left, 0, pairCount);
  fold.addContribution(acc, 0, right, 0, pairCount);
  fold.finish(acc, 0, pairCount);
  return acc;
}

function expectPairs(what: string, actual: Uint8Array, expected: (pair: number) => number): void {
  for (let pair = 0; pair < pairCount; pair++) {
    const wanted = expected(pair);
    if (actual[pair] === wanted) continue;
    expect(actual[pair], `${what} of ${left[pair]} and ${right[pair]}`).toBe(wanted);
  }
}

const plain = ["sum", "prod", "min", "max"] as const;

describe.each(["int8", "uint8"] as const)("%s", (dtype) => {
  test.each(plain)("%s of every pair", (op) => {
    expectPairs(op, folded(dtype, op, 2), (pair) => {
      const contributions = [BigInt(left[pair]!), BigInt(right[pair]!)];
      return Number(oracleFold({ dtype, op, ranks: 2, rounding: "fused", contributions }));
    });
  });

  test.each([1, 2, 3, 5, 8, 127, 1000])("average over %i ranks of every pair", (ranks) => {
    const quotients = all.map((bits) => Number(oracleFinish({ dtype, op: "avg", ranks, bits })));
    const actual = folded(dtype, "avg", ranks);
    expectPairs("avg", actual, (pair) => quotients[(left[pair]! + right[pair]!) & 0xff]!);
  });

  test.each(dtype === "int8" ? [3, -1, -128, 0] : [3, 1, 255, 0])("preMul %i", (preMul) => {
    expectPairs(`preMul ${preMul}`, folded(dtype, { preMul }, 2), (pair) => {
      return (left[pair]! * preMul + right[pair]! * preMul) & 0xff;
    });
  });
});

describe.each(["float8e4m3", "float8e5m2"] as const)("%s", (dtype) => {
  const oracleTable = (op: "sum" | "prod" | "min" | "max"): Uint8Array =>
    Uint8Array.from(left, (a, pair) => {
      const contributions = [BigInt(a), BigInt(right[pair]!)];
      return Number(oracleFold({ dtype, op, ranks: 2, rounding: "fused", contributions }));
    });
  const sums = oracleTable("sum");

  test.each(plain)("%s of every pair", (op) => {
    const expected = op === "sum" ? sums : oracleTable(op);
    expectPairs(op, folded(dtype, op, 2), (pair) => expected[pair]!);
  });

  const scaled: [ReduceOp, number][] = [2, 3, 5, 7, 8].map((ranks) => ["avg", ranks]);
  for (const preMul of [0.3, -3, 448, 2 ** -9, 0, Number.NaN, 1e9]) scaled.push([{ preMul }, 2]);
  test.each(scaled)(
    "%o over %i ranks: product, then sum, each rounded through half",
    (op, ranks) => {
      const products = all.map((bits) => {
        const contributions = [bits];
        return Number(oracleFold({ dtype, op, ranks, rounding: "fused", contributions }));
      });
      const actual = folded(dtype, op, ranks);
      expectPairs(reduceOpName(op), actual, (pair) => {
        return sums[products[left[pair]!]! * 256 + products[right[pair]!]!]!;
      });
      // A partial of any kind meets a scaled contribution.
      const acc = left.slice();
      const fold = foldFor(dtype, op, ranks, "separate");
      fold.addContribution(acc, 0, right, 0, pairCount);
      expectPairs(
        reduceOpName(op),
        acc,
        (pair) => sums[left[pair]! * 256 + products[right[pair]!]!]!,
      );
    },
  );

  test("infinities do not survive a hop, nor do NaN payloads", () => {
    if (dtype === "float8e4m3") return;
    for (const op of plain) {
      const results = new Set(folded(dtype, op, 2));
      expect(results.has(0x7c) || results.has(0xfc), op).toBe(false);
      for (const nan of [0x7d, 0x7e, 0xfd, 0xfe, 0xff]) expect(results.has(nan), op).toBe(false);
    }
  });

  test("every pattern survives decoding and encoding", () => {
    for (let bits = 0; bits < 0x100; bits++) {
      const value = bitsToNumber(dtype, bits);
      const expected = Number.isNaN(value)
        ? 0x7f
        : Number.isFinite(value)
          ? bits
          : (bits & 0x80) | 0x7b;
      expect(numberToBits(dtype, value)).toBe(expected);
    }
  });

  test("encoding rounds like the oracle", () => {
    for (let i = -4000; i <= 4000; i++) {
      const x = Math.sign(i) * 1.013 ** (Math.abs(i) / 2) * 2 ** -18;
      expect(BigInt(numberToBits(dtype, x))).toBe(oracleScalar(dtype, { preMul: x }, 1));
    }
  });
});

test("worked examples of section 5.4", () => {
  const sum = (dtype: "float8e4m3" | "float8e5m2", a: number, b: number): number => {
    const [x, y] = [numberToBits(dtype, a), numberToBits(dtype, b)];
    return bitsToNumber(dtype, folded(dtype, "sum", 2)[x * 256 + y]!);
  };
  expect(sum("float8e4m3", 448, 448)).toBe(448);
  expect(sum("float8e5m2", 57344, 57344)).toBe(57344);
  expect(sum("float8e4m3", 1, 0.0625)).toBe(1);
});
