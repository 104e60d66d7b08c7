/**
 * Jobs that would read what another one has overwritten already.
 *
 * In place, outputs lie on inputs. A job may overwrite what it has read itself, place by place, and what only earlier
 * levels read. Everything else is a hazard, and the inputs are copied away before the first job.
 */
import type { Job, Scratch, Spot } from "./jobs.ts";

interface Interval {
  readonly begin: number;
  readonly end: number;
  readonly job: Job;
}

/** Level of the copies: before every other one. */
const first = -1;

/** The same jobs, reading copies where reading the inputs themselves would be a hazard. */
export function withoutHazards(jobs: readonly Job[], scratch: Scratch): readonly Job[] {
  if (!isHazardous(jobs)) return jobs;
  const copies: Job[] = [];
  const rerouted = jobs.map((job) => ({
    ...job,
    operands: job.operands.map((operand) => {
      if (operand.kind === "running") return operand;
      const spot = scratch(job.bytes);
      copies.push(copyOf(operand.spot, spot, job.bytes));
      return { ...operand, spot };
    }),
  }));
  return [...copies, ...rerouted];
}

/** A job that copies bytes at a level. */
export function copyOf(from: Spot, to: Spot, bytes: number, level = first): Job {
  const operands = [{ spot: from, kind: "contribution", scalar: [0, 0] }] as const;
  return { level, copy: true, operands, targets: [to], bytes, place: 0, final: false };
}

function isHazardous(jobs: readonly Job[]): boolean {
  const written = writesOf(jobs);
  return jobs.some((job) =>
    job.operands.some(({ kind, spot }) => {
      const writes = kind === "running" ? undefined : written.get(spot.slab);
      return writes !== undefined && isOverwritten(job, spot, writes);
    }),
  );
}

/** The written ranges of every slab, by their beginning. */
function writesOf(jobs: readonly Job[]): Map<object, Interval[]> {
  const written = new Map<object, Interval[]>();
  for (const job of jobs) {
    for (const { slab, offset } of job.targets) {
      const interval = { begin: offset, end: offset + job.bytes, job };
      const known = written.get(slab);
      if (known === undefined) written.set(slab, [interval]);
      else known.push(interval);
    }
  }
  for (const intervals of written.values()) intervals.sort((a, b) => a.begin - b.begin);
  return written;
}

function isOverwritten(job: Job, { offset }: Spot, writes: readonly Interval[]): boolean {
  const end = offset + job.bytes;
  // Writes do not overlap each other, so their ends ascend too.
  for (let i = firstEndingAfter(writes, offset); i < writes.length; i++) {
    const write = writes[i] as Interval;
    if (write.begin >= end) return false;
    const own = write.job === job && write.begin === offset;
    const later = write.job.level > job.level;
    if (!own && !later) return true;
  }
  return false;
}

function firstEndingAfter(writes: readonly Interval[], at: number): number {
  let low = 0;
  let high = writes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((writes[middle] as Interval).end <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
