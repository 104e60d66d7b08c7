/** The traversal of a micro-batch through the layers: passes forward and back, one after the other, layer by layer. */
import type { Direction } from "../visit.ts";

/** The order of visits to layers. Visits are counted from 0. */
export class LayerTraversal<Layer> {
  readonly passes: readonly Direction[];
  readonly #layers: readonly Layer[];

  constructor(layers: readonly Layer[], passes: readonly Direction[]) {
    this.passes = passes;
    this.#layers = layers;
  }

  /** Number of visits. */
  get length(): number {
    return this.passes.length * this.#layers.length;
  }

  /** The layer of a visit; `undefined` before the first and after the last. */
  layerAt(visit: number): Layer | undefined {
    return this.#layers[this.indexAt(visit)];
  }

  /** The place of that layer among all of them; -1 where there is none. */
  indexAt(visit: number): number {
    if (visit < 0 || visit >= this.length) return -1;
    const place = visit % this.#layers.length;
    return this.isBackward(visit) ? this.#layers.length - 1 - place : place;
  }

  /** True for a visit on a pass back. */
  isBackward(visit: number): boolean {
    return this.passes[this.passAt(visit)] === "backward";
  }

  /** Number of the pass of a visit. */
  passAt(visit: number): number {
    return Math.floor(visit / this.#layers.length);
  }
}
