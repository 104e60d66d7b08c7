/**
 * One micro-batch on all ranks: which layer's values are gathered when, and when its gradients are summed.
 *
 * Layers are visited in one order, first to last and back. All calls follow from that order alone, never from timing, so
 * they meet on all ranks, and a rank without a micro-batch makes them by visiting for nothing. Values of the next layer are
 * asked for while this one computes; at most one is ahead.
 */
import { InvalidArgumentError } from "../../api/index.ts";
import type { Parameter, ParameterArray } from "../parameter-set.ts";
import type { LayerStore } from "./layer-store.ts";
import type { ShardingStage } from "./strip-store.ts";

/** What a round is told. */
export interface RoundOptions {
  readonly stage: ShardingStage;
  readonly prefetch: boolean;
  /** Gradients of this round complete the sums. */
  readonly last: boolean;
}

/** The way of one micro-batch through the layers. */
export class Round {
  readonly #layers: readonly LayerStore[];
  readonly #options: RoundOptions;
  readonly #ready = new Set<Parameter>();
  /** Sums under way, in the order in which they were posted. */
  readonly #summing: LayerStore[] = [];
  /** Layers whose sums are not posted yet: those up to here. */
  #unsummed: number;
  #position = -1;

  constructor(layers: readonly LayerStore[], options: RoundOptions) {
    this.#layers = layers;
    this.#options = options;
    this.#unsummed = layers.length;
  }

  /** Goes on to the next layer on the way; resolves when its values can be read. */
  async visit(name: string): Promise<void> {
    const at = this.#position + 1;
    const layer = this.#layerAt(at);
    if (layer?.name !== name) throw this.#strayed(name, layer);
    this.#position = at;
    // Everything is posted before anything is awaited, in one order.
    const left = this.#layerAt(at - 1);
    if (at > this.#layers.length) this.#sumDownTo(2 * this.#layers.length - at);
    if (this.#options.stage === 3) {
      if (left !== layer) left?.release();
      layer.fetch();
      if (this.#options.prefetch) this.#layerAt(at + 1)?.fetch();
    }
    await this.#collectBut(1);
    await layer.arrive();
  }

  /** Takes a gradient up. */
  ready(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    const layer = this.#layers.find((each) => each.parameters.has(parameter)) as LayerStore;
    this.#assertExpected(parameter, layer);
    this.#ready.add(parameter);
    layer.add(parameter, gradient, scale);
    if (this.#sums) {
      while (this.#unsummed > 0 && this.#isComplete(this.#layers[this.#unsummed - 1])) {
        this.#sumDownTo(this.#unsummed - 1);
      }
    }
  }

  /** Makes the calls of a rank that has no micro-batch. */
  async idle(): Promise<void> {
    if (this.#options.stage < 3) return;
    for (let at = 0; at < 2 * this.#layers.length; at++) {
      await this.visit((this.#layerAt(at) as LayerStore).name);
    }
  }

  /** Posts and takes what is left. */
  async finish(): Promise<void> {
    const visits = 2 * this.#layers.length;
    const unvisited = this.#position === -1 && this.#options.stage < 3;
    if (this.#position !== visits - 1 && !unvisited) {
      const next = this.#layerAt(this.#position + 1) as LayerStore;
      throw fault(
        next.name,
        `backward ended after ${this.#position + 1} visits`,
        `${visits}: every layer forward and back`,
        `await visit("${next.name}") is next`,
      );
    }
    if (this.#sums) this.#sumDownTo(0);
    await this.#collectBut(0);
  }

  /** Before stage 2, only the last micro-batch is followed by sums. */
  get #sums(): boolean {
    return this.#options.stage > 1 || this.#options.last;
  }

  #layerAt(at: number): LayerStore | undefined {
    const { length } = this.#layers;
    return this.#layers[at < length ? at : 2 * length - 1 - at];
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

  #assertExpected(parameter: Parameter, layer: LayerStore): void {
    const { name } = parameter;
    if (this.#ready.has(parameter)) {
      const hint = "add up the parts of a parameter that is used twice, then call ready once";
      throw fault(name, "a second gradient in the same micro-batch", "one", hint);
    }
    const present = this.#layerAt(this.#position);
    const back = this.#position >= this.#layers.length;
    if (this.#position === -1 ? this.#options.stage < 3 : back && present === layer) return;
    throw fault(
      name,
      `its gradient while ${back ? `"${present?.name}" is visited` : "layers are visited forward"}`,
      `it while "${layer.name}" is visited on the way back`,
    );
  }

  #strayed(name: string, layer: LayerStore | undefined): InvalidArgumentError {
    const needed = layer === undefined ? "no more visits" : `"${layer.name}"`;
    const order = this.#layers.map((each) => each.name).join(", ");
    const hint = `layers are visited in the order ${order}, and then back`;
    return fault(name, `a visit of "${name}"`, needed, hint);
  }
}

function fault(field: string, found: string, needed: string, hint?: string): InvalidArgumentError {
  return new InvalidArgumentError(
    { headline: `ShardedParallel.step: "${field}": found ${found}, needs ${needed}`, hint },
    { field },
  );
}
