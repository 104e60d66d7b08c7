/** Every kernel on any bits, and on every pair of 1-byte values: the bits of the reference executor. */
import { bytesOf, createWorld, type DType, dtypeInfo, dtypes, type ReduceOp } from "twinccl";
import { cpu, type Executor, type SimOptions, sim, wasm } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { payloadBytes } from "../../../src/testing/payload.ts";
import { seedFor } from "../../support/seed.ts";

/**
 * What one rank holds: every pair of bytes, or any bits, the second half of 2-byte floats without infinities and NaN, which
 * would send all of them the careful way.
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
    const last = { float16: 0x7c00, bfloat16: 0x7f80 }[dtype as string];
    if (last !== undefined) makeFinite(new Uint16Array(bytes.buffer).subarray(4000), last);
    return bytes;
  }
  const shift = rank === 0 ? 8 : 0;
  return Uint8Array.from({ length: 0x10000 }, (_, i) => (rank === 2 ? i * 31 : i >> shift));
}

/** Takes the last bit of the exponent where all of its bits are ones. */
function makeFinite(values: Uint16Array, exponent: number): void {
  values.forEach((bits, i) => {
    if ((bits & exponent) === exponent) values[i] = bits & ~(exponent & -exponent);
  });
}

async function sums(
  executor: Executor,
  options: SimOptions,
  size: number,
  dtype: DType,
  op: ReduceOp,
  symmetric: boolean,
): Promise<Uint8Array> {
  const world = await createWorld({ backend: sim({ ...options, executor }), size });
  const [first] = await world.run(async (comm) => {
    const bytes = contents(dtype, comm.rank);
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
  test.each(operators)("%o", async (op) => {
    const scaled = op === "avg" || typeof op === "object";
    const linear: SimOptions = { algorithms: { allReduce: "linear" } };
    const twin = (protocol: "LL" | "LL128"): SimOptions => ({
      like: "nccl-2.28",
      nccl: { protocol },
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
  test.runIf(kind === "float" && bytesOf(dtype) < 8)("sum in symmetric memory", async () => {
    for (const size of [2, 3]) {
      const found = await sums(one, { like: "nccl-2.28" }, size, dtype, "sum", true);
      const needed = await sums(cpu(), { like: "nccl-2.28" }, size, dtype, "sum", true);
      expect(Buffer.compare(found, needed), `${size} ranks`).toBe(0);
    }
  });
});
