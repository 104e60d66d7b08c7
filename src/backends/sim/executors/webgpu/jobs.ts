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

/** Level of copies of inputs: before every other one. */
const first = -1;

/** The jobs of a call. Where outputs lie on inputs that other folds read, all folds read copies of the inputs. */
export function jobsOf(call: BoundCall, spots: Spots, scratch: Scratch): FoldJob[] {
  return call.plan.groups.flatMap((group) => jobsOfGroup(call, spots, group, scratch));
}

/** Jobs of folds that need each other's values: each but the last one is needed, and only the last one has targets. */
function jobsOfGroup(
  call: BoundCall,
  { inputs, outputs }: Spots,
  group: readonly FusedFold[],
  scratch: Scratch,
): FoldJob[] {
  const { dtype, layout, folds, inPlace } = call;
  const bytes = lengthOf(call, group) * bytesOf(dtype);
  if (bytes === 0) return [];
  const jobs: FoldJob[] = [];
  /** The level of each earlier fold, and its value. */
  const levels: number[] = [];
  const values: Spot[] = [];
  const operandOf = (operand: Operand): JobOperand => {
    if (operand.kind === "fold") {
      return { spot: values[operand.fold] as Spot, kind: "running", scalar: noScalar };
    }
    const { place, kind } = operand;
    const fold = folds[place.rank];
    let spot = advanced(inputs[place.rank] as Spot, firstOf(layout.in, place) * bytesOf(dtype));
    if (inPlace) {
      const copy = scratch(bytes);
      jobs.push(copyOf(spot, copy, bytes));
      spot = copy;
    }
    return { spot, kind, scalar: fold === undefined ? noScalar : scalarWords(fold) };
  };
  group.forEach((fold, number) => {
    const targets = fold.targets.map((place) =>
      advanced(outputs[place.rank] as Spot, firstOf(layout.out, place) * bytesOf(dtype)),
    );
    if (number < group.length - 1) {
      const value = scratch(bytes);
      values.push(value);
      targets.push(value);
    }
    const below = fold.operands.map((operand) =>
      operand.kind === "fold" ? (levels[operand.fold] as number) : first,
    );
    const level = largest(below) + 1;
    levels.push(level);
    const copy = group.length === 1 && isCopy(call, fold);
    const operands = fold.operands.map(operandOf);
    jobs.push({ level, copy, operands, targets, bytes, place: 0, final: fold.final && !copy });
  });
  return jobs;
}

/** A job that copies bytes at a level. */
export function copyOf(from: Spot, to: Spot, bytes: number, level = first): FoldJob {
  const operands = [{ spot: from, kind: "contribution", scalar: noScalar }] as const;
  return { level, copy: true, operands, targets: [to], bytes, place: 0, final: false };
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
