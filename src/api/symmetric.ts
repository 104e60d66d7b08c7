/**
 * Symmetric memory: which calls use it, and where their buffers lie in it.
 *
 * Kernels for symmetric memory let ranks reach into each other's buffers. They exist for some collectives, and run if both
 * buffers of the call are symmetric. Every other call treats a symmetric buffer as ordinary memory.
 */
import { allocationOf, type DeviceBuffer } from "./buffer.ts";
import type { CollectiveName } from "./collectives/spec.ts";

/** Bytes from the start of the symmetric memory to each buffer of a call. */
export interface SymmetricPlace {
  readonly send: number;
  readonly recv: number;
}

/** The part of a call that fixes its memory. */
export interface PlacedCall {
  readonly collective: CollectiveName;
  readonly send: DeviceBuffer | undefined;
  readonly recv: DeviceBuffer | undefined;
}

/** The buffers that ranks reach in each other's memory: these must start at the same place of it on every rank. */
type Reached = { readonly [B in keyof SymmetricPlace]: boolean };

const reached: { readonly [C in CollectiveName]?: Reached } = {
  allReduce: { send: true, recv: true },
  reduceScatter: { send: true, recv: false },
  allGather: { send: false, recv: true },
};

/** The buffers of a collective that kernels reach into; `undefined` for one that has no kernels for symmetric memory. */
export function reachedBuffers(collective: CollectiveName): Reached | undefined {
  return reached[collective];
}

/** Where the buffers of a call lie in symmetric memory; `undefined` for a call that does not use it. */
export function symmetricPlace({ collective, send, recv }: PlacedCall): SymmetricPlace | undefined {
  if (send === undefined || recv === undefined) return undefined;
  if (!allocationOf(send).symmetric || !allocationOf(recv).symmetric) return undefined;
  if (reached[collective] === undefined) return undefined;
  return { send: send.byteOffset, recv: recv.byteOffset };
}
