/** One layer on one rank: what is gathered, computed with and freed together. */
import type { Parameter, ParameterArray } from "../parameter-set.ts";
import { type StripContext, StripStore } from "./strip-store.ts";
import type { LayerPlan } from "./strips.ts";

/** The memory of a layer. */
export class LayerStore {
  readonly name: string;
  readonly parameters: ReadonlySet<Parameter>;
  readonly strips: readonly StripStore[];
  /** The state of the values: readable, on their way, or neither. */
  #values: "here" | "coming" | "away";

  constructor(plan: LayerPlan, context: StripContext) {
    this.name = plan.name;
    this.parameters = new Set(plan.parameters);
    this.strips = plan.strips.map((strip) => new StripStore(strip, context));
    this.#values = context.stage === 3 ? "away" : "here";
  }

  /** Posts the gathering of the values, unless they are here or on their way. */
  fetch(): void {
    if (this.#values !== "away") return;
    this.#values = "coming";
    for (const strip of this.strips) strip.fetch();
  }

  /** Resolves when the values can be read. */
  async arrive(): Promise<void> {
    this.fetch();
    if (this.#values === "here") return;
    for (const strip of this.strips) await strip.arrive();
    this.#values = "here";
  }

  /** The values can no longer be read. */
  release(): void {
    if (this.#values !== "here") return;
    for (const strip of this.strips) strip.release();
    this.#values = "away";
  }

  add(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    for (const strip of this.strips) strip.add(parameter, gradient, scale);
  }

  /** Posts the sum of the gradients. */
  scatter(): void {
    for (const strip of this.strips) strip.scatter();
  }

  /** Resolves when this rank has its stretches of the sums. */
  async collect(): Promise<void> {
    for (const strip of this.strips) await strip.collect();
  }
}
