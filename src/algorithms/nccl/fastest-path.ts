/**
 * The fastest way to make a call of a size: in ordinary or symmetric memory, call by call or replayed from a recording.
 *
 * Measured on two, four and eight H200 behind NVSwitch. `bench/gpu` measures all four ways, the files under
 * `bench/results` have the figures, and a test compares these bounds with them.
 */

/** The memory of a call's buffers. */
export type FastestMemory = "ordinary" | "symmetric";

/** The fastest way at some size. */
export interface FastestPath {
  readonly memory: FastestMemory;
  /** Replaying a recording saves more than a twentieth of the time. */
  readonly recorded: boolean;
}

/** Bytes up to which each way is the fastest, half way between two measured sizes. */
type Bounds = readonly (readonly [upToBytes: number, path: FastestPath])[];

const symmetric: FastestPath = { memory: "symmetric", recorded: false };
const symmetricRecorded: FastestPath = { memory: "symmetric", recorded: true };
const ordinary: FastestPath = { memory: "ordinary", recorded: false };
const ordinaryRecorded: FastestPath = { memory: "ordinary", recorded: true };

const [kibi, mebi] = [2 ** 10, 2 ** 20];
const unbounded = Number.POSITIVE_INFINITY;

const defaultForFew: Bounds = [
  [128 * kibi, symmetricRecorded],
  [2 * mebi, ordinaryRecorded],
  [32 * mebi, symmetric],
  [unbounded, ordinary],
];

const defaultForEight: Bounds = [
  [2 * mebi, symmetricRecorded],
  [32 * mebi, symmetric],
  [unbounded, ordinary],
];

/** Measurements with two, four and eight ranks, of the collectives for which NCCL has symmetric kernels. */
const measured: Readonly<Record<string, Readonly<Record<2 | 4 | 8, Bounds>>>> = {
  allReduce: {
    2: [
      [64 * kibi, symmetricRecorded],
      [mebi, ordinaryRecorded],
      [64 * mebi, symmetric],
      [unbounded, ordinary],
    ],
    4: [
      [64 * kibi, symmetricRecorded],
      [256 * kibi, ordinaryRecorded],
      [mebi, symmetricRecorded],
      [16 * mebi, symmetric],
      [unbounded, ordinary],
    ],
    8: [
      [mebi, symmetricRecorded],
      [32 * mebi, symmetric],
      [unbounded, ordinary],
    ],
  },
  allGather: {
    2: defaultForFew,
    4: [
      [2 * mebi, symmetricRecorded],
      [unbounded, symmetric],
    ],
    8: defaultForEight,
  },
  reduceScatter: { 2: defaultForFew, 4: defaultForFew, 8: defaultForEight },
};

/**
 * The fastest way for a call of `bytes`, counted as nccl-tests does; `undefined` where it was not measured. Other numbers
 * of ranks count as the next measured one, and larger ones as eight.
 */
export function fastestPath(
  collective: string,
  ranks: number,
  bytes: number,
): FastestPath | undefined {
  const of = measured[collective];
  if (ranks < 2 || of === undefined) return undefined;
  const bounds = of[ranks > 4 ? 8 : ranks > 2 ? 4 : 2];
  return bounds.find(([upToBytes]) => bytes <= upToBytes)?.[1];
}

/** A path in words. */
export function fastestPathText(path: FastestPath): string {
  return `${path.memory} memory${path.recorded ? ", replayed from a recording" : ""}`;
}
