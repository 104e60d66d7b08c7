/**
 * One micro-batch on all ranks: schedules the gathering of each layer's values and the sum of its gradients.
 *
 * Layers are visited in one order, first to last and back; a pipeline makes several such passes. All calls follow from that
 * order, never from timing, so they match on all ranks. A rank without a micro-batch makes them by visits without computing.
 * Values of the next layer are requested while this one computes; at most one is ahead.
 */

import type { Communicator, InvalidArgumentError } from "../../api/index.ts";
import { largest } from "../../api/largest.ts";
import { invalid } from "../../api/option-kinds.ts";
import type { Direction } from "../data-parallel/backward.ts";
import { gatherWords } from "../host-collectives.ts";
import type { Parameter, ParameterArray } from "../parameter-set.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import type { LayerShards, ShardingStage } from "./flat-parameters.ts";

/** The inputs of a micro-batch. */
export interface MicroBatchStepOptions {
  readonly comm: Communicator;
  readonly stage: ShardingStage;
  readonly prefetch: boolean;
  /** True if the gradients of this micro-batch complete the sums. */
  readonly last: boolean;
  /** True if every rank has a micro-batch in it. */
  readonly onAllRanks: boolean;
}

/** One micro-batch through the layers. */
export class MicroBatchStep {
  readonly #layers: readonly LayerShards[];
  readonly #options: MicroBatchStepOptions;
  #traversal: LayerTraversal<LayerShards>;
  /** True for passes other than once forward and back. */
  #hasCustomPasses = false;
  /** Parameters with gradients from this pass. */
  readonly #ready = new Set<Parameter>();
  /** Sums under way, in the order in which they were posted. */
  readonly #reducing: LayerShards[] = [];
  /** Layers up to this one have sums that this pass has not posted yet. */
  #unreduced: number;
  #position = -1;
  /** The visited layer, while its values are being gathered. */
  #gathering: string | undefined;

  constructor(layers: readonly LayerShards[], options: MicroBatchStepOptions) {
    this.#layers = layers;
    this.#options = options;
    this.#traversal = new LayerTraversal(layers, ["forward", "backward"]);
    this.#unreduced = layers.length;
  }

  /** Announces other passes; as `Visit.passes`. */
  async passes(count: number, passesOf: (count: number) => readonly Direction[]): Promise<number> {
    const { comm, onAllRanks } = this.#options;
    if (this.#position >= 0 || this.#ready.size > 0 || this.#hasCustomPasses) {
      throw invalid(
        "ShardedParallel.step",
        "passes",
        "passes announced after a visit",
        "one announcement, before all visits",
      );
    }
    if (!onAllRanks) {
      const hint =
        "a pipeline without a micro-batch takes part too: step([[]], …) in place of step([], …)";
      throw invalid(
        "ShardedParallel.step",
        "passes",
        "a rank without a micro-batch",
        "one on every rank",
        hint,
      );
    }
    const most = largest((await gatherWords(comm, [count])).map(([each]) => each as number));
    const passes = passesOf(most);
    assertPasses(passes, most);
    await assertSameOnRanks(comm, {
      action: "ShardedParallel.step",
      kind: "order of",
      lines: new Map([["passes", passes.join(" ")]]),
      hint: "give the pipelines of all data parallel lines the same schedule and stages",
    });
    this.#hasCustomPasses = true;
    this.#traversal = new LayerTraversal(this.#layers, passes);
    return most;
  }

