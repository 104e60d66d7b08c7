/** One layer on one rank: what is gathered, computed with and freed together. */
import type { Parameter, ParameterArray } from "../parameter-set.ts";
import { FlatParameterHandle, type ShardingContext } from "./strip-store.ts";
import type { LayerPlan } from "./strips.ts";

/** The memory of a layer. */
export class LayerShards {
  readonly name: string;
  readonly parameters: ReadonlySet<Parameter>;
  readonly flatParameters: readonly FlatParameterHandle[];
  /** The state of the values: readable, on their way, or neither. */
  #values: "here" | "coming" | "away";

  constructor(plan: LayerPlan, context: ShardingContext) {
    this.name = plan.name;
    this.parameters = new Set(plan.parameters);
    this.flatParameters = plan.flatParameters.map((flat) => new FlatParameterHandle(flat, context));
    this.#values = context.stage === 3 ? "away" : "here";
  }

  /** Posts the gathering of the values, unless they are here or on their way. */
  startGather(): void {
    if (this.#values !== "away") return;
    this.#values = "coming";
    for (const flat of this.flatParameters) flat.startGather();
  }

  /** Resolves when the values can be read. */
  async finishGather(): Promise<void> {
    this.startGather();
    if (this.#values === "here") return;
    for (const flat of this.flatParameters) await flat.finishGather();
    this.#values = "here";
  }

  /** The values can no longer be read. */
  release(): void {
    if (this.#values !== "here") return;
    for (const flat of this.flatParameters) flat.release();
    this.#values = "away";
  }

  addGradient(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    for (const flat of this.flatParameters) flat.addGradient(parameter, gradient, scale);
  }

  /** Posts the sum of the gradients. */
  startReduce(): void {
    for (const flat of this.flatParameters) flat.startReduce();
  }

  /** Resolves when this rank has its ranges of the sums. */
  async finishReduce(): Promise<void> {
    for (const flat of this.flatParameters) await flat.finishReduce();
  }
}
