/**
 * The cut of shared state over the ranks' files: into equal runs of bytes, whatever tensors these fall on.
 *
 * The cut follows from the tensors and the number of ranks alone, so it is never written down: a reader of a file knows which
 * elements of which tensor it holds.
 */
import { bytesOf } from "../../api/index.ts";
import { elementsOf, type StateTensor } from "../state.ts";

/** A run of elements of one tensor. */
export interface Piece {
  readonly name: string;
  readonly begin: number;
  /** Exclusive. */
  readonly end: number;
}

/** Tensors begin, and files end, at multiples of so many bytes: a multiple of every element's width. */
const UNIT_BYTES = 8;

/** The pieces that lie in the file of a rank; tensors in the order given. A tensor without elements lies in the first file. */
export function piecesOf(
  tensors: readonly (readonly [string, Pick<StateTensor, "dtype" | "shape">])[],
  rank: number,
  size: number,
): Piece[] {
  const units = tensors.map(([, { dtype, shape }]) =>
    Math.ceil((elementsOf(shape) * bytesOf(dtype)) / UNIT_BYTES),
  );
  const total = units.reduce((sum, each) => sum + each, 0);
  const first = Math.floor((total * rank) / size);
  const last = Math.floor((total * (rank + 1)) / size);
  const pieces: Piece[] = [];
  let start = 0;
  for (const [at, [name, { dtype, shape }]] of tensors.entries()) {
    const count = elementsOf(shape);
    const stop = start + (units[at] as number);
    const perUnit = UNIT_BYTES / bytesOf(dtype);
    const begin = Math.min(count, (Math.max(first, start) - start) * perUnit);
    const end = Math.min(count, (Math.min(last, stop) - start) * perUnit);
    if (count === 0 && rank === 0) pieces.push({ name, begin: 0, end: 0 });
    else if (begin < end) pieces.push({ name, begin, end });
    start = stop;
  }
  return pieces;
}
