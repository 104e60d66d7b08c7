/**
 * A grid of ranks with named axes, each axis a communicator: how data, tensor, pipeline and sharded parallelism combine.
 *
 * Axes are given slowest first. Ranks that differ only in the last axis are neighbours, so the axis with most communication
 * comes last.
 */
import type { Communicator, InvalidArgumentError } from "../api/index.ts";
import { invalid, textOf } from "../api/option-kinds.ts";
import { assertCommunicator, factsOf, isCount } from "./argument-checks.ts";
import { assertSameOnRanks } from "./rank-comparison.ts";

/**
 * A mesh over all ranks of a communicator. Made by `Mesh.create`.
 *
 * With axes a of extent A, b of extent B, c of extent C, rank (i·B + j)·C + k is at a = i, b = j, c = k.
 */
export class Mesh<Axis extends string = string> {
  /** The axes, slowest first. */
  readonly axes: readonly Axis[];
  readonly #parent: Communicator;
  readonly #extents: Readonly<Record<Axis, number>>;
  readonly #place: Readonly<Record<Axis, number>>;
  readonly #lines: Readonly<Record<Axis, Communicator>>;
  readonly #planes: Communicator[] = [];

  private constructor(
    parent: Communicator,
    extents: Readonly<Record<Axis, number>>,
    lines: Readonly<Record<Axis, Communicator>>,
  ) {
    this.#parent = parent;
    this.axes = Object.keys(extents) as Axis[];
    this.#extents = extents;
    this.#place = placeOf(parent.rank, extents);
    this.#lines = lines;
  }

  /**
   * Arranges the ranks of a communicator as a grid, and splits off the communicator of this rank's line along every axis.
   *
   * - **Collective**: the same axes in the same order on every rank. **Cost**: a comparison, and a split for each axis.
   *
   * @throws InvalidArgumentError on this rank for no axis, an invalid extent, or a product of extents other than the number of
   * ranks.
   * @throws CollectiveMismatchError on all ranks for axes that differ.
   * @example
   * const mesh = await Mesh.create(comm, { data: 2, pipeline: 2, tensor: 2 });
   * await mesh.comm("tensor").allReduce({ send: partial, op: "sum" });
   */
  static async create<Axis extends string>(
    comm: Communicator,
    extents: Readonly<Record<Axis, number>>,
  ): Promise<Mesh<Axis>> {
    assertCommunicator("Mesh.create", comm);
    assertExtents(comm, extents);
    const axes = Object.keys(extents) as Axis[];
    await assertAxes(
      comm,
      "create",
      axes.map((axis) => `${axis} ${extents[axis]}`),
    );
    const lines: [Axis, Communicator][] = [];
    for (const axis of axes) lines.push([axis, await splitAlong(comm, extents, [axis])]);
    const table = Object.fromEntries(lines) as Record<Axis, Communicator>;
    return new Mesh(comm, { ...extents }, table);
  }

  /** Number of ranks along an axis. */
  extent(axis: Axis): number {
    return this.#of(this.#extents, axis);
  }

  /** This rank's place along an axis, from 0; its rank in `comm(axis)`. */
  place(axis: Axis): number {
    return this.#of(this.#place, axis);
  }

  /** The ranks that differ from this one in the place along `axis` alone, in the order of these places. */
  comm(axis: Axis): Communicator {
    return this.#of(this.#lines, axis);
  }

  /**
   * The ranks that differ from this one in the places along these axes alone, in the order of the mesh. It belongs to the
   * mesh.
   *
   * - **Collective** over all ranks of the mesh, with the same axes in any order. **Cost**: a comparison and a split.
   *
   * @throws InvalidArgumentError on this rank for an axis that the mesh does not have.
   * @throws CollectiveMismatchError on all ranks for axes that differ.
   */
  async across(axes: readonly Axis[]): Promise<Communicator> {
    if (!Array.isArray(axes)) {
      throw invalid("Mesh.across", "axes", textOf(axes), "an array of them", undefined, {
        rank: this.#parent.rank,
      });
    }
    for (const axis of axes) this.#of(this.#extents, axis);
    const inOrder = this.axes.filter((axis) => axes.includes(axis));
    await assertAxes(this.#parent, "across", inOrder);
    const plane = await splitAlong(this.#parent, this.#extents, axes);
    this.#planes.push(plane);
    return plane;
  }

  /** Closes the communicators of the mesh, not the one passed to `create`. */
  async close(): Promise<void> {
    const own = [...Object.values<Communicator>(this.#lines), ...this.#planes];
    await Promise.all(own.map((each) => each.close()));
  }

  /** As `close`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #of<T>(table: Readonly<Record<Axis, T>>, axis: Axis): T {
    if (Object.hasOwn(table, axis)) return table[axis];
    throw invalid("Mesh", "axis", textOf(axis), `one of ${this.axes.join(", ")}`, undefined, {
      rank: this.#parent.rank,
    });
  }
}

/** Refuses axes that differ between ranks; their names may be any text. */
async function assertAxes(
  comm: Communicator,
  action: string,
  axes: readonly string[],
): Promise<void> {
  await assertSameOnRanks(comm, {
    action: `Mesh.${action}`,
    kind: "option",
    lines: new Map([
      ["axes", axes.join(" × ")],
      ["names", JSON.stringify(axes)],
    ]),
    hint: "give every rank the same axes in the same order",
  });
}

/** Splits off the ranks that share this one's places along all other axes. */
async function splitAlong(
  comm: Communicator,
  extents: Readonly<Record<string, number>>,
  axes: readonly string[],
): Promise<Communicator> {
  const place = placeOf(comm.rank, extents);
  let color = 0;
  for (const [axis, extent] of Object.entries(extents)) {
    if (!axes.includes(axis)) color = color * extent + (place[axis] as number);
  }
  return await comm.split({ color, key: comm.rank });
}

function placeOf<Axis extends string>(
  rank: number,
  extents: Readonly<Record<Axis, number>>,
): Record<Axis, number> {
  let rest = rank;
  const places = (Object.keys(extents) as Axis[]).toReversed().map((axis): [Axis, number] => {
    const place = rest % extents[axis];
    rest = (rest - place) / extents[axis];
    return [axis, place];
  });
  return Object.fromEntries(places.toReversed()) as Record<Axis, number>;
}

function assertExtents(comm: Communicator, extents: Readonly<Record<string, number>>): void {
  const fault = (field: string, found: string, needed: string): InvalidArgumentError =>
    invalid("Mesh.create", field, found, needed, undefined, factsOf(comm));
  const all = Object.entries(extents ?? {});
  if (all.length === 0) throw fault("axes", "none", "at least one");
  for (const [axis, extent] of all) {
    if (/^\d+$/.test(axis)) throw fault("axes", `"${axis}"`, "names: numbers lose their order");
    if (isCount(extent, 1)) continue;
    throw fault(axis, textOf(extent), "an integer of at least 1");
  }
  const product = all.reduce((ranks, [, extent]) => ranks * extent, 1);
  if (product === comm.size) return;
  const layout = all.map(([axis, extent]) => `${axis} ${extent}`).join(" × ");
  throw fault("axes", `${layout} = ${product} ranks`, `${comm.size}, the communicator's`);
}
