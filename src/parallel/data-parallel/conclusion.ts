/** How a step ends: from the summed gradients and what all ranks told, the same on every rank. */
import { ranksText } from "../../api/error-text.ts";
import { InvalidArgumentError, type Row } from "../../api/index.ts";
import { NonFiniteGradientError, UnusedParametersError } from "../errors.ts";
import type { ParameterSet } from "../parameter-set.ts";
import { clipGradients, divideGradients, gradientNorm, nonFinite } from "./mean-gradient.ts";
import type { Settings } from "./options.ts";
import type { RankStep } from "./step-exchange.ts";

/** What a step did; everything but `stepMs` is the same on all ranks. */
export interface StepStats {
  /** Number of the step, from 1. */
  readonly step: number;
  /** Mean loss over the samples of all ranks. */
  readonly loss: number;
  /** Norm of the mean gradient, before clipping. */
  readonly gradientNorm: number;
  /** What clipping multiplied the gradient with; 1 where it did not. */
  readonly clip: number;
  /** Samples of all ranks. */
  readonly samples: number;
  /** Weight of all samples, which the mean divides by. */
  readonly weight: number;
  /** Parameters that no rank had a gradient for; theirs are zero. */
  readonly unused: readonly string[];
  /** Time that this rank spent in the step, in milliseconds. */
  readonly stepMs: number;
}

/**
 * Turns the sums into the mean gradient, clips it, and says what the step did.
 *
 * @throws InvalidArgumentError, UnusedParametersError, NonFiniteGradientError: on all ranks, because all know the same.
 */
export function concludeStep(
  parameters: ParameterSet,
  settings: Settings,
  ranks: readonly RankStep[],
): Omit<StepStats, "step" | "stepMs"> {
  if (settings.unused === "refuse") refuseUnused(parameters, ranks);
  const total = (field: "loss" | "samples" | "weight"): number =>
    ranks.reduce((sum, each) => sum + each[field], 0);
  const weight = total("weight");
  if (!(weight > 0)) {
    throw new InvalidArgumentError(
      { headline: "DataParallel.step: no rank had a sample with a weight, needs at least one" },
      { field: "samples" },
    );
  }
  divideGradients(parameters, weight);
  const norm = gradientNorm(parameters);
  if (settings.nonFinite === "refuse") refuseNonFinite(parameters, norm, settings);
  const clip = clipGradients(parameters, norm, settings.maxGradientNorm);
  const unused = parameters.names.filter((_, at) => ranks.every(({ used }) => !used[at]));
  const loss = total("loss") / weight;
  return { loss, gradientNorm: norm, clip, samples: total("samples"), weight, unused };
}

function refuseUnused(parameters: ParameterSet, ranks: readonly RankStep[]): void {
  const missing = [...parameters].flatMap(({ name }, at) => {
    const on = ranks.flatMap(({ samples, used }, rank) => (samples > 0 && !used[at] ? [rank] : []));
    return on.length === 0 ? [] : [{ name, on }];
  });
  if (missing.length === 0) return;
  const table: Row[] = missing.map(({ name, on }) => [name, `on ${ranksText(on)}`]);
  const names = missing.map(({ name }) => name);
  throw new UnusedParametersError(
    {
      headline: `DataParallel.step: ${names.length} ${names.length === 1 ? "parameter" : "parameters"} got no gradient`,
      table: [["parameter", "missing"], ...table],
      hint: 'call ready for every parameter, or take zeros: DataParallel.create(…, { unused: "zeros" })',
    },
    {
      parameters: names,
      ranks: [...new Set(missing.flatMap(({ on }) => on))].sort((a, b) => a - b),
      field: names[0],
    },
  );
}

function refuseNonFinite(parameters: ParameterSet, norm: number, { wire }: Settings): void {
  if (Number.isFinite(norm)) return;
  const names = nonFinite(parameters);
  if (names.length === 0) return;
  throw new NonFiniteGradientError(
    {
      headline: `DataParallel.step: the mean gradient of ${names.map((each) => `"${each}"`).join(", ")} is not finite`,
      hint:
        wire === "float16"
          ? "the sum may have left the range of float16, ±65504: choose a wireScale below 1, or bfloat16"
          : 'lower the learning rate, look at the samples, or hand it on with nonFinite: "keep"',
    },
    { parameters: names, field: names[0] },
  );
}
