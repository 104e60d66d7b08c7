/**
 * One micro-batch on all ranks: which layer's values are gathered when, and when its gradients are summed.
 *
 * Layers are visited in one order, first to last and back; a pipeline goes that way several times. All calls follow from that
 * order alone, never from timing, so they meet on all ranks, and a rank without a micro-batch makes them by visiting for
 * nothing. Values of the next layer are requested while this one computes; at most one is ahead.
 */

import type { Communicator, InvalidArgumentError } from "../../api/index.ts";
import { largest } from "../../api/largest.ts";
import { invalid } from "../../api/option-kinds.ts";
import { allWords, assertAgreed } from "../agreement.ts";
import type { Parameter, ParameterArray } from "../parameter-set.ts";
import type { Direction } from "../visit.ts";
import type { LayerStore } from "./layer-store.ts";
import type { ShardingStage } from "./strip-store.ts";
import { Way } from "./way.ts";

/** The inputs of a round. */
export interface RoundOptions {
  readonly comm: Communicator;
  readonly stage: ShardingStage;
  readonly prefetch: boolean;
  /** Gradients of this round complete the sums. */
  readonly last: boolean;
  /** Every rank has a micro-batch in it. */
  readonly full: boolean;
}

/** The way of one micro-batch through the layers. */
export class Round {
  readonly #layers: readonly LayerStore[];
  readonly #options: RoundOptions;
  #way: Way<LayerStore>;
  /** The way is another one than once forward and back. */
  #announced = false;
  /** Parameters with gradients from this pass. */
  readonly #ready = new Set<Parameter>();
  /** Sums under way, in the order in which they were posted. */
  readonly #summing: LayerStore[] = [];
  /** Layers with sums that this pass has not posted yet: those up to here. */
  #unsummed: number;
  #position = -1;
  /** The layer that is being visited and has not arrived. */
  #arriving: string | undefined;

  constructor(layers: readonly LayerStore[], options: RoundOptions) {
    this.#layers = layers;
    this.#options = options;
    this.#way = new Way(layers, ["forward", "backward"]);
    this.#unsummed = layers.length;
  }

