/**
 * Cuts jobs to the limits of kernels: within windows, and wide where all addresses agree.
 *
 * A window is a range of a slab that one binding covers. A job that touches more windows than there are bindings first gathers
 * its operands in scratch memory, and copies its result from there.
 */
import type { DeviceLimits } from "./device.ts";
import { advanced, copyOf, type FoldJob, type Scratch, type Spot } from "./jobs.ts";
import { type Stretch, windowOf } from "./slabs.ts";
import type { Access } from "./wgsl/access.ts";

/** A job within windows, wide or narrow as a whole. */
export interface Piece extends FoldJob {
  readonly access: Access;
}

const wideBytes = 16;

/** All places of a job: operands, then targets. */
export function spotsOf({ operands, targets }: FoldJob): Spot[] {
  return [...operands.map(({ spot }) => spot), ...targets];
}

/** The windows that a job touches, each once. */
export function windowsOf(job: FoldJob, limits: DeviceLimits): Set<Stretch> {
  return new Set(spotsOf(job).map(({ slab, offset }) => windowOf(slab, offset, limits)));
}

/** Cuts jobs into pieces, in the order of their levels. */
export function piecesOf(
  jobs: readonly FoldJob[],
  limits: DeviceLimits,
  scratch: Scratch,
): Piece[] {
  return jobs
    .map((job) => ({ ...job, level: 3 * job.level + 1 }))
    .flatMap((job) => withinWindows(job, limits))
    .flatMap((job) => gathered(job, limits, scratch))
    .flatMap((job) => withinWindows(job, limits))
    .flatMap(byAccess)
    .sort((a, b) => a.level - b.level);
}

/** Cuts a job wherever one of its places enters another window. */
function withinWindows(job: FoldJob, limits: DeviceLimits): FoldJob[] {
  const { windowBytes } = limits;
  const spots = spotsOf(job);
  const parts: FoldJob[] = [];
  for (let at = 0; at < job.bytes; ) {
    const room = spots.map(({ offset }) => windowBytes - ((offset + at) % windowBytes));
    const bytes = room.reduce((least, bytes) => Math.min(least, bytes), job.bytes - at);
    parts.push(part(job, at, bytes));
    at += bytes;
  }
  return parts;
}

/** A range of a job. */
function part(job: FoldJob, at: number, bytes: number): FoldJob {
  if (at === 0 && bytes === job.bytes) return job;
  return {
    ...job,
    operands: job.operands.map((operand) => ({ ...operand, spot: advanced(operand.spot, at) })),
    targets: job.targets.map((target) => advanced(target, at)),
    bytes,
    place: job.place + at,
  };
}

/** Splits a job of too many windows into copies in, the fold, and copies out, with scratch memory of one or two windows. */
function gathered(job: FoldJob, limits: DeviceLimits, scratch: Scratch): FoldJob[] {
  if (windowsOf(job, limits).size <= limits.windows) return [job];
  const stretch = Math.ceil(job.bytes / wideBytes) * wideBytes;
  const block = stretch * (job.operands.length + 1);
  if (block > limits.windowBytes / 2 && job.bytes > wideBytes) {
    const half = Math.ceil(job.bytes / 2 / wideBytes) * wideBytes;
    const parts = [part(job, 0, half), part(job, half, job.bytes - half)];
    return parts.flatMap((each) => gathered(each, limits, scratch));
  }
  const begin = scratch(block);
  const { bytes, level } = job;
  const copies = job.operands.map(({ spot }, i) =>
    copyOf(spot, advanced(begin, i * stretch), bytes, level - 1),
  );
  const result = advanced(begin, job.operands.length * stretch);
  const operands = job.operands.map((operand, i) => ({
    ...operand,
    spot: advanced(begin, i * stretch),
  }));
  const out = job.targets.map((target) => copyOf(result, target, bytes, level + 1));
  return [...copies, { ...job, operands, targets: [result] }, ...out];
}

/** The middle of a job goes 16 bytes at a time where all places have the same distance to such a multiple. */
function byAccess(job: FoldJob): Piece[] {
  const [first, ...rest] = spotsOf(job);
  const residue = (first?.offset ?? 0) % wideBytes;
  const agree = rest.every(({ offset }) => offset % wideBytes === residue);
  const head = Math.min((wideBytes - residue) % wideBytes, job.bytes);
  const middle = agree ? Math.floor((job.bytes - head) / wideBytes) * wideBytes : 0;
  if (middle === 0) return [{ ...job, access: "narrow" }];
  const pieces: Piece[] = [{ ...part(job, head, middle), access: "wide" }];
  const tail = head + middle;
  if (head > 0) pieces.push({ ...part(job, 0, head), access: "narrow" });
  if (tail < job.bytes) pieces.push({ ...part(job, tail, job.bytes - tail), access: "narrow" });
  return pieces;
}
