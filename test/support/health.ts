/** A small healthy program, by which ranks show that they still work after something went wrong. */
import type { Communicator } from "twinccl";

/** One rank's part: what it holds afterwards. */
export async function healthOf(comm: Communicator): Promise<number[]> {
  const buffer = comm.alloc("int32", 3).copyFrom(Int32Array.of(1, comm.rank, -comm.rank));
  await comm.allReduce({ send: buffer, op: "sum" });
  await comm.barrier();
  return Array.from(await buffer.toHost());
}

/** The required value of each rank. */
export function healthyAmong(size: number): number[] {
  const total = (size * (size - 1)) / 2;
  return [size, total, 0 - total];
}
