/**
 * Which way of making a call was the fastest at its size, as measured on two, four and eight H200 behind NVSwitch: in ordinary or
 * in symmetric memory, call by call or replayed from a recording. `bench/gpu` measures all four; the files under
 * `bench/results` hold the figures, and a test holds these bounds to them.
 */

/** Where the buffers of a call are. */
export type FastestMemory = "ordinary" | "symmetric";

/** The fastest way at some size. */
export interface FastestPath {
  readonly memory: FastestMemory;
  /** Replaying a recording saves more than a twentieth of the time. */
  readonly recorded: boolean;
}

/** Collectives that NCCL has kernels on symmetric memory for. */
const measured: readonly string[] = ["allReduce", "allGather", "reduceScatter"];

/** Bytes up to which each way is the fastest. */
type Bounds = readonly (readonly [upToBytes: number, FastestPath])[];

const large: Bounds = [
  [2 ** 24, { memory: "symmetric", recorded: false }],
  [Number.POSITIVE_INFINITY, { memory: "ordinary", recorded: false }],
];

/** Up to four ranks. */
const ofFew: Bounds = [
  [2 ** 15, { memory: "symmetric", recorded: true }],
  [2 ** 19, { memory: "ordinary", recorded: true }],
  ...large,
];

/** More of them take longer in ordinary memory. */
const ofMany: Bounds = [[2 ** 19, { memory: "symmetric", recorded: true }], ...large];

/** The fastest way for a call of so many bytes, counted as nccl-tests does; `undefined` where it was not measured. */
export function fastestPath(
  collective: string,
  ranks: number,
  bytes: number,
): FastestPath | undefined {
  if (ranks < 2 || !measured.includes(collective)) return undefined;
  const bounds = ranks > 4 ? ofMany : ofFew;
  return bounds.find(([upToBytes]) => bytes <= upToBytes)?.[1];
}

/** The same in words. */
export function fastestPathText(path: FastestPath): string {
  return `${path.memory} memory${path.recorded ? ", replayed from a recording" : ""}`;
}
