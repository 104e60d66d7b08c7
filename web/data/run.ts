/** Runs the call for real on an executor, and compares results bit by bit. */
import { bytesOf, createWorld, type DType, type HostArray } from "twinccl";
import { type Executor, sim, type Trace } from "twinccl/sim";
import { blockLengths, bufferLengths, postCall } from "../../src/api/collectives/call-layout.ts";
import { isSymmetric, planOptions } from "../plans.ts";
import type { State } from "../state.ts";
import { blockCounts, countsOf, operatorOf } from "./calls.ts";
import { inputOf } from "./values.ts";

/** Results of one run. */
export interface Outcome {
  readonly executor: string;
  /** By rank; empty where a rank has no output. */
  readonly outputs: readonly HostArray[];
  /** Wall time from the call to the results read back, of all ranks together. */
  readonly milliseconds: number;
}

/** Every rank's input. */
export function inputsOf(state: State): HostArray[] {
  const { collective, ranks, values, seed, dtype } = state;
  const counts = countsOf(state);
  return Array.from({ length: ranks }, (_, rank) =>
    inputOf(values, seed, rank, dtype, bufferLengths(collective, counts, rank).send),
  );
}

/** Runs the call once; `trace` gets its messages. */
export async function runOn(
  executor: Executor,
  state: State,
  inputs: readonly HostArray[],
  trace?: Trace,
): Promise<Outcome> {
  const { collective, ranks, dtype, root } = state;
  const counts = countsOf(state);
  const isUneven = blockCounts(state) !== undefined;
  const backend = sim({
    ...planOptions(state),
    link: { latencyNs: state.latency, gigabytesPerSecond: state.bandwidth },
    executor,
    ...(trace === undefined ? {} : { trace }),
  });
  const world = await createWorld({ backend, size: ranks });
  try {
    let began = 0;
    const outputs = await world.run(async (comm) => {
      const memory = isSymmetric(state) ? { symmetric: true } : {};
      const input = inputs[comm.rank] as HostArray;
      const send = comm.alloc(dtype, input.length, memory);
      const lengths = blockLengths(collective, counts, comm.rank);
      const recv = comm.alloc(dtype, bufferLengths(collective, counts, comm.rank).recv, memory);
      send.copyFrom(input);
      began = performance.now();
      await postCall(comm, collective, {
        send,
        recv,
        op: operatorOf(state),
        root,
        ...(isUneven && { sendCounts: lengths.send, recvCounts: lengths.recv }),
      });
      return await recv.toHost();
    });
    return { executor: executor.name, outputs, milliseconds: performance.now() - began };
  } finally {
    await world.close();
  }
}

/** The number of elements of two results with the same bits. */
export interface Comparison {
  readonly equal: number;
  readonly of: number;
  /** The first that differs. */
  readonly first: { readonly rank: number; readonly element: number } | undefined;
}

/** Compares two results of the same call, bit by bit. */
export function compare(a: Outcome, b: Outcome, dtype: DType): Comparison {
  const width = bytesOf(dtype);
  let equal = 0;
  let of = 0;
  let first: Comparison["first"];
  a.outputs.forEach((array, rank) => {
    const left = bytesIn(array);
    const right = bytesIn(b.outputs[rank]);
    of += array.length;
    for (let element = 0; element < array.length; element++) {
      let same = true;
      for (let i = element * width; i < (element + 1) * width; i++) {
        if (left[i] !== right[i]) same = false;
      }
      if (same) equal++;
      else first ??= { rank, element };
    }
  });
  return { equal, of, first };
}

function bytesIn(array: HostArray | undefined): Uint8Array {
  return array === undefined
    ? new Uint8Array()
    : new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
