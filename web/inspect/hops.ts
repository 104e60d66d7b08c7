/** One element of a result, recomputed hop by hop with the library's own arithmetic. */
import type { DType, HostArray } from "twinccl";
import { bytesOf, dtypeInfo } from "twinccl";
import {
  bitsToNumber,
  type Fold,
  foldFor,
  type Lanes,
  type SmallFloat,
  takeSeparate,
  type ValueId,
} from "twinccl/algorithms";
import type { Making } from "../data/association.ts";
import type { Birth, Film } from "../data/film.ts";
import type { Target } from "../data/strip.ts";
import type { Structure } from "../data/structure.ts";
import { type Cell, cellOf, laneOf, oneLane } from "./cell.ts";

/** A value on its way, with the ranks of its contributions in their order. */
export interface Operand {
  readonly order: readonly number[];
  readonly cell: Cell;
}

/** One hop. */
export interface Hop {
  readonly kind: "begin" | "fold" | "finish";
  readonly left: Operand;
  /** Of a fold. */
  readonly right: Operand | undefined;
  /** The right operand is a rank's untouched contribution, which the scalar still multiplies. */
  readonly isContribution: boolean;
  readonly result: Operand;
  /** Where and when it happens. */
  readonly birth: Birth | undefined;
}

/** Everything about one element. */
export interface ElementReport {
  readonly target: Target;
  /** Chunk that it lies in, and the chunk's elements in the output. */
  readonly chunk: number;
  readonly offset: number;
  readonly length: number;
  readonly making: Making;
  readonly order: readonly number[];
  readonly hops: readonly Hop[];
  readonly result: Cell;
}

/** The source of an element's report. */
export interface Source {
  readonly structure: Structure;
  readonly film: Film;
  readonly dtype: DType;
  readonly inputs: readonly HostArray[];
}

/** Reports on an element of the output; `undefined` where there is none. */
export function inspect(source: Source, target: Target): ElementReport | undefined {
  const { layout, execution } = source.structure;
  const table = layout.out[target.rank];
  if (table === undefined) return undefined;
  const chunk = [...table.offsets].findIndex((offset, i) => {
    const length = table.lengths[i] ?? 0;
    return target.element >= offset && target.element < offset + length;
  });
  const id: ValueId = execution.outputs[target.rank]?.[chunk] ?? -1;
  if (chunk < 0 || id < 0) return undefined;
  const offset = table.offsets[chunk] ?? 0;
  const making = source.film.associations.making(id);
  const evaluation = new Evaluation(source, target.element - offset);
  const result = evaluation.run(making);
  return {
    target,
    chunk,
    offset,
    length: table.lengths[chunk] ?? 0,
    making,
    order: source.film.associations.order(id),
    hops: evaluation.hops,
    result,
  };
}

class Evaluation {
  readonly hops: Hop[] = [];
  readonly #source: Source;
  /** Place in the chunk. */
  readonly #position: number;
  readonly #fold: Fold | undefined;
  /** The running value is float32 and rounded once at the end. */
  readonly #wide: boolean;
  /** Type of a running value. */
  readonly #running: DType;

  constructor(source: Source, position: number) {
    const { dtype } = source;
    const { folds } = source.structure;
    this.#source = source;
    this.#position = position;
    this.#wide = folds?.accumulator === "float32" && dtype !== "float32";
    this.#running = this.#wide ? "float32" : dtype;
    this.#fold = this.#wide ? foldFor("float32", "sum", 1, "fused") : this.#foldHere();
  }

