/**
 * A bound call as jobs: every fold with the places of its operands and targets in device memory.
 *
 * Jobs of one level may run at once; a later level sees what an earlier one wrote. A fold that others need writes its value to
 * scratch memory, and they run one level later.
 */
import type { Fold } from "../../../../algorithms/arithmetic/index.ts";
import type { FusedFold, Operand } from "../../../../algorithms/index.ts";
import { bytesOf, dtypeInfo } from "../../../../api/index.ts";
import { largest } from "../../../../api/largest.ts";
import { partitionPoint } from "../../../../api/partition-point.ts";
import type { BoundCall } from "../../executor.ts";
import { firstOf, isCopy, lengthOf } from "../cpu.ts";
import type { Slab } from "./slabs.ts";
import type { operandKind } from "./wgsl/kernel.ts";

/** A byte in device memory. */
export interface Spot {
  readonly slab: Slab;
  readonly offset: number;
}

/** An operand of a job: its place, its kind, and the words of its scalar. */
interface JobOperand {
  readonly spot: Spot;
  readonly kind: keyof typeof operandKind;
  readonly scalar: readonly [number, number];
}

/** One fold, or one copy, of `bytes` from every operand to every target. */
export interface FoldJob {
  readonly level: number;
  readonly copy: boolean;
  readonly operands: readonly JobOperand[];
  readonly targets: readonly Spot[];
  readonly bytes: number;
  /** Byte of the chunk at which it begins. */
  readonly place: number;
  readonly final: boolean;
}

/** Where the ranks' buffers of a call lie, by rank. */
export interface Spots {
  readonly inputs: readonly (Spot | undefined)[];
  readonly outputs: readonly (Spot | undefined)[];
}

/** Allocates scratch memory. */
export type Scratch = (bytes: number) => Spot;

/** A spot further on in the same slab. */
export function advanced({ slab, offset }: Spot, bytes: number): Spot {
  return { slab, offset: offset + bytes };
}

const noScalar = [0, 0] as const;

/** The jobs of a call. */
export function jobsOf(call: BoundCall, spots: Spots, scratch: Scratch): FoldJob[] {
  return call.plan.groups.flatMap((group) => jobsOfGroup(call, spots, group, scratch));
}

/** Jobs of folds that need each other's values. */
function jobsOfGroup(
  call: BoundCall,
  { inputs, outputs }: Spots,
  group: readonly FusedFold[],
  scratch: Scratch,
): FoldJob[] {
  const { dtype, layout, folds } = call;
  const bytes = lengthOf(call, group) * bytesOf(dtype);
  if (bytes === 0) return [];
  const needed = new Set<number>();
  for (const { operands } of group) {
    for (const operand of operands) if (operand.kind === "fold") needed.add(operand.fold);
  }
  /** The level of each earlier fold, and its value where others need it. */
  const levels: number[] = [];
  const values: (Spot | undefined)[] = [];
  const operandOf = (operand: Operand): JobOperand => {
    if (operand.kind === "fold") {
      return { spot: values[operand.fold] as Spot, kind: "running", scalar: noScalar };
    }
    const { place, kind } = operand;
    const fold = folds[place.rank];
    return {
      spot: advanced(inputs[place.rank] as Spot, firstOf(layout.in, place) * bytesOf(dtype)),
      kind,
      scalar: fold === undefined ? noScalar : scalarWords(fold),
    };
  };
  return group.flatMap((fold, number) => {
    const targets = fold.targets.flatMap((place) => {
      const base = outputs[place.rank];
      return base === undefined ? [] : advanced(base, firstOf(layout.out, place) * bytesOf(dtype));
    });
    const value = needed.has(number) ? scratch(bytes) : undefined;
    if (value !== undefined) targets.push(value);
    const below = fold.operands.map((operand) =>
      operand.kind === "fold" ? (levels[operand.fold] ?? 0) : -1,
    );
    const level = largest(below) + 1;
    values.push(value);
    levels.push(level);
    if (targets.length === 0) return [];
    const copy = group.length === 1 && isCopy(call, fold);
    const operands = fold.operands.map(operandOf);
    return { level, copy, operands, targets, bytes, place: 0, final: fold.final && !copy };
  });
}

interface Interval {
  readonly begin: number;
  readonly end: number;
  readonly job: FoldJob;
}

/** Level of the copies: before every other one. */
const first = -1;

/** The same jobs, reading copies where reading the inputs themselves would be a hazard. */
export function withoutHazards(jobs: readonly FoldJob[], scratch: Scratch): readonly FoldJob[] {
  if (!isHazardous(jobs)) return jobs;
  const copies: FoldJob[] = [];
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
export function copyOf(from: Spot, to: Spot, bytes: number, level = first): FoldJob {
  const operands = [{ spot: from, kind: "contribution", scalar: noScalar }] as const;
  return { level, copy: true, operands, targets: [to], bytes, place: 0, final: false };
}

function isHazardous(jobs: readonly FoldJob[]): boolean {
  const written = writesOf(jobs);
  return jobs.some((job) =>
    job.operands.some(({ kind, spot }) => {
      const writes = kind === "running" ? undefined : written.get(spot.slab);
      return writes !== undefined && isOverwritten(job, spot, writes);
    }),
  );
}

/** The written ranges of every slab, in the order of their beginning. */
function writesOf(jobs: readonly FoldJob[]): Map<object, Interval[]> {
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

function isOverwritten(job: FoldJob, { offset }: Spot, writes: readonly Interval[]): boolean {
  const end = offset + job.bytes;
  // Writes do not overlap each other, so their ends ascend too.
  const begin = partitionPoint(writes.length, (at) => (writes[at] as Interval).end <= offset);
  for (let i = begin; i < writes.length; i++) {
    const write = writes[i] as Interval;
    if (write.begin >= end) return false;
    const own = write.job === job && write.begin === offset;
    const later = write.job.level > job.level;
    if (!own && !later) return true;
  }
  return false;
}

const bytes = new DataView(new ArrayBuffer(8));

/** Two words, low one first. */
export function scalarWords({ dtype, terms }: Fold): readonly [number, number] {
  const { scalar } = terms;
  if (dtypeInfo[dtype].kind !== "float")
    bytes.setBigUint64(0, BigInt.asUintN(64, BigInt(scalar)), true);
  else if (dtype === "float64") bytes.setFloat64(0, Number(scalar), true);
  else {
    bytes.setFloat32(0, Number(scalar), true);
    bytes.setUint32(4, 0, true);
  }
  return [bytes.getUint32(0, true), bytes.getUint32(4, true)];
}
