import { describe, expect, test } from "vitest";
import { canonicalise } from "../../../../src/algorithms/arithmetic/fold.ts";
import type { FloatDType } from "../../../../src/algorithms/arithmetic/index.ts";
import {
  averageScalar,
  canonicalNaN,
  foldFor,
  lanesOf,
  lanesPerElement,
  numberToBits,
  scalarBits,
} from "../../../../src/algorithms/arithmetic/index.ts";
import { bytesOf, dtypes } from "../../../../src/api/dtype.ts";
import { InvalidArgumentError } from "../../../../src/api/errors.ts";
import { namedReduceOps, type ReduceOp } from "../../../../src/api/reduce-op.ts";
import { oracleFinish, oracleFold, oracleJoin } from "../../../../src/testing/oracle/rounding.ts";
import { someOf } from "../../../support/seed.ts";
import { bitsOf, foldByHops, hex, lanesFrom, pairs, specialBits, wildBits } from "./lane-bits.ts";

const allOps: ReduceOp[] = [...namedReduceOps, { preMul: 3 }];
const isFloat = (dtype: string): dtype is FloatDType => dtype.includes("float");

describe.each(dtypes)("%s", (dtype) => {
  test.each(someOf(allOps))("%o: a chain of 1 to 17 sources is begin and additions", (op) => {
    const count = 2 * 2048 + 5;
    const columns = Array.from({ length: 17 }, (_, k) => wildBits(dtype, count, k + 1));
    const sources = columns.map((column, k) => {
      // Each source starts somewhere else in its memory.
      return lanesFrom(dtype, [...new Array<bigint>(k).fill(1n), ...column]);
    });
    for (const rounding of isFloat(dtype)
      ? (["fused", "separate"] as const)
      : (["fused"] as const)) {
      const fold = foldFor(dtype, op, 5, rounding);
      const stepwise = lanesFrom(dtype, new Array<bigint>(count).fill(0n));
      for (let k = 1; k <= 17; k++) {
        const used = sources.slice(0, k);
        if (k === 1) fold.begin(stepwise, 0, used[0]!, 0, count);
        else fold.addContribution(stepwise, 0, used[k - 1]!, k - 1, count);
        const expected = stepwise.slice();
        fold.finish(expected, 0, count);
        const acc = lanesFrom(dtype, new Array<bigint>(count + 6).fill(1n));
        const starts = used.map((_, i) => i);
        fold.chain(acc, 3, used, starts, count);
        fold.finish(acc, 3, count);
        // Nothing outside the range is touched.
        const lanes = lanesPerElement(dtype);
        const ones = lanesFrom(dtype, [1n, 1n, 1n]);
        expect(acc.slice(0, 3 * lanes)).toEqual(ones);
        expect(acc.slice((3 + count) * lanes)).toEqual(ones);
        // Buffers, not lanes: a NaN's bits count, and a Buffer compares fast.
        const inside = acc.slice(3 * lanes, (3 + count) * lanes);
        const same = Buffer.from(inside.buffer).equals(Buffer.from(expected.buffer));
        expect(same, `${k} sources, ${rounding}`).toBe(true);
      }
    }
  });

  test.each(someOf(allOps))("%o: the result does not depend on which operand is which", (op) => {
    const scaled = foldFor(dtype, op, 3, "fused").scales;
    const specials = specialBits(dtype);
    const [a, b] = pairs(specials, specials);
    const left = [...a, ...wildBits(dtype, 3000, 1)];
    const right = [...b, ...wildBits(dtype, 3000, 2)];
    const join = (x: bigint[], y: bigint[]): bigint[] => {
      const fold = foldFor(dtype, op, 3, "fused");
      const acc = lanesFrom(dtype, x);
      fold.addPartial(acc, 0, lanesFrom(dtype, y), 0, x.length);
      if (isFloat(dtype)) fold.finish(acc, 0, x.length);
      return bitsOf(dtype, acc);
    };
    const joined = join(left, right);
    expect(join(right, left)).toEqual(joined);
    const expected = left.map((x, i) => oracleJoin({ dtype, op, left: x, right: right[i]! }));
    expect(joined.map(hex)).toEqual(expected.map(hex));
    if (scaled) return;
    const contributed = foldByHops(dtype, op, 3, "fused", [left, right]);
    expect(foldByHops(dtype, op, 3, "fused", [right, left])).toEqual(contributed);
  });

  test.each(someOf(allOps))(
    "%o: an accumulator may be a source of itself at the same place",
    (op) => {
      const bits = wildBits(dtype, 5000, 7);
      const fold = foldFor(dtype, op, 3, "fused");
      const own = lanesFrom(dtype, bits);
      const apart = lanesFrom(dtype, bits);
      const source = lanesFrom(dtype, bits);
      fold.begin(own, 0, own, 0, bits.length);
      fold.begin(apart, 0, source, 0, bits.length);
      const begun = apart.slice();
      fold.addContribution(own, 0, own, 0, bits.length);
      fold.addContribution(apart, 0, begun, 0, bits.length);
      fold.addPartial(own, 0, own, 0, bits.length);
      fold.addPartial(apart, 0, apart.slice(), 0, bits.length);
      fold.finish(own, 0, bits.length);
      fold.finish(apart, 0, bits.length);
      expect(bitsOf(dtype, own)).toEqual(bitsOf(dtype, apart));
    },
  );

  test("joined and finished partials equal the oracle", () => {
    const columns = [1, 2, 3, 4].map((seed) => wildBits(dtype, 2000, seed));
    for (const op of allOps) {
      const fold = foldFor(dtype, op, 4, "fused");
      const lanes = columns.map((column) => lanesFrom(dtype, column));
      const [x, y] = [lanes[0]!.slice(), lanes[2]!.slice()];
      fold.begin(x, 0, lanes[0]!, 0, 2000);
      fold.addContribution(x, 0, lanes[1]!, 0, 2000);
      fold.begin(y, 0, lanes[2]!, 0, 2000);
      fold.addContribution(y, 0, lanes[3]!, 0, 2000);
      fold.addPartial(x, 0, y, 0, 2000);
      fold.finish(x, 0, 2000);
      const actual = bitsOf(dtype, x);
      actual.forEach((bits, i) => {
        const partial = (first: number): bigint => {
          const contributions = [columns[first]![i]!, columns[first + 1]![i]!];
          return oracleFold({
            dtype,
            op,
            ranks: 4,
            rounding: "fused",
            contributions,
            finish: false,
          });
        };
        const joined = oracleJoin({ dtype, op, left: partial(0), right: partial(2) });
        const expected = oracleFinish({ dtype, op, ranks: 4, bits: joined });
        if (bits !== expected) expect(hex(bits)).toBe(hex(expected));
      });
    }
  });

  test("lanes cover the memory", () => {
    const memory = new SharedArrayBuffer(64);
    const lanes = lanesOf(dtype, memory, 8, 48);
    expect(lanes.byteOffset).toBe(8);
    expect(lanes.byteLength).toBe(48);
    expect(lanes.length).toBe((48 / bytesOf(dtype)) * lanesPerElement(dtype));
    if (lanesPerElement(dtype) === 2) expect(lanesOf(dtype, memory, 4, 56).byteOffset).toBe(4);
  });

  test("NaNs are written as the canonical NaN, and other values unchanged", () => {
    const bits = [...specialBits(dtype), ...wildBits(dtype, 3000, 3)];
    const lanes = lanesFrom(dtype, bits);
    canonicalise(dtype, lanes, 1, bits.length - 2);
    const expected = bits.map((x, i) => {
      if (i === 0 || i === bits.length - 1 || !isFloat(dtype)) return x;
      return oracleFinish({ dtype, op: "sum", ranks: 1, bits: x });
    });
    expect(bitsOf(dtype, lanes).map(hex)).toEqual(expected.map(hex));
    if (isFloat(dtype)) expect(expected).toContain(canonicalNaN[dtype]);
  });
});

