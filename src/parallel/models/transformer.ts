/** A small language model: a decoder of pre-norm blocks, trained to tell the next token. */
import type { MicroBatch } from "../data-parallel/backward.ts";
import { gelu } from "../layers/activation.ts";
import { selfAttention } from "../layers/attention.ts";
import { embed } from "../layers/embedding.ts";
import { type Extent, type Layer, residual, sequence, zerosLike } from "../layers/layer.ts";
import { layerNorm } from "../layers/layer-norm.ts";
import { linear } from "../layers/linear.ts";
import { crossEntropy } from "../losses/cross-entropy.ts";
import { type ParameterArray, ParameterSet } from "../parameter-set.ts";
import { type Model, type ModelOptions, weightsOf } from "./model.ts";
import {
  assertShape,
  assertTokens,
  declare,
  shifted,
  type TokenBatch,
  type TransformerShape,
} from "./transformer-parts.ts";

/** The model, and what it says about the next token. */
export interface Transformer extends Model<TokenBatch> {
  /** A row of logits over the vocabulary for the token after each of `tokens`, a single sequence. */
  logits(tokens: ArrayLike<number>): ParameterArray;
}

/**
 * Embeddings of token and position; blocks x + attention(norm(x)), x + perceptron(norm(x)); a last norm; a linear layer to
 * logits. Linear layers are [outputs, inputs] as PyTorch's, the activation is GELU by tanh, a sample is a predicted token.
 * Weights are drawn normally with a deviation of 0.02, those that close a residual with 0.02 / √(2 · blocks).
 *
 * @throws InvalidArgumentError for a shape that is none; by `loss`, `backward` and `logits`, for tokens that do not fit.
 * @example
 * const model = transformer({ vocabulary: 64, context: 32, width: 32, heads: 4, blocks: 2, seed: 7 });
 */
export function transformer(options: TransformerShape & ModelOptions): Transformer {
  assertShape(options);
  const { vocabulary, width } = options;
  const parameters = new ParameterSet(declare(options).declarations);
  const get = weightsOf(parameters);
  const stack = decoder(options, parameters);
  const table = { token: get("token.weight"), position: get("position.weight"), width };

  const forward = (inputs: ArrayLike<number>, extent: Extent) => {
    const embedded = embed(table, inputs, extent);
    return { embedded, pass: stack.forward(embedded.output, extent) };
  };
  return {
    parameters,
    logits(tokens) {
      const extent = { sequences: 1, length: tokens.length };
      assertTokens(options, tokens, extent.length);
      return forward(tokens, extent).pass.output;
    },
    loss(batch): MicroBatch {
      const { inputs, targets, extent } = shifted(options, batch);
      const logits = forward(inputs, extent).pass.output;
      const { value, weight } = crossEntropy({
        logits,
        targets,
        classes: vocabulary,
        reduction: "sum",
      });
      return { loss: value, samples: targets.length, weight };
    },
    backward(batch, take): MicroBatch {
      const { inputs, targets, extent } = shifted(options, batch);
      const { embedded, pass } = forward(inputs, extent);
      const gradient = zerosLike(pass.output, pass.output.length);
      const { value, weight } = crossEntropy({
        logits: pass.output,
        targets,
        classes: vocabulary,
        gradient,
        reduction: "sum",
      });
      embedded.backward(pass.backward(gradient, take), take);
      return { loss: value, samples: targets.length, weight };
    },
  };
}

/** Everything between the embeddings and the logits. */
function decoder(shape: TransformerShape, parameters: ParameterSet): Layer {
  const { vocabulary, width, heads, blocks, hidden = 4 * width } = shape;
  const get = weightsOf(parameters);
  const norm = (name: string): Layer =>
    layerNorm({ weight: get(`${name}.weight`), bias: get(`${name}.bias`) });
  const dense = (name: string, inputs: number, outputs: number): Layer =>
    linear({ weight: get(`${name}.weight`), bias: get(`${name}.bias`), inputs, outputs });
  const layers = Array.from({ length: blocks }, (_, at) => {
    const name = `block${at}`;
    const attention = selfAttention({
      query: dense(`${name}.attention.query`, width, width),
      key: dense(`${name}.attention.key`, width, width),
      value: dense(`${name}.attention.value`, width, width),
      output: dense(`${name}.attention.output`, width, width),
      heads,
      headWidth: width / heads,
    });
    const up = dense(`${name}.mlp.up`, width, hidden);
    const down = dense(`${name}.mlp.down`, hidden, width);
    return sequence([
      residual(sequence([norm(`${name}.norm1`), attention])),
      residual(sequence([norm(`${name}.norm2`), up, gelu(), down])),
    ]);
  });
  return sequence([...layers, norm("norm"), dense("head", width, vocabulary)]);
}
