/**
 * The option `divided` of the trainers: their model is itself divided over ranks, as by tensor and pipeline parallelism. With it,
 * the norms of gradients over all these ranks, in which a parameter with copies counts once.
 */
import type { Communicator } from "../api/index.ts";
import { gatherNumbers } from "./host-collectives.ts";

/** The ranks that hold one model together, and the parameters that several of them have. */
export interface Divided {
  /** The ranks among which the model is divided: a line of the tensor axis, or the plane of tensor and pipeline axes. */
  readonly comm: Communicator;
  /** Number of ranks of `comm` that have this parameter, with the same values and gradients; 1 where it is this rank's alone. */
  readonly copies: (name: string) => number;
}

/** A gradient, or a range of one. */
export interface NamedGradient {
  readonly name: string;
  readonly gradient: Float32Array | Float64Array;
}

/** The combined norm of several norms, without intermediate overflow. */
export function combineNorms(norms: readonly number[]): number {
  const most = norms.reduce((all, each) => Math.max(all, each), 0);
  if (most === 0 || !Number.isFinite(most)) return most;
  return most * Math.sqrt(norms.reduce((sum, each) => sum + (each / most) ** 2, 0));
}

/** The norm of the gradients of all ranks of `comm`, in the order of ranks; the same bits on all. Costs an all-gather. */
export async function normOverRanks(comm: Communicator, norm: number): Promise<number> {
  return combineNorms((await gatherNumbers(comm, [norm])).map(([each]) => each as number));
}

/** Gradients by the number of ranks that have them, fewest first. */
export function groupByCopies<T extends { readonly name: string }>(
  all: Iterable<T>,
  divided: Divided | undefined,
): [copies: number, of: T[]][] {
  const groups = new Map<number, T[]>();
  for (const each of all) {
    const copies = divided?.copies(each.name) ?? 1;
    groups.set(copies, [...(groups.get(copies) ?? []), each]);
  }
  return [...groups].sort(([a], [b]) => a - b);
}
