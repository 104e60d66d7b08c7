/** A mixture of experts as a layer: a router, and experts of which each token takes the most probable ones. */
import { assertOptions, invalid, type OptionKinds } from "../../api/option-kinds.ts";
import { assertHasFunctions } from "../argument-checks.ts";
import { assertLayer, assertLayers, type Layer, sum } from "../layers/layer.ts";
import type { ShardedLayer, ShardedPass } from "../tensor/sharded.ts";
import type { ExpertParallel, Load } from "./expert-parallel.ts";
import { routeTopK, type TopKOptions } from "./routing.ts";

/** The parts of a mixture. */
export interface MixtureParts extends TopKOptions {
  /** Maps rows of tokens to rows with a logit for each expert; whole on every rank. */
  readonly router: Layer;
  /** The experts of this rank, `ExpertParallel.own`: each maps rows of tokens to rows as wide. */
  readonly own: readonly Layer[];
  readonly parallel: ExpertParallel;
}

const kinds: OptionKinds<MixtureParts> = {
  ...{ router: "object", own: "array", parallel: "object" },
  ...{ experts: true, choices: true, softmax: true },
};

/** A forward pass of a mixture. */
export interface MixturePass extends ShardedPass {
  readonly load: Load;
}

/** A layer that gives every row the weighted sum of its experts' outputs. */
export interface Mixture extends ShardedLayer {
  forward(...args: Parameters<ShardedLayer["forward"]>): Promise<MixturePass>;
}

/**
 * Every rank passes rows of its own. The gradients of this rank's experts are already sums over all ranks' rows. The router's
 * are of this rank's rows, and have to be summed over ranks.
 *
 * - **Cost**: a dispatch and its `combine`, forward and back.
 *
 * @throws InvalidArgumentError for another number of layers than this rank has experts.
 */
export function mixtureOfExperts(parts: MixtureParts): Mixture {
  assertOptions("mixtureOfExperts", parts, kinds);
  const { router, own, parallel, ...top } = parts;
  assertLayer("mixtureOfExperts", "router", router);
  assertLayers("mixtureOfExperts", own, "own");
  assertHasFunctions("mixtureOfExperts", "parallel", parallel, ["dispatch"]);
  const { begin, end } = parallel.own;
  if (own.length !== end - begin) {
    const needed = `${end - begin}: experts ${begin} to ${end - 1}`;
    throw invalid("mixtureOfExperts", "own", `${own.length} layers`, needed);
  }
  return {
    async forward(input, extent) {
      const scored = router.forward(input, extent);
      const routes = routeTopK(scored.output, top);
      const sent = await parallel.dispatch(input, routes);
      const passes = own.map((expert, at) => {
        const rows = sent.rows[at] as typeof input;
        return expert.forward(rows, { sequences: rows.length / parallel.width, length: 1 });
      });
      const back = await sent.combine(passes.map(({ output }) => output));
      return {
        output: back.output,
        load: sent.load,
        async backward(gradient, take) {
          const { outputs, weights } = await back.backward(gradient);
          const byRows = passes.map((pass, at) =>
            pass.backward(outputs[at] as typeof gradient, take),
          );
          const below = await sent.backward(byRows);
          const byRouter = scored.backward(routes.backward(weights), take);
          return sum(below, byRouter);
        },
      };
    },
  };
}
