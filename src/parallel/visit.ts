/** Backward's announcement to a trainer with sharded values: the layer that it computes next, and the direction. */

/** Takes the next layer; resolves when that layer's values can be read. */
export type VisitLayer = (layer: string) => Promise<void>;

/** One way through all layers: first to last, or last to first. */
export type Direction = "forward" | "backward";

/**
 * Takes the layer that backward computes next; resolves when that layer's values can be read. Without `passes`, a
 * micro-batch goes through all layers once forward and once back.
 */
export interface Visit extends VisitLayer {
  /**
   * Announces, before the first visit, that several passes follow one another, as a pipeline's do; gradients are then reported in
   * every pass back. All ranks make the passes of the one that needs most of them.
   *
   * - **Collective** over the trainer's ranks. **Cost**: an all-gather of 4 bytes and a comparison.
   *
   * @param count - Passes forward that this rank needs; it needs as many back.
   * @param passesOf - Their order for any number of them, the same on all ranks.
   * @returns How many all ranks make; those that this one does not need are made by `skip`.
   * @throws InvalidArgumentError for an order that makes no sense, or when a rank has no micro-batch in which to make passes.
   * @throws CollectiveMismatchError on all ranks for orders that differ.
   */
  passes(count: number, passesOf: (count: number) => readonly Direction[]): Promise<number>;
  /** Makes the next pass for nothing: visits its layers, and brings no gradient. */
  skip(): Promise<void>;
}

/** The visits of trainers with all values. */
export const everythingIsHere = (): Promise<void> => Promise.resolve();