test("equal arguments give the same fold; other bits need another fold", () => {
  const avg = foldFor("float32", "avg", 3, "fused");
  expect(foldFor("float32", "avg", 3, "fused")).toBe(avg);
  expect(foldFor("float32", "avg", 3, "separate")).not.toBe(avg);
  expect(foldFor("float32", "avg", 5, "fused")).not.toBe(avg);
  expect(foldFor("float32", "sum", 3, "fused")).toBe(foldFor("float32", "sum", 8, "separate"));
  expect(foldFor("float8e4m3", "avg", 3, "fused")).toBe(
    foldFor("float8e4m3", "avg", 3, "separate"),
  );
  expect(foldFor("int8", "avg", 3, "fused")).not.toBe(foldFor("uint8", "avg", 3, "fused"));
  const scaled = foldFor("float64", { preMul: 0.3 }, 2, "fused");
  expect(foldFor("float64", { preMul: 0.3 }, 8, "fused")).toBe(scaled);
  expect(foldFor("float64", { preMul: -0 }, 2, "fused")).not.toBe(
    foldFor("float64", { preMul: 0 }, 2, "fused"),
  );
  for (let i = 0; i < 200; i++) foldFor("float64", { preMul: i + 0.5 }, 2, "fused");
  expect(foldFor("float64", { preMul: 7.5 }, 2, "fused")).toMatchObject({
    dtype: "float64",
    op: { preMul: 7.5 },
    scales: true,
  });
  expect(foldFor("int32", "avg", 3, "fused").scales).toBe(false);
  expect(foldFor("int32", { preMul: 2 }, 3, "fused").scales).toBe(true);
});