  /** Visits the next layer; resolves when its values can be read. */
  async visit(name: string): Promise<void> {
    const at = this.#position + 1;
    const layer = this.#traversal.layerAt(at);
    this.#assertGathered(`a visit of "${name}"`);
    if (layer?.name !== name) throw this.#unexpectedVisit(name, layer);
    this.#gathering = name;
    // All calls are posted before any is awaited, in one order.
    if (at % this.#layers.length === 0) this.#beginPass();
    this.#position = at;
    if (this.#traversal.isBackward(at)) this.#reduceDownTo(this.#traversal.indexAt(at) + 1);
    if (this.#options.stage === 3) {
      const left = this.#traversal.layerAt(at - 1);
      if (left !== layer) left?.release();
      layer.startGather();
      if (this.#options.prefetch) this.#traversal.layerAt(at + 1)?.startGather();
    }
    // A layer visited on two consecutive passes back has one sum under way at a time.
    await this.#finishReductions(this.#reducing.includes(layer) ? 0 : 1);
    await layer.finishGather();
    this.#gathering = undefined;
  }

  /** Makes the next pass without computing. */
  async skip(): Promise<void> {
    const first = this.#position + 1;
    if (this.#layers.length === 0) return;
    if (first % this.#layers.length !== 0) {
      throw invalid(
        "ShardedParallel.step",
        "passes",
        "a pass skipped that has begun",
        "visits of its other layers",
      );
    }
    for (let at = first; at < first + this.#layers.length; at++) {
      const layer = this.#traversal.layerAt(at);
      if (layer === undefined)
        throw invalid("ShardedParallel.step", "passes", "one more skipped", "the announced number");
      await this.visit(layer.name);
    }
    this.endPass();
  }

  /** Posts the sums that a pass back has left; as `Visit.endPass`. */
  endPass(): void {
    const at = this.#position;
    const isEnd = (at + 1) % this.#layers.length === 0;
    if (at >= 0 && isEnd && this.#traversal.isBackward(at)) this.#reduceDownTo(0);
  }

  /** Adds a gradient. */
  ready(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    const layer = this.#layers.find((each) => each.parameters.has(parameter)) as LayerShards;
    this.#assertExpected(parameter, layer);
    this.#ready.add(parameter);
    layer.addGradient(parameter, gradient, scale);
    while (this.#unreduced > 0 && this.#isComplete(this.#layers[this.#unreduced - 1])) {
      if (!this.#reducesNow) return;
      this.#reduceDownTo(this.#unreduced - 1);
    }
  }

  /** Makes the calls of a rank that has no micro-batch. */
  async runEmpty(): Promise<void> {
    if (this.#options.stage < 3) return;
    for (const _ of this.#traversal.passes) await this.skip();
  }

  /** Posts and completes the remaining calls. */
  async finish(): Promise<void> {
    this.#assertGathered("the end of backward");
    const { length } = this.#traversal;
    const needsVisits = this.#options.stage === 3 || this.#hasCustomPasses || this.#position >= 0;
    if (needsVisits && this.#position !== length - 1) {
      const next = this.#traversal.layerAt(this.#position + 1) as LayerShards;
      const passes = this.#hasCustomPasses
        ? `in ${this.#traversal.passes.length} passes`
        : "forward and back";
      throw invalid(
        "ShardedParallel.step",
        next.name,
        `backward ended after ${this.#position + 1} visits`,
        `${length}: every layer ${passes}`,
        `await visit("${next.name}") is next`,
      );
    }
    this.#reduceDownTo(0);
    await this.#finishReductions(0);
  }

  /** Before stage 2, only the last pass back of the last micro-batch is followed by sums. */
  get #reducesNow(): boolean {
    const { stage, last } = this.#options;
    if (stage > 1) return true;
    const { passes } = this.#traversal;
    return (
      last && (this.#position < 0 || this.#traversal.passAt(this.#position) === passes.length - 1)
    );
  }

  #beginPass(): void {
    if (this.#position < 0 || !this.#traversal.isBackward(this.#position)) return;
    this.endPass();
    this.#unreduced = this.#layers.length;
    this.#ready.clear();
  }

  #isComplete(layer: LayerShards | undefined): boolean {
    return [...(layer?.parameters ?? [])].every((each) => this.#ready.has(each));
  }

  #reduceDownTo(index: number): void {
    while (this.#reducesNow && this.#unreduced > index) {
      const layer = this.#layers[--this.#unreduced] as LayerShards;
      layer.startReduce();
      this.#reducing.push(layer);
    }
  }

  async #finishReductions(left: number): Promise<void> {
    while (this.#reducing.length > left) await this.#reducing.shift()?.finishReduce();
  }

  #assertGathered(found: string): void {
    const name = this.#gathering;
    if (name === undefined) return;
    throw invalid(
      "ShardedParallel.step",
      name,
      `${found} before it has arrived`,
      `await visit("${name}")`,
    );
  }

  #assertExpected(parameter: Parameter, layer: LayerShards): void {
    const { name } = parameter;
    if (this.#ready.has(parameter)) {
      const hint = "add up the parts of a parameter that is used twice, then call ready once";
      throw invalid(
        "ShardedParallel.step",
        name,
        "a second gradient in the same micro-batch",
        "one",
        hint,
      );
    }
    const present = this.#traversal.layerAt(this.#position);
    const back = this.#position >= 0 && this.#traversal.isBackward(this.#position);
    const unvisited = this.#position < 0 && this.#options.stage < 3 && !this.#hasCustomPasses;
    if (unvisited || (back && present === layer)) return;
    throw invalid(
      "ShardedParallel.step",
      name,
      `its gradient while ${back ? `"${present?.name}" is visited` : "layers are visited forward"}`,
      `it while "${layer.name}" is visited on the way back`,
    );
  }

  #unexpectedVisit(name: string, layer: LayerShards | undefined): InvalidArgumentError {
    const needed = layer === undefined ? "no more visits" : `"${layer.name}"`;
    const order = this.#layers.map((each) => each.name).join(", ");
    const hint = `layers are visited in the order ${order}, and then back`;
    return invalid("ShardedParallel.step", name, `a visit of "${name}"`, needed, hint);
  }
}

/** As many passes forward as back, none back before its forward. */
function assertPasses(passes: readonly Direction[], count: number): void {
  let under = 0;
  for (const each of passes) {
    under += each === "forward" ? 1 : -1;
    if (under < 0) break;
  }
  if (under === 0 && passes.length === 2 * count) return;
  const needed = `${count} forward, and each back after it`;
  throw invalid("ShardedParallel.step", "passes", `the order ${passes.join(" ")}`, needed);
}

// The traversal of a micro-batch through the layers: passes forward and back, one after the other, layer by layer.

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
