/** Collectives on host arrays: copied to the backend's memory, called, and copied back, so that they run on every backend. */
import type { Communicator } from "../api/index.ts";
import type { ParameterArray } from "./parameter-set.ts";

const dtypeOf = (array: ParameterArray): "float32" | "float64" =>
  array instanceof Float32Array ? "float32" : "float64";

/** The sum of every rank's array, element by element; the same bits on all ranks. Costs an all-reduce. */
export async function sumOverRanks(
  comm: Communicator,
  array: ParameterArray,
): Promise<ParameterArray> {
  const buffer = comm.alloc(dtypeOf(array), array.length).copyFrom(array);
  try {
    await comm.allReduce({ send: buffer, op: "sum" });
    return await buffer.toHost();
  } finally {
    buffer.dispose();
  }
}

/** All ranks' arrays, one after the other, of the given lengths by rank. Costs an all-gather. */
export async function gatherArrays(
  comm: Communicator,
  array: ParameterArray,
  counts: readonly number[],
): Promise<ParameterArray> {
  const total = counts.reduce((sum, each) => sum + each, 0);
  const send = comm.alloc(dtypeOf(array), array.length).copyFrom(array);
  const recv = comm.alloc(dtypeOf(array), total);
  try {
    await comm.allGatherv({ send, recv, recvCounts: counts });
    return await recv.toHost();
  } finally {
    send.dispose();
    recv.dispose();
  }
}

/** Every rank's numbers, by rank; all ranks give as many. Costs an all-gather. */
export async function gatherNumbers(
  comm: Communicator,
  numbers: readonly number[],
): Promise<number[][]> {
  const counts = new Array<number>(comm.size).fill(numbers.length);
  const all = [...(await gatherArrays(comm, Float64Array.from(numbers), counts))];
  return counts.map((count, rank) => all.slice(rank * count, (rank + 1) * count));
}