describe("wrong arguments", () => {
  const cases = [
    ["dtype", "int7", "sum", 2, "fused"],
    ["dtype", "constructor", "sum", 2, "fused"],
    ["op", "float32", "mean", 2, "fused"],
    ["op", "float32", null, 2, "fused"],
    ["op", "float32", {}, 2, "fused"],
    ["op", "int8", { preMul: 300 }, 2, "fused"],
    ["op", "uint64", { preMul: -1n }, 2, "fused"],
    ["op", "int32", { preMul: 0.5 }, 2, "fused"],
    ["op", "float32", { preMul: 2n }, 2, "fused"],
    ["ranks", "int32", "avg", 0, "fused"],
    ["ranks", "float32", "avg", 1.5, "fused"],
    // The division of a 64-bit average is exact up to 2^20 ranks.
    ["ranks", "uint64", "avg", 2 ** 30, "fused"],
    ["rounding", "float32", "avg", 2, "round"],
  ] as const;
  test.each(cases)("%s: %s, %o, %o, %o", (field, dtype, op, ranks, rounding) => {
    const call = (): unknown => foldFor(dtype as "int8", op as "sum", ranks, rounding as "fused");
    expect(call).toThrow(InvalidArgumentError);
    expect(call).toThrow(expect.objectContaining({ field }));
  });
});

