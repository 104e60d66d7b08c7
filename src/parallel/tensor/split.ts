/** Cuts tensors along an axis into a part for each rank, and joins the parts. */
import type { Communicator, InvalidArgumentError } from "../../api/index.ts";
import { invalid, textOf } from "../../api/option-kinds.ts";
import { assertCommunicator, isCount } from "../argument-checks.ts";
import { gatherArrays, gatherNumbers } from "../host-collectives.ts";
import { isParameterArray, type ParameterArray, parameterDTypeOf } from "../parameter-set.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import { elementsOf } from "../state.ts";

/** Elements in row-major order, and their shape. */
export interface Tensor {
  readonly shape: readonly number[];
  readonly data: ParameterArray;
}

/** A range of an axis. */
export interface Part {
  readonly begin: number;
  /** Exclusive. */
  readonly end: number;
}

/** The rank and the size that fix a part. */
export interface SplitOptions {
  readonly rank: number;
  readonly size: number;
  /** Elements of the axis that stay together, such as the width of a head; 1 when left out. It divides the extent. */
  readonly unit?: number | undefined;
}

/**
 * The part of an extent that a rank takes, in whole units; in an uneven division the first ranks have one more.
 *
 * @throws InvalidArgumentError for an invalid rank, or a unit that does not divide the extent.
 */
export function partOf(extent: number, options: SplitOptions): Part {
  const { rank, size, unit = 1 } = options ?? {};
  const fault = (field: string, found: unknown, needed: string): InvalidArgumentError =>
    invalid("partOf", field, textOf(found), needed);
  if (!isCount(extent)) {
    throw fault("extent", extent, "an integer of at least 0");
  }
  if (!isCount(size, 1)) throw fault("size", size, "an integer of at least 1");
  if (!isCount(rank) || rank >= size) {
    throw fault("rank", rank, `a rank from 0 to ${size - 1}`);
  }
  if (!isCount(unit, 1) || extent % unit !== 0) {
    throw fault("unit", unit, `a divisor of ${extent}`);
  }
  const units = extent / unit;
  const [each, more] = [Math.floor(units / size), units % size];
  const begin = rank * each + Math.min(rank, more);
  const end = begin + each + (rank < more ? 1 : 0);
  return { begin: begin * unit, end: end * unit };
}

/**
 * A copy of this rank's part of a tensor along an axis.
 *
 * @throws InvalidArgumentError for a shape that does not fit the data, or an axis that it does not have.
 */
export function splitTensor(tensor: Tensor, axis: number, options: SplitOptions): Tensor {
  assertTensor("splitTensor", tensor, axis);
  const { shape, data } = tensor;
  const { begin, end } = partOf(shape[axis] as number, options);
  const inner = elementsOf(shape.slice(axis + 1));
  const outer = elementsOf(shape.slice(0, axis));
  const [stride, width] = [(shape[axis] as number) * inner, (end - begin) * inner];
  const part = data.slice(0, outer * width);
  for (let row = 0; row < outer; row++) {
    const from = row * stride + begin * inner;
    part.set(data.subarray(from, from + width), row * width);
  }
  return { shape: shape.with(axis, end - begin), data: part };
}

/**
 * All ranks' parts, joined along an axis in the order of ranks; their extents there may differ.
 *
 * - **Collective**: the same axis on every rank. **Cost**: a comparison and two all-gathers.
 *
 * @throws InvalidArgumentError on this rank for a shape that does not fit the data, or an axis that it does not have.
 * @throws CollectiveMismatchError on all ranks where another extent, the dtype or the axis differs.
 */
export async function gatherTensor(
  comm: Communicator,
  part: Tensor,
  axis: number,
): Promise<Tensor> {
  assertCommunicator("gatherTensor", comm);
  assertTensor("gatherTensor", part, axis);
  const { shape, data } = part;
  const dtype = parameterDTypeOf(data) ?? "float64";
  await assertSameOnRanks(comm, {
    action: "gatherTensor",
    kind: "the part's",
    lines: new Map([
      ["axis", String(axis)],
      ["dtype", dtype],
      ["other extents", `[${shape.map((each, at) => (at === axis ? "any" : each)).join(", ")}]`],
    ]),
    hint: "parts may differ along the gathered axis alone",
  });
  const extents = (await gatherNumbers(comm, [shape[axis] as number])).map(
    ([each]) => each as number,
  );
  const inner = elementsOf(shape.slice(axis + 1));
  const outer = elementsOf(shape.slice(0, axis));
  const all = await gatherArrays(
    comm,
    data,
    extents.map((extent) => outer * extent * inner),
  );
  const extent = extents.reduce((sum, each) => sum + each, 0);
  const whole = all.slice();
  let [read, column] = [0, 0];
  for (const each of extents) {
    const width = each * inner;
    for (let row = 0; row < outer; row++) {
      whole.set(all.subarray(read, read + width), row * extent * inner + column);
      read += width;
    }
    column += width;
  }
  return { shape: shape.with(axis, extent), data: whole };
}

function assertTensor(action: string, tensor: Tensor, axis: number): void {
  const { shape, data } = tensor ?? {};
  const fault = (field: string, found: string, needed: string): InvalidArgumentError =>
    invalid(action, field, found, needed);
  if (!Array.isArray(shape)) throw fault("shape", textOf(shape), "an array of extents");
  if (!isParameterArray(data)) {
    throw fault("data", textOf(data), "a Float32Array or Float64Array");
  }
  if (!Number.isInteger(axis) || axis < 0 || axis >= shape.length) {
    throw fault("axis", textOf(axis), `an axis of [${shape.join(", ")}]`);
  }
  const wrong = shape.find((extent) => !isCount(extent));
  if (wrong !== undefined) throw fault("shape", textOf(wrong), "integers of at least 0");
  if (data.length === elementsOf(shape)) return;
  throw fault("data", `${data.length} elements`, `as many as [${shape.join(", ")}] has`);
}
