import { describe, test } from "vitest";
import type { ScalarRounding } from "../../../../src/algorithms/arithmetic/index.ts";
import { bytesOf, type DType } from "../../../../src/api/dtype.ts";
import type { ReduceOp } from "../../../../src/api/reduce-op.ts";
import { partOfCases } from "../../../support/seed.ts";
import { expectOracle, pairs, randomWords, specialBits, wildBits } from "./lane-bits.ts";

const plain: ReduceOp[] = ["sum", "prod", "min", "max"];
const integers: DType[] = ["int32", "uint32", "int64", "uint64"];
const floats: DType[] = ["float32", "float64"];
const roundings: ScalarRounding[] = ["fused", "separate"];
const wildCount = 34_000 * partOfCases;

/** Pairs of nearly opposite contributions: a fused sum of them cancels down to its last bits. */
function cancelling(dtype: DType, count: number, seed: number): bigint[][] {
  const next = randomWords(seed);
  const bytes = bytesOf(dtype);
  const view = new DataView(new ArrayBuffer(8));
  const put = (x: number): bigint => {
    if (bytes === 4) view.setFloat32(0, x);
    else view.setFloat64(0, x);
    return bytes === 4 ? BigInt(view.getUint32(0)) : view.getBigUint64(0);
  };
  const first: bigint[] = [];
  const second: bigint[] = [];
  for (let i = 0; i < count; i++) {
    const x = (next() / 2 ** 31 - 1 + next() / 2 ** 63) * 2 ** (next() % 40);
    first.push(put(x));
    // Off by up to three units in the last place, sometimes by a power of two as well.
    const nudge = BigInt(next() % 7) - 3n;
    const negative = put(-x * (next() % 4 === 0 ? 2 ** (next() % 60) : 1));
    second.push(negative + nudge);
  }
  return [first, second];
}

describe.each(integers)("%s", (dtype) => {
  const ops: [ReduceOp, number][] = [...plain, "avg" as const].map((op) => [op, 3]);
  ops.push(["avg", 7], ["avg", 1], ["avg", 65_537], [{ preMul: 3 }, 3]);
  ops.push([{ preMul: dtype.startsWith("u") ? 4_000_000_001 : -2_000_000_011 }, 3]);
  if (dtype === "int64") ops.push([{ preMul: -0x1234_5678_9abc_def0n }, 3]);
  if (dtype === "uint64") ops.push([{ preMul: 0xfedc_ba98_7654_3211n }, 3]);

  test.each(ops)("%o over %i ranks wraps, compares and divides as the oracle", (op, ranks) => {
    const columns = [1, 2, 3].map((seed) => wildBits(dtype, wildCount, seed));
    expectOracle(dtype, op, ranks, "fused", columns);
    expectOracle(dtype, op, ranks, "fused", pairs(specialBits(dtype), specialBits(dtype)));
  });
});

describe.each(floats)("%s", (dtype) => {
  test.each(plain)("%s of wild patterns and specials", (op) => {
    expectOracle(
      dtype,
      op,
      3,
      "fused",
      [1, 2, 3].map((seed) => wildBits(dtype, wildCount, seed)),
    );
    expectOracle(dtype, op, 3, "fused", pairs(specialBits(dtype), specialBits(dtype)));
  });

  const scaled: [ReduceOp, number][] = [3, 5, 7, 8].map((ranks) => ["avg", ranks]);
  for (const preMul of [0.3, -7, 2 ** -100, 2 ** 90, 0, -0, 1e-30, Number.NaN, Infinity, 1 / 3]) {
    scaled.push([{ preMul }, 2]);
  }
  for (const rounding of roundings) {
    test.each(scaled)(`%o of %i ranks, ${rounding}`, (op, ranks) => {
      const count = (rounding === "fused" ? 6_000 : 2_000) * partOfCases;
      const wild = [1, 2].map((seed) => wildBits(dtype, count, seed + ranks));
      expectOracle(dtype, op, ranks, rounding, wild);
      expectOracle(dtype, op, ranks, rounding, cancelling(dtype, count, ranks));
      expectOracle(dtype, op, ranks, rounding, pairs(specialBits(dtype), specialBits(dtype)));
    });
  }

  test("fused sums with terms in every relation to each other", () => {
    // Exponents close together in pairs, everywhere in the range: ties, borders, subnormals.
    const exponentBits = dtype === "float32" ? 23n : 52n;
    const next = randomWords(99);
    const [a, b] = [5, 6].map((seed) => wildBits(dtype, 25_000 * partOfCases, seed)) as [
      bigint[],
      bigint[],
    ];
    const near = a.map((x, i) => {
      const exponent = (x >> exponentBits) + BigInt(next() % 120) - 60n;
      const keep = next() % 3 === 0 ? 0n : BigInt.asUintN(Number(exponentBits), b[i]!);
      return BigInt.asUintN(8 * bytesOf(dtype), (exponent << exponentBits) | keep);
    });
    for (const preMul of [0.3, 1.5, 0.2, 0.25]) {
      expectOracle(dtype, { preMul }, 2, "fused", [a, near]);
    }
  });
});

test("float32: a fused sum just beside the middle of two subnormals is not rounded twice", () => {
  // x * s is 2^-150 less 2^-196: half a step of the subnormals, but for a bit that no double keeps
  // next to a partial of 2^-140.
  const preMul = (1 + 2 ** -23) * 2 ** -75;
  const bits = (x: number): bigint => BigInt(new Uint32Array(Float32Array.of(x).buffer)[0]!);
  const partials = Array.from({ length: 1024 }, (_, k) => bits(((512 + k) * 2 ** -149) / preMul));
  for (const sign of [1, -1]) {
    const beside = partials.map(() => bits(sign * (1 - 2 ** -23) * 2 ** -75));
    expectOracle("float32", { preMul }, 2, "fused", [partials, beside]);
    expectOracle("float32", { preMul }, 2, "separate", [partials, beside]);
  }
});
