/** The calls that make a profile: the least set of sweeps that decides every number of the time model but few. */
import type { CallMode, TimedQuestion } from "../../algorithms/index.ts";
import type { CollectiveName } from "../../api/index.ts";
import { findCollective } from "../collectives.ts";
import type { Issue } from "../issue.ts";
import { type SizeSweep, sweepSizes } from "../sizes.ts";

/** One sweep of a calibration. */
export interface CalibrationSweep extends Issue {
  readonly collective: CollectiveName & TimedQuestion["collective"];
  readonly sizes: SizeSweep;
}

/** The smallest size of the sweeps in bytes. */
export const leastBytes = 2 ** 7;

/** The largest size of quick calls, of which many are made. */
export const mostQuickBytes = 2 ** 24;

const powersOfTwo: readonly SizeSweep[] = [
  { min: leastBytes, max: mostQuickBytes, factor: 2 },
  { min: 2 * mostQuickBytes, max: 2 ** 29, factor: 2 },
];

const every = ["allReduce", "reduceScatter", "allGather", "broadcast", "allToAll"] as const;
const symmetricKernels = ["allReduce", "reduceScatter", "allGather"] as const;

/** The sweeps with sizes up to `most` bytes, where there are such sizes. */
export function sweepsUpTo(most: number): readonly CalibrationSweep[] {
  return calibrationSweeps.flatMap((sweep) => {
    const { min, max } = sweep.sizes;
    if (most < min) return [];
    return [{ ...sweep, sizes: { ...sweep.sizes, max: Math.min(most, max) } }];
  });
}

/** All sweeps, in the order in which they are measured: recordings, symmetric memory, call by call, awaited. */
const calibrationSweeps: readonly CalibrationSweep[] = [
  ...every.flatMap((collective) => allSizes({ collective, symmetric: false })),
  // Sizes between powers of two: until all channels are in use, the threads of a Ring over LL move a step in one pass at powers of
  // two, and in two passes at some of the sizes between.
  {
    collective: "allReduce",
    sizes: { min: 3 * 2 ** 10, max: 3 * 2 ** 14, factor: 2 },
    ...{ mode: "graph", symmetric: false, latency: false },
  },
  // Among 2, 4 and 8 ranks blocks of these sizes are no whole 16 bytes: messages between misaligned addresses.
  {
    collective: "allToAll",
    sizes: { min: 40 * 3 ** 8, max: 2 ** 25, factor: 3 },
    ...{ mode: "graph", symmetric: false, latency: false },
  },
  ...symmetricKernels.flatMap((collective) => allSizes({ collective, symmetric: true })),
  ...(["allReduce", "allToAll"] as const).map((collective): CalibrationSweep => {
    const sizes = { min: leastBytes, max: 2 ** 13, factor: 4 };
    return { collective, sizes, mode: "eager", symmetric: false, latency: false };
  }),
  ...(["eager", "graph"] as const).map((mode): CalibrationSweep => {
    const sizes = { min: 2 ** 10, max: 2 ** 10 };
    return { collective: "allReduce", sizes, mode, symmetric: false, latency: true };
  }),
];

/** The recorded sweeps over all powers of two. */
function allSizes(
  call: Pick<CalibrationSweep, "collective" | "symmetric">,
): readonly CalibrationSweep[] {
  return powersOfTwo.map((sizes) => ({ ...call, sizes, mode: "graph", latency: false }));
}

/** A call of the set. */
export type CalibrationCall = TimedQuestion & { readonly mode: CallMode };

/** The calls of the set by a number of ranks. */
export function calibrationCalls(
  ranks: number,
  processes: CallMode["processes"],
): readonly CalibrationCall[] {
  return calibrationSweeps.flatMap(({ collective, sizes, mode, symmetric, latency }) => {
    const row = findCollective(collective);
    const shapes = sweepSizes(sizes).map((bytes) =>
      row?.shape(Math.floor(bytes / 4), ranks, { spread: 0, seed: 0 }),
    );
    const memory = symmetric ? ("symmetric" as const) : ("ordinary" as const);
    const how = { launch: mode, memory, processes, awaited: latency };
    return shapes.flatMap((shape) =>
      shape === undefined || shape.count === 0
        ? []
        : [{ collective, ranks, count: shape.count, dtype: "float32" as const, mode: how }],
    );
  });
}
