/** Every kernel on any bits, and on every pair of 1-byte values: the bits of the reference executor. */
import { bytesOf, createWorld, type DType, dtypeInfo, dtypes, type ReduceOp } from "twinccl";
import { cpu, type Executor, type SimOptions, sim, wasm } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { payloadBytes } from "../../../../src/testing/payload.ts";
import { isAll, seedFor, someOf } from "../../../support/seed.ts";

/**
 * The contents of one rank: every pair of bytes, or any bits. Of 2-byte floats, a third has no infinities and NaN, and a
 * third is within a few powers of two: what is too large sends all that is beside it the careful way.
 */
function contents(dtype: DType, rank: number): Uint8Array {
  if (bytesOf(dtype) > 1) {
    const request = {
      dtype,
      payload: "bits",
      size: 3,
      seed: seedFor(dtypes.indexOf(dtype)),
    } as const;
    const bytes = payloadBytes(request, rank, 8001);
    if (isHalf(dtype)) {
      makeFinite(new Uint16Array(bytes.buffer).subarray(2700), halves[dtype].infinity);
      makeNear(new Uint16Array(bytes.buffer).subarray(5400), halves[dtype].infinity);
    }
    return bytes;
  }
  // Values that are next to each other stand apart, so that few of them have a NaN beside them.
  return Uint8Array.from({ length: 0x10000 }, (_, i) =>
    rank === 0 ? i >> 8 : i * (14 * rank + 3),
  );
}

type Half = "float16" | "bfloat16";

/** Bits of infinity, which are those of the exponent. */
const halves: Record<Half, { readonly infinity: number }> = {
  float16: { infinity: 0x7c00 },
  bfloat16: { infinity: 0x7f80 },
};

function isHalf(dtype: DType): dtype is Half {
  return dtype in halves;
}

/** Takes the last bit of the exponent where all of its bits are ones. */
function makeFinite(values: Uint16Array, exponent: number): void {
  values.forEach((bits, i) => {
    if ((bits & exponent) === exponent) values[i] = bits & ~(exponent & -exponent);
  });
}

/** Leaves three bits of the exponent as they are, below those of 1. */
function makeNear(values: Uint16Array, exponent: number): void {
  const kept = 7 * (exponent & -exponent);
  values.forEach((bits, i) => {
    values[i] = (bits & ~exponent) | (bits & kept) | ((exponent >> 1) & exponent & ~kept);
  });
}

async function sums(
  executor: Executor,
  options: SimOptions,
  size: number,
  dtype: DType,
  op: ReduceOp,
  symmetric: boolean,
  contentsOf: (rank: number) => Uint8Array = (rank) => contents(dtype, rank),
): Promise<Uint8Array> {
  const world = await createWorld({ backend: sim({ ...options, executor }), size });
  const [first] = await world.run(async (comm) => {
    const bytes = contentsOf(comm.rank);
    const length = bytes.length / bytesOf(dtype);
    using buffer = comm.alloc(dtype, length, { symmetric });
    buffer.copyFrom(dtypeInfo[dtype].view(bytes.buffer, 0, length) as never);
    await comm.allReduce({ send: buffer, op });
    const found = await buffer.toHost();
    return new Uint8Array(found.buffer);
  });
  await world.close();
  return first as Uint8Array;
}

const one = wasm({ threads: 1 });
const scalars: readonly number[] = [1 / 3, -2.5, 1e-5, 1e30];

describe.each(dtypes)("%s", (dtype) => {
  const kind = dtypeInfo[dtype].kind;
  const multiplied = (kind === "float" ? scalars : [7, 100]).map((preMul) => ({ preMul }));
  const operators: ReduceOp[] = ["sum", "prod", "min", "max", "avg", ...multiplied];
  test.each(someOf(operators))("%o", async (op) => {
    const scaled = op === "avg" || typeof op === "object";
    const linear: SimOptions = { algorithms: { allReduce: "linear" } };
    const twin = (protocol: "LL" | "LL128"): SimOptions => ({
      like: "nccl-2.28",
      plan: { protocol },
    });
    const plans = scaled ? [linear, twin("LL128")] : [linear];
    for (const plan of plans) {
      for (const size of [2, 3]) {
        const found = await sums(one, plan, size, dtype, op, false);
        const needed = await sums(cpu(), plan, size, dtype, op, false);
        expect(Buffer.compare(found, needed), `${size} ranks`).toBe(0);
      }
    }
  });
  if (kind === "float" && bytesOf(dtype) < 8) {
    test("sum in symmetric memory", async () => {
      for (const size of [2, 3]) {
        const found = await sums(one, { like: "nccl-2.28" }, size, dtype, "sum", true);
        const needed = await sums(cpu(), { like: "nccl-2.28" }, size, dtype, "sum", true);
        expect(Buffer.compare(found, needed), `${size} ranks`).toBe(0);
      }
    });
  }
  if (isHalf(dtype)) {
    // Other values of one magnitude, and of the next: sums that are exact, cancel, lie half way, or leave the format.
    // In `npm test` those of 3 ranks: a sum and one other operator.
    const rows = [
      { size: 2, flips: [0, 0x0001], other: "min" },
      { size: 2, flips: [0, 0x8003], other: "avg" },
      {
        size: 3,
        flips: [0, halves[dtype].infinity & -halves[dtype].infinity, 0x8055],
        other: "avg",
      },
      { size: 8, flips: [0], other: "max" },
      { size: 8, flips: [0, 0x8001, 0x0002, 0x0005], other: "max" },
    ] as const;
    test.each(rows.filter(({ size }) => isAll || size === 3))(
      "every value and neighbours of it: $size ranks, $flips",
      async ({ size, flips, other }) => {
        const near = (rank: number): Uint8Array => {
          const flip = flips[rank % flips.length] as number;
          return new Uint8Array(Uint16Array.from({ length: 0x10000 }, (_, i) => i ^ flip).buffer);
        };
        const linear: SimOptions = { algorithms: { allReduce: "linear" } };
        for (const op of isAll
          ? (["sum", "min", "max", "avg"] as const)
          : (["sum", other] as const)) {
          const found = await sums(one, linear, size, dtype, op, false, near);
          const needed = await sums(cpu(), linear, size, dtype, op, false, near);
          expect(Buffer.compare(found, needed), op).toBe(0);
        }
      },
    );
  }
});