describe("scalars of an average (section 5.5)", () => {
  const table: [number, number, number, number, number, number, bigint][] = [
    [2, 0x3f000000, 0x3800, 0x3f00, 0x30, 0x38, 0x3fe0000000000000n],
    [3, 0x3eaaaaab, 0x3555, 0x3eab, 0x2b, 0x35, 0x3fd5555555555555n],
    [4, 0x3e800000, 0x3400, 0x3e80, 0x28, 0x34, 0x3fd0000000000000n],
    [5, 0x3e4ccccd, 0x3266, 0x3e4d, 0x25, 0x32, 0x3fc999999999999an],
    [6, 0x3e2aaaab, 0x3155, 0x3e2b, 0x23, 0x31, 0x3fc5555555555555n],
    [7, 0x3e124925, 0x3092, 0x3e12, 0x21, 0x31, 0x3fc2492492492492n],
    [8, 0x3e000000, 0x3000, 0x3e00, 0x20, 0x30, 0x3fc0000000000000n],
  ];
  const columns: FloatDType[] = [
    "float32",
    "float16",
    "bfloat16",
    "float8e4m3",
    "float8e5m2",
    "float64",
  ];
  test.each(table)("1/%i", (ranks, ...bits) => {
    columns.forEach((dtype, i) => {
      const scalar = averageScalar(dtype, ranks);
      expect(hex(scalarBits(dtype, scalar)), dtype).toBe(hex(BigInt(bits[i]!)));
    });
  });

  test("scalars of the recorded pre-multiplied sums", () => {
    expect(numberToBits("float8e4m3", 0.3)).toBe(0x2a);
    expect(numberToBits("float8e5m2", 0.3)).toBe(0x35);
    expect(numberToBits("float16", 0.3)).toBe(0x34cd);
    expect(numberToBits("bfloat16", 0.3)).toBe(0x3e9a);
    expect(scalarBits("int8", -1)).toBe(0xffn);
    expect(scalarBits("uint64", 2n ** 63n)).toBe(2n ** 63n);
  });
});

describe("worked examples", () => {
  test("int8: 100 + 100 + 100 wraps to 44, divided once is 14 (5.2)", () => {
    const hundred = [[100n], [100n], [100n]];
    expect(foldByHops("int8", "sum", 3, "fused", hundred)).toEqual([44n]);
    expect(foldByHops("int8", "avg", 3, "fused", hundred)).toEqual([14n]);
    expect(foldByHops("int8", "avg", 3, "fused", [[0x80n], [0n], [0n]])).toEqual([0x100n - 42n]);
  });

  test("float32: the fold order shows (3.5)", () => {
    const [one, big, minus] = [0x3f800000n, 0x4b800000n, 0xcb800000n];
    const sum = (order: bigint[]): string =>
      hex(
        foldByHops(
          "float32",
          "sum",
          4,
          "fused",
          order.map((x) => [x]),
        )[0]!,
      );
    expect(sum([big, one, minus, one])).toBe(hex(one));
    expect(sum([one, big, one, minus])).toBe("0x0");
  });

  test("a sum of -0 alone is -0 (5.4)", () => {
    expect(foldByHops("float32", "sum", 2, "fused", [[0x80000000n], [0x80000000n]])).toEqual([
      0x80000000n,
    ]);
    expect(foldByHops("float16", "sum", 2, "fused", [[0x8000n], [0x8000n]])).toEqual([0x8000n]);
  });
});

describe("the terms of a fold", () => {
  const cases = [
    ["float32", "sum", "fused", { scalar: 1, fused: false, divisor: 1 }],
    ["float32", "avg", "fused", { scalar: Math.fround(1 / 3), fused: true, divisor: 1 }],
    ["bfloat16", "avg", "separate", { scalar: 0.333984375, fused: false, divisor: 1 }],
    ["float8e5m2", "avg", "fused", { scalar: 0.3125, fused: false, divisor: 1 }],
    ["float64", { preMul: 0.1 }, "fused", { scalar: 0.1, fused: true, divisor: 1 }],
    ["int32", "avg", "fused", { scalar: 1, fused: false, divisor: 3 }],
    ["int64", { preMul: -7n }, "fused", { scalar: -7n, fused: false, divisor: 1 }],
    ["uint8", { preMul: 7 }, "separate", { scalar: 7n, fused: false, divisor: 1 }],
  ] as const;
  test.each(cases)("of %s and %s, %s", (dtype, op, rounding, terms) => {
    expect(foldFor(dtype, op, 3, rounding).terms).toEqual({ ...terms, accumulator: "element" });
  });
});
