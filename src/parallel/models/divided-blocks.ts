/** The blocks of a transformer, whole or divided over the ranks of a communicator, to be put together. */
import type { Communicator } from "../../api/index.ts";
import { gelu } from "../layers/activation.ts";
import { selfAttention } from "../layers/attention.ts";
import { type Layer, sequence, type Weights } from "../layers/layer.ts";
import { layerNorm } from "../layers/layer-norm.ts";
import { linear } from "../layers/linear.ts";
import type { ParameterDeclaration } from "../parameter-set.ts";
import {
  replicated,
  type ShardedLayer,
  sharded,
  shardedResidual,
  shardedSequence,
} from "../tensor/sharded.ts";
import { partOf, splitTensor } from "../tensor/split.ts";
import type { ModelOptions } from "./model.ts";
import { declare, type TransformerShape } from "./transformer-parts.ts";

/** The ranks that the blocks are divided over; left out, they are whole. */
export interface DividedParts {
  readonly tensor: Communicator | undefined;
  readonly shape: TransformerShape;
  readonly get: (name: string) => Weights;
}

/** The axis along which a parameter is divided. */
export function axisOf(name: string): number | undefined {
  if (/\.(query|key|value|up)\.(weight|bias)$/.test(name)) return 0;
  if (/\.(output|down)\.weight$/.test(name)) return 1;
  return undefined;
}

/** The parameters of the whole model in the order of use, those that are divided cut to this rank's part. */
export function dividedDeclarations(
  tensor: Communicator | undefined,
  options: TransformerShape & ModelOptions,
): ParameterDeclaration[] {
  const { rank, size } = tensor ?? { rank: 0, size: 1 };
  const headWidth = options.width / options.heads;
  return declare(options).declarations.map((declaration) => {
    const { name, shape, values = [] } = declaration;
    const axis = axisOf(name);
    if (axis === undefined) return declaration;
    const whole = { shape, data: Float64Array.from(values) };
    const unit = name.includes(".attention.") ? headWidth : 1;
    const part = splitTensor(whole, axis, { rank, size, unit });
    return { ...declaration, shape: part.shape, values: part.data };
  });
}

/** Block `at`: attention over this rank's heads, and a perceptron with its hidden units. */
export function dividedBlock(parts: DividedParts, at: number): ShardedLayer {
  const { tensor, shape, get } = parts;
  const { width, heads, hidden = 4 * width } = shape;
  const { rank, size } = tensor ?? { rank: 0, size: 1 };
  const lengthOf = ({ begin, end }: { begin: number; end: number }): number => end - begin;
  const ownHeads = lengthOf(partOf(heads, { rank, size }));
  const ownHidden = lengthOf(partOf(hidden, { rank, size }));
  const headWidth = width / heads;
  const inner = ownHeads * headWidth;
  const name = `block${at}`;
  const into = (layer: string, inputs: number, outputs: number): Layer =>
    linear(dense(parts, `${name}.${layer}`, inputs, outputs));
  /** The last linear layer, with its bias added after the sum where there is one. */
  const out = (layer: string, inputs: number, before: (last: Layer) => Layer): ShardedLayer => {
    const last = dense(parts, `${name}.${layer}`, inputs, width);
    if (tensor === undefined) return replicated(before(linear(last)));
    return sharded(tensor, before(linear({ ...last, bias: undefined })), last.bias);
  };
  const attention = out("attention.output", inner, (output) =>
    selfAttention({
      query: into("attention.query", width, inner),
      key: into("attention.key", width, inner),
      value: into("attention.value", width, inner),
      output,
      heads: ownHeads,
      headWidth,
    }),
  );
  const perceptron = out("mlp.down", ownHidden, (down) =>
    sequence([into("mlp.up", width, ownHidden), gelu(), down]),
  );
  return shardedSequence([
    shardedResidual(shardedSequence([norm(get, `${name}.norm1`), attention])),
    shardedResidual(shardedSequence([norm(get, `${name}.norm2`), perceptron])),
  ]);
}

/** The layers behind the blocks: the last norm, and the linear layer to logits. */
export function closing(parts: DividedParts): ShardedLayer {
  const { vocabulary, width } = parts.shape;
  const head = replicated(linear(dense(parts, "head", width, vocabulary)));
  return shardedSequence([norm(parts.get, "norm"), head]);
}

function dense({ get }: DividedParts, name: string, inputs: number, outputs: number) {
  return { weight: get(`${name}.weight`), bias: get(`${name}.bias`), inputs, outputs };
}

function norm(get: DividedParts["get"], name: string): ShardedLayer {
  return replicated(layerNorm({ weight: get(`${name}.weight`), bias: get(`${name}.bias`) }));
}
