/** The options of `ShardedParallel`. */
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import { type DataParallelOptions, type Settings, settingsOf } from "../data-parallel/options.ts";
import { ruleFault, type UpdateRule } from "../optimizers/rules.ts";
import type { Parameter } from "../parameter-set.ts";
import type { ShardingStage } from "./flat-parameters.ts";

/** The properties of a parameter for the choice of its rule. */
export type ParameterShape = Pick<Parameter, "name" | "dtype" | "shape">;

/** Options of `ShardedParallel.create`; the same on every rank. Those not described here are as in `DataParallelOptions`. */
export interface ShardedParallelOptions
  extends Pick<
    DataParallelOptions,
    "unused" | "maxGradientNorm" | "nonFinite" | "root" | "divided" | "now"
  > {
  /** The sharded parts: 1 the optimizer's state, 2 gradients as well, 3 parameter values as well. */
  readonly stage: ShardingStage;
  /** The update rule of parameters; may choose by parameter. */
  readonly rule: UpdateRule | ((parameter: ParameterShape) => UpdateRule);
  /** The layer of a parameter. When left out, its name up to the first dot: `block0` of `block0.norm.weight`. */
  readonly layerOf?: ((parameter: string) => string) | undefined;
  /** At stage 3, gathers the next layer's values while one computes; `true` when left out. */
  readonly prefetch?: boolean | undefined;
}

const kinds: OptionKinds<ShardedParallelOptions> = {
  ...{ stage: true, rule: true, layerOf: "function", prefetch: "boolean" },
  ...{
    unused: true,
    maxGradientNorm: true,
    nonFinite: true,
    root: true,
    divided: true,
    now: "function",
  },
};

/** The options, complete. */
export interface ShardedSettings extends Settings {
  readonly stage: ShardingStage;
  readonly rule: ShardedParallelOptions["rule"];
  readonly layerOf: (parameter: string) => string;
  readonly prefetch: boolean;
}

/** Completes and checks options. */
export function shardedSettingsOf(options: ShardedParallelOptions, size: number): ShardedSettings {
  assertOptions("ShardedParallel", options, kinds);
  const { stage, rule, layerOf = beforeDot, prefetch = true, ...common } = options;
  if (![1, 2, 3].includes(stage)) {
    throw invalid("ShardedParallel", "stage", textOf(stage), "1, 2 or 3");
  }
  return { ...settingsOf(common, size, "ShardedParallel"), stage, rule, layerOf, prefetch };
}

/** The layer of a parameter. */
export function layerName({ layerOf }: ShardedSettings, parameter: string): string {
  const layer: unknown = layerOf(parameter);
  if (typeof layer === "string") return layer;
  throw invalid(
    "ShardedParallel",
    `layerOf("${parameter}")`,
    textOf(layer),
    "the name of a layer",
    undefined,
    { field: "layerOf" },
  );
}

/** The rule of a parameter. */
export function ruleOf({ rule }: ShardedSettings, parameter: ParameterShape): UpdateRule {
  const chosen = typeof rule === "function" ? rule(parameter) : rule;
  const fault = ruleFault(chosen);
  if (fault === undefined) return chosen;
  throw invalid(
    "ShardedParallel",
    `rule of "${parameter.name}"`,
    fault,
    "an update rule",
    "such as sgd({ learningRate: 0.1 })",
    { field: "rule" },
  );
}

/** The rule of a parameter, as ranks compare it: of the schedule the first two rates, because a warm-up may begin at 0. */
export function ruleLine(settings: ShardedSettings, parameter: ParameterShape): string {
  const { name, schedule, settings: own } = ruleOf(settings, parameter);
  const others = own === undefined ? "" : ` ${JSON.stringify(own)}`;
  return `${name}${others} with rates ${schedule(0)}, ${schedule(1)}`;
}

/** The options that ranks must agree on. */
export function shardedLines(settings: ShardedSettings): [string, string][] {
  const { stage, prefetch, unused, maxGradientNorm, nonFinite, root } = settings;
  const agreed = { stage, prefetch, unused, maxGradientNorm, nonFinite, root };
  return Object.entries(agreed).map(([name, value]) => [name, String(value)]);
}

function beforeDot(name: string): string {
  return name.split(".")[0] as string;
}
