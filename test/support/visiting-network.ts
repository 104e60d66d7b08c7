/** A `SmallNetwork` computed layer by layer, as sharded training wants it: each layer is visited before it is used. */
import type { MicroBatch, ParameterSet, Ready, VisitLayer } from "twinccl/parallel";
import { linear, type Pass, sequence, tanh } from "twinccl/parallel/models";
import type { Sample, SmallNetwork } from "./small-network.ts";

/** The layer of a parameter of a `SmallNetwork`. */
export const layerOf = (parameter: string): string => `layer${/\d+$/.exec(parameter)?.[0]}`;

/** Backward of some samples; reads a layer's values while it is visited alone. */
export function visitingBackward(network: SmallNetwork, parameters: ParameterSet) {
  const { widths } = network;
  const layers = Array.from({ length: network.layers }, (_, at) => ({
    name: `layer${at}`,
    layer: sequence([
      linear({
        weight: parameters.get(`weight${at}`),
        bias: parameters.get(`bias${at}`),
        inputs: widths[at]!,
        outputs: widths[at + 1]!,
      }),
      tanh(),
    ]),
  }));
  const create = network.dtype === "float32" ? Float32Array : Float64Array;
  return async (
    samples: readonly Sample[],
    ready: Ready,
    visit: VisitLayer,
  ): Promise<MicroBatch> => {
    const extent = { sequences: samples.length, length: 1 };
    const passes: { name: string; pass: Pass }[] = [];
    let rows: Float32Array | Float64Array = create.from(samples.flatMap(({ input }) => input));
    for (const { name, layer } of layers) {
      await visit(name);
      const pass = layer.forward(rows, extent);
      passes.push({ name, pass });
      rows = pass.output;
    }
    const targets = samples.flatMap(({ target }) => target);
    const gaps = rows.map((each, at) => each - targets[at]!);
    let above: Float32Array | Float64Array = gaps.map((each) => 2 * each);
    for (const { name, pass } of passes.toReversed()) {
      await visit(name);
      above = pass.backward(above, ready);
    }
    const loss = Array.from(gaps, (each) => each * each).reduce((sum, each) => sum + each, 0);
    return { loss, samples: samples.length };
  };
}
