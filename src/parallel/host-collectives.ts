/** Collectives on host arrays and texts, through buffers of the backend, so that they run on every backend. */
import type { Communicator } from "../api/index.ts";
import { type ParameterArray, parameterDTypeOf } from "./parameter-set.ts";

const dtypeOf = (array: ParameterArray): "float32" | "float64" =>
  parameterDTypeOf(array) ?? "float64";

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

/** Every rank's numbers, by rank; all ranks pass equally many. Costs an all-gather. */
export async function gatherNumbers(
  comm: Communicator,
  numbers: readonly number[],
): Promise<number[][]> {
  const counts = new Array<number>(comm.size).fill(numbers.length);
  const all = [...(await gatherArrays(comm, Float64Array.from(numbers), counts))];
  return counts.map((count, rank) => all.slice(rank * count, (rank + 1) * count));
}

/** Every rank's text, by rank. Costs two all-gathers. */
export async function gatherTexts(comm: Communicator, text: string): Promise<string[]> {
  const bytes = new TextEncoder().encode(text);
  const lengths = await gatherWords(comm, [bytes.length]);
  const counts = lengths.map(([length]) => length as number);
  const total = counts.reduce((sum, each) => sum + each, 0);
  const send = comm.alloc("uint8", bytes.length).copyFrom(bytes);
  const recv = comm.alloc("uint8", total);
  try {
    await comm.allGatherv({ send, recv, recvCounts: counts });
    const all = await recv.toHost();
    let end = 0;
    return counts.map((count) => {
      end += count;
      return new TextDecoder().decode(all.subarray(end - count, end));
    });
  } finally {
    send.dispose();
    recv.dispose();
  }
}

/** Every rank's words, by rank; all ranks pass equally many. Costs one all-gather. */
export async function gatherWords(
  comm: Communicator,
  words: readonly number[],
): Promise<number[][]> {
  const send = comm.alloc("uint32", words.length).copyFrom(Uint32Array.from(words));
  const recv = comm.alloc("uint32", words.length * comm.size);
  try {
    await comm.allGather({ send, recv });
    const all = [...(await recv.toHost())];
    return Array.from({ length: comm.size }, (_, rank) =>
      all.slice(rank * words.length, (rank + 1) * words.length),
    );
  } finally {
    send.dispose();
    recv.dispose();
  }
}
