/** The experts of each token: the most probable ones by a router's logits, with the weights of their outputs. */
import {
  assertOptions,
  type Complete,
  invalid,
  type OptionKinds,
  textOf,
} from "../../api/option-kinds.ts";
import { assertOneOf, isCount } from "../argument-checks.ts";
import { zerosLike } from "../layers/layer.ts";
import { isParameterArray, type ParameterArray } from "../parameter-set.ts";

/** The experts of tokens: `choices` each, row by row. */
export interface Routes {
  readonly choices: number;
  /** Number of the expert, for every token and choice. */
  readonly experts: Int32Array;
  /** The factor of the expert's output in the token's output. */
  readonly weights: ParameterArray;
}

/** Options of `routeTopK`. */
export interface TopKOptions {
  /** Number of experts, and of logits in a row. */
  readonly experts: number;
  /** Experts of a token; 1 when left out. */
  readonly choices?: number | undefined;
  /**
   * Weights are a softmax over all experts (`all`, when left out, as in Switch) or over the chosen ones (`chosen`, as in
   * Mixtral).
   */
  readonly softmax?: "all" | "chosen" | undefined;
}

const kinds: OptionKinds<TopKOptions> = { experts: true, choices: true, softmax: true };

/** Routes, with their backward from the gradient by the weights to the one by the logits. */
export interface TopKRoutes extends Routes {
  /** The gradient by the logits, from the one by the weights. */
  backward(byWeights: ParameterArray): ParameterArray;
}

/**
 * The `choices` largest logits of every row, the larger first; of equal ones the first. Only the weights have a gradient, not
 * the choice. Computed in float64, each row from its largest logit.
 *
 * @throws InvalidArgumentError for logits without whole rows or not finite, or choices outside 1 to `experts`.
 * @example
 * const routes = routeTopK(logits, { experts: 8, choices: 2 });
 */
export function routeTopK(logits: ParameterArray, options: TopKOptions): TopKRoutes {
  assertOptions("routeTopK", options, kinds);
  const { experts, choices = 1, softmax = "all" } = options;
  assertRouting(logits, { experts, choices, softmax });
  const rows = logits.length / experts;
  const chosen = new Int32Array(rows * choices);
  const weights = zerosLike(logits, rows * choices);
  const shares = new Float64Array(logits.length);
  for (let row = 0; row < rows; row++) {
    const own = logits.subarray(row * experts, (row + 1) * experts);
    const order = [...own.keys()].sort((a, b) => (own[b] as number) - (own[a] as number) || a - b);
    const among = softmax === "all" ? order : order.slice(0, choices);
    const largest = own[order[0] as number] as number;
    let total = 0;
    for (const each of among) total += Math.exp((own[each] as number) - largest);
    for (const each of among) {
      shares[row * experts + each] = Math.exp((own[each] as number) - largest) / total;
    }
    for (let choice = 0; choice < choices; choice++) {
      const expert = order[choice] as number;
      chosen[row * choices + choice] = expert;
      weights[row * choices + choice] = shares[row * experts + expert] as number;
    }
  }
  return {
    choices,
    experts: chosen,
    weights,
    backward(byWeights) {
      const isArray = isParameterArray(byWeights);
      if (!isArray || byWeights.length !== chosen.length) {
        const found = isArray ? `${byWeights.length} elements` : textOf(byWeights);
        throw invalid("routeTopK", "gradient", found, `${chosen.length} elements, a weight each`);
      }
      const below = zerosLike(logits, logits.length);
      for (let row = 0; row < rows; row++) {
        let mean = 0;
        for (let at = row * choices; at < (row + 1) * choices; at++) {
          mean +=
            (byWeights[at] as number) * (shares[row * experts + (chosen[at] as number)] as number);
        }
        const slopes = new Float64Array(experts);
        for (let at = row * choices; at < (row + 1) * choices; at++) {
          slopes[chosen[at] as number] = byWeights[at] as number;
        }
        for (let expert = 0; expert < experts; expert++) {
          const at = row * experts + expert;
          below[at] = (shares[at] as number) * ((slopes[expert] as number) - mean);
        }
      }
      return below;
    },
  };
}

function assertRouting(
  logits: ParameterArray,
  { experts, choices, softmax }: Complete<TopKOptions>,
): void {
  if (!isCount(experts, 1)) {
    throw invalid("routeTopK", "experts", textOf(experts), "an integer of at least 1");
  }
  if (!isCount(choices, 1) || choices > experts) {
    throw invalid("routeTopK", "choices", textOf(choices), `an integer from 1 to ${experts}`);
  }
  assertOneOf("routeTopK", "softmax", softmax, ["all", "chosen"]);
  if (!isParameterArray(logits)) {
    throw invalid("routeTopK", "logits", textOf(logits), "a Float32Array or Float64Array");
  }
  if (logits.length % experts !== 0) {
    throw invalid("routeTopK", "logits", `${logits.length} elements`, `whole rows of ${experts}`);
  }
  const at = logits.findIndex((each: number) => !Number.isFinite(each));
  if (at >= 0) throw invalid("routeTopK", `logits[${at}]`, String(logits[at]), "a finite number");
}
