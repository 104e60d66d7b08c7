/** All-reduces of given bits, and values that show order and rounding. */
import { createWorld, type DType, dtypeInfo, type ReduceOp } from "twinccl";
import { type SimOptions, sim } from "twinccl/sim";

/** Bits of elements of up to 4 bytes. */
export type Bits = readonly number[];

const words = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: Uint32Array } as const;

/** Bits of a host array's elements. */
export function bitsOf(array: {
  readonly buffer: ArrayBufferLike;
  BYTES_PER_ELEMENT: number;
}): number[] {
  return [...new words[array.BYTES_PER_ELEMENT as 1](array.buffer)];
}

/** The bits of every rank after an all-reduce, given every rank's bits. */
export async function reduced(
  dtype: DType,
  op: ReduceOp,
  inputs: readonly Bits[],
  options: SimOptions = {},
): Promise<number[][]> {
  const { bytes, view } = dtypeInfo[dtype];
  const world = await createWorld({ backend: sim(options), size: inputs.length });
  const results = await world.run(async (comm) => {
    const input = words[bytes as 1].from(inputs[comm.rank] as Bits);
    const data = comm.alloc(dtype, input.length).copyFrom(view(input.buffer, 0, input.length));
    await comm.allReduce({ send: data, op });
    return bitsOf(await data.toHost());
  });
  await world.close();
  return results;
}

/** Floats of many magnitudes and both signs. */
export function wide(count: number, rank: number): Float32Array {
  return new Float32Array(count).map(
    (_, i) => Math.sin(i * 13 + 7 * rank + 1) * 2 ** ((i + rank) % 15),
  );
}