  /** The result's cell; the hops are noted on the way. */
  run(making: Making): Cell {
    const lane = this.#value(making);
    if (!this.#wide) return cellOf(this.#source.dtype, lane);
    const rounded = this.#roundedOnce(making);
    const left = this.#operand(making, lane);
    const result = { order: left.order, cell: cellOf(this.#source.dtype, rounded) };
    this.hops.push({
      kind: "finish",
      left,
      right: undefined,
      isContribution: false,
      result,
      birth: this.#birth(making),
    });
    return result.cell;
  }

  #value(making: Making): Lanes {
    if (making.kind === "leaf") return this.#input(making);
    const fold = this.#fold;
    const lane = oneLane(this.#running);
    if (making.kind === "fold") {
      const { acc, next } = making;
      lane.set(this.#value(acc));
      const right = this.#value(next);
      const left = this.#operand(acc, lane);
      const isContribution = next.kind === "leaf";
      if (isContribution) fold?.addContribution(lane, 0, right, 0, 1);
      else fold?.addPartial(lane, 0, right, 0, 1);
      this.#note("fold", making, left, this.#operand(next, right), isContribution, lane);
      return lane;
    }
    const before = this.#value(making.of);
    const left = this.#operand(making.of, before);
    if (making.kind === "begin") {
      fold?.begin(lane, 0, before, 0, 1);
      if (fold?.scales) this.#note("begin", making, left, undefined, true, lane);
      return lane;
    }
    lane.set(before);
    if (!this.#wide) fold?.finish(lane, 0, 1);
    if (cellOf(this.#running, lane).bits !== left.cell.bits || this.#divides()) {
      this.#note("finish", making, left, undefined, false, lane);
    }
    return lane;
  }

  #input({ rank, chunk }: Making & { readonly kind: "leaf" }): Lanes {
    const { structure, inputs, dtype } = this.#source;
    const offset = structure.layout.in[rank]?.offsets[chunk] ?? 0;
    const lane = laneOf(dtype, inputs[rank] as HostArray, offset + this.#position);
    if (!this.#wide) return lane;
    return Float32Array.of(bitsToNumber(dtype as SmallFloat, lane[0] as number));
  }

  #note(
    kind: Hop["kind"],
    making: Making,
    left: Operand,
    right: Operand | undefined,
    isContribution: boolean,
    lane: Lanes,
  ): void {
    const result = this.#operand(making, lane);
    this.hops.push({ kind, left, right, isContribution, result, birth: this.#birth(making) });
  }

  #operand(making: Making, lane: Lanes): Operand {
    const order = this.#source.film.associations.order(making.id);
    return { order, cell: cellOf(this.#running, lane) };
  }

  #birth({ id }: Making): Birth | undefined {
    return this.#source.film.births.get(id);
  }

  /** An average of integers divides at its end. */
  #divides(): boolean {
    return this.#fold?.op === "avg" && dtypeInfo[this.#source.dtype].kind !== "float";
  }

  /** Where rounding goes by position, the fold that is right for this one. */
  #foldHere(): Fold | undefined {
    const { folds } = this.#source.structure;
    if (folds?.separate === undefined) return folds?.fold;
    const [fused, separate] = [Uint8Array.of(0), Uint8Array.of(1)];
    takeSeparate(fused, separate, 1, bytesOf(this.#source.dtype), this.#position);
    return fused[0] === 1 ? folds.separate : folds.fold;
  }

  /** The whole chain by the plan's own fold, which converts float32 to the element type in its own way. */
  #roundedOnce(making: Making): Lanes {
    const { structure, inputs, dtype, film } = this.#source;
    const lane = oneLane(dtype);
    const chunk = structure.execution.values.chunkOf(making.id);
    const sources = film.associations.order(making.id).map((rank) => {
      const offset = structure.layout.in[rank]?.offsets[chunk] ?? 0;
      return laneOf(dtype, inputs[rank] as HostArray, offset + this.#position);
    });
    const fold = structure.folds?.fold;
    if (sources.length > 1)
      fold?.chain(
        lane,
        0,
        sources,
        sources.map(() => 0),
        1,
      );
    else fold?.begin(lane, 0, sources[0] ?? lane, 0, 1);
    fold?.finish(lane, 0, 1);
    return lane;
  }
}