  /** Takes another way; as `Visit.passes`. */
  async passes(count: number, passesOf: (count: number) => readonly Direction[]): Promise<number> {
    const { comm, full } = this.#options;
    if (this.#position >= 0 || this.#ready.size > 0 || this.#announced) {
      throw invalid(
        "ShardedParallel.step",
        "passes",
        "passes told on the way",
        "them once, before all visits",
      );
    }
    if (!full) {
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
    const most = largest((await allWords(comm, [count])).map(([each]) => each as number));
    const passes = passesOf(most);
    assertPasses(passes, most);
    await assertAgreed(comm, {
      action: "ShardedParallel.step",
      kind: "order of",
      lines: new Map([["passes", passes.join(" ")]]),
      hint: "give the pipelines of all data parallel lines the same schedule and stages",
    });
    this.#announced = true;
    this.#way = new Way(this.#layers, passes);
    return most;
  }

  /** Goes on to the next layer on the way; resolves when its values can be read. */
  async visit(name: string): Promise<void> {
    const at = this.#position + 1;
    const layer = this.#way.layerAt(at);
    this.#assertArrived(`a visit of "${name}"`);
    if (layer?.name !== name) throw this.#strayed(name, layer);
    this.#arriving = name;
    // Everything is posted before anything is awaited, in one order.
    if (at % this.#layers.length === 0) this.#endPass();
    this.#position = at;
    if (this.#way.isBack(at)) this.#sumDownTo(this.#way.indexAt(at) + 1);
    if (this.#options.stage === 3) {
      const left = this.#way.layerAt(at - 1);
      if (left !== layer) left?.release();
      layer.fetch();
      if (this.#options.prefetch) this.#way.layerAt(at + 1)?.fetch();
    }
    // A layer visited on two passes back in a row has one sum under way at a time.
    await this.#collectBut(this.#summing.includes(layer) ? 0 : 1);
    await layer.arrive();
    this.#arriving = undefined;
  }

  /** Makes the next pass for nothing. */
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
      const layer = this.#way.layerAt(at);
      if (layer === undefined)
        throw invalid("ShardedParallel.step", "passes", "one more skipped", "those that were told");
      await this.visit(layer.name);
    }
  }

  /** Takes a gradient up. */
  ready(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    const layer = this.#layers.find((each) => each.parameters.has(parameter)) as LayerStore;
    this.#assertExpected(parameter, layer);
    this.#ready.add(parameter);
    layer.add(parameter, gradient, scale);
    while (this.#unsummed > 0 && this.#isComplete(this.#layers[this.#unsummed - 1])) {
      if (!this.#sums) return;
      this.#sumDownTo(this.#unsummed - 1);
    }
  }

  /** Makes the calls of a rank that has no micro-batch. */
  async idle(): Promise<void> {
    if (this.#options.stage < 3) return;
    for (const _ of this.#way.passes) await this.skip();
  }

  /** Posts and takes what is left. */
  async finish(): Promise<void> {
    this.#assertArrived("the end of backward");
    const { length } = this.#way;
    const needsVisits = this.#options.stage === 3 || this.#announced || this.#position >= 0;
    if (needsVisits && this.#position !== length - 1) {
      const next = this.#way.layerAt(this.#position + 1) as LayerStore;
      const passes = this.#announced ? `in ${this.#way.passes.length} passes` : "forward and back";
      throw invalid(
        "ShardedParallel.step",
        next.name,
        `backward ended after ${this.#position + 1} visits`,
        `${length}: every layer ${passes}`,
        `await visit("${next.name}") is next`,
      );
    }
    this.#sumDownTo(0);
    await this.#collectBut(0);
  }

  /** Before stage 2, only the last pass back of the last micro-batch is followed by sums. */
  get #sums(): boolean {
    const { stage, last } = this.#options;
    if (stage > 1) return true;
    const { passes } = this.#way;
    return last && (this.#position < 0 || this.#way.passAt(this.#position) === passes.length - 1);
  }

  /** Sums that a pass back leaves to the next one. */
  #endPass(): void {
    if (this.#position < 0 || !this.#way.isBack(this.#position)) return;
    this.#sumDownTo(0);
    this.#unsummed = this.#layers.length;
    this.#ready.clear();
  }

  #isComplete(layer: LayerStore | undefined): boolean {
    return [...(layer?.parameters ?? [])].every((each) => this.#ready.has(each));
  }

  #sumDownTo(index: number): void {
    while (this.#sums && this.#unsummed > index) {
      const layer = this.#layers[--this.#unsummed] as LayerStore;
      layer.scatter();
      this.#summing.push(layer);
    }
  }

  async #collectBut(left: number): Promise<void> {
    while (this.#summing.length > left) await this.#summing.shift()?.collect();
  }

  #assertArrived(found: string): void {
    const name = this.#arriving;
    if (name === undefined) return;
    throw invalid(
      "ShardedParallel.step",
      name,
      `${found} before it has arrived`,
      `await visit("${name}")`,
    );
  }

  #assertExpected(parameter: Parameter, layer: LayerStore): void {
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
    const present = this.#way.layerAt(this.#position);
    const back = this.#position >= 0 && this.#way.isBack(this.#position);
    const unvisited = this.#position < 0 && this.#options.stage < 3 && !this.#announced;
    if (unvisited || (back && present === layer)) return;
    throw invalid(
      "ShardedParallel.step",
      name,
      `its gradient while ${back ? `"${present?.name}" is visited` : "layers are visited forward"}`,
      `it while "${layer.name}" is visited on the way back`,
    );
  }

  #strayed(name: string, layer: LayerStore | undefined): InvalidArgumentError {
    const needed = layer === undefined ? "no more visits" : `"${layer.name}"`;
    const order = this.#layers.map((each) => each.name).join(", ");
    const hint = `layers are visited in the order ${order}, and then back`;
    return invalid("ShardedParallel.step", name, `a visit of "${name}"`, needed, hint);
  }
}

/** As many forward as back, none back before it went forward. */
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
