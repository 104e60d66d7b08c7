/** A small language model: a decoder of pre-norm blocks, trained to predict the next token. */

import {
  assertOptions,
  integer,
  invalid,
  type OptionKinds,
  textOf,
} from "../../api/option-kinds.ts";
import { assertCount } from "../argument-checks.ts";
import type { MicroBatch } from "../data-parallel/backward.ts";
import { gelu } from "../layers/activation.ts";
import { selfAttention } from "../layers/attention.ts";
import { embed } from "../layers/embedding.ts";
import { type Extent, type Layer, residual, sequence, zerosLike } from "../layers/layer.ts";
import { layerNorm } from "../layers/layer-norm.ts";
import { linear } from "../layers/linear.ts";
import { crossEntropy } from "../losses.ts";
import { type ParameterArray, ParameterSet } from "../parameter-set.ts";
import { Initial, type Model, type ModelOptions, modelKinds, weightsOf } from "./model.ts";

/** The model, with its logits for the next token. */
export interface Transformer extends Model<TokenBatch> {
  /** A row of logits over the vocabulary for the token after each token of a single sequence. */
  logits(tokens: ArrayLike<number>): ParameterArray;
}

/**
 * Embeddings of token and position; blocks x + attention(norm(x)), x + perceptron(norm(x)); a last norm; a linear layer to
 * logits. Linear layers are [outputs, inputs] as PyTorch's, the activation is GELU by tanh, a sample is a predicted token.
 * Weights are drawn normally with a deviation of 0.02, those that close a residual with 0.02 / √(2 · blocks).
 *
 * @throws InvalidArgumentError for an invalid shape; by `loss`, `backward` and `logits`, for tokens that do not fit.
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
      assertList(tokens, "an array of tokens");
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

// The parts of every transformer here, whole or divided: its shape, its parameters, its batches.

/** Extents of a transformer. */
export interface TransformerShape {
  /** Number of different tokens. */
  readonly vocabulary: number;
  /** Longest sequence that it reads. */
  readonly context: number;
  readonly width: number;
  /** Divides the width. */
  readonly heads: number;
  /** At most 16,384. */
  readonly blocks: number;
  /** Width inside a block's perceptron; 4 times the width when left out. */
  readonly hidden?: number | undefined;
}

/** Sequences of tokens, all of one length of at least 2: each token but the last predicts the next. */
export interface TokenBatch {
  /** One sequence after the other. */
  readonly tokens: ArrayLike<number>;
  readonly sequences: number;
}

/** The parameters, in the order of use. */
export function declare(options: TransformerShape & ModelOptions): Initial {
  const { vocabulary, context, width, blocks, hidden = 4 * width } = options;
  const initial = new Initial(options);
  const dense = (name: string, outputs: number, inputs: number, deviation: number): void => {
    initial.normal(`${name}.weight`, [outputs, inputs], deviation);
    initial.fill(`${name}.bias`, [outputs], 0);
  };
  const norm = (name: string): void => {
    initial.fill(`${name}.weight`, [width], 1);
    initial.fill(`${name}.bias`, [width], 0);
  };
  const closing = 0.02 / Math.sqrt(2 * blocks);
  initial.normal("token.weight", [vocabulary, width], 0.02);
  initial.normal("position.weight", [context, width], 0.02);
  for (let block = 0; block < blocks; block++) {
    const name = `block${block}`;
    norm(`${name}.norm1`);
    for (const each of ["query", "key", "value"]) {
      dense(`${name}.attention.${each}`, width, width, 0.02);
    }
    dense(`${name}.attention.output`, width, width, closing);
    norm(`${name}.norm2`);
    dense(`${name}.mlp.up`, hidden, width, 0.02);
    dense(`${name}.mlp.down`, width, hidden, closing);
  }
  norm("norm");
  dense("head", vocabulary, width, 0.02);
  return initial;
}

/** Most blocks: each has tens of kilobytes beside its values. */
const maxBlocks = 2 ** 14;

const kinds: OptionKinds<TransformerShape & ModelOptions> = {
  ...{ vocabulary: true, context: true, width: true, heads: true, hidden: true },
  blocks: integer(1, maxBlocks),
  ...modelKinds,
};

/** Refuses invalid extents, heads that do not divide the width, and unknown options. */
export function assertShape(shape: TransformerShape & ModelOptions): void {
  assertOptions("transformer", shape, kinds);
  const { vocabulary, context, width, heads, blocks, hidden = width } = shape;
  for (const [field, value] of Object.entries({
    vocabulary,
    context,
    width,
    heads,
    blocks,
    hidden,
  })) {
    assertCount("transformer", field, value, 1);
  }
  if (width % heads !== 0) {
    throw invalid(
      "transformer",
      "heads",
      `${heads} for a width of ${width}`,
      "a divisor of the width",
    );
  }
}

function assertList(tokens: ArrayLike<number>, needed: string): void {
  if (typeof tokens === "object" && typeof tokens?.length === "number") return;
  throw invalid("transformer", "tokens", textOf(tokens), needed);
}

/** Refuses tokens outside the vocabulary, and sequences that are empty or longer than the context. */
function assertTokens(
  { vocabulary, context }: TransformerShape,
  tokens: ArrayLike<number>,
  length: number,
): void {
  if (!Number.isInteger(length) || length < 1 || length > context) {
    const needed = `1 to ${context}, which is the context`;
    throw invalid("transformer", "tokens", `sequences of ${length} to read`, needed);
  }
  for (let at = 0; at < tokens.length; at++) {
    const token = tokens[at] as number;
    if (Number.isInteger(token) && token >= 0 && token < vocabulary) continue;
    const needed = `a token from 0 to ${vocabulary - 1}`;
    throw invalid("transformer", `tokens[${at}]`, textOf(token), needed);
  }
}

/** Divides every sequence into input tokens and predicted tokens. */
export function shifted(
  shape: TransformerShape,
  batch: TokenBatch,
): { inputs: Int32Array; targets: Int32Array; extent: Extent } {
  const { tokens, sequences } = batch ?? {};
  assertCount("transformer", "sequences", sequences, 1);
  assertList(tokens, "an array of tokens: a batch is { tokens, sequences }");
  const length = tokens.length / sequences - 1;
  assertTokens(shape, tokens, length);
  const inputs = new Int32Array(sequences * length);
  const targets = new Int32Array(sequences * length);
  for (let row = 0; row < inputs.length; row++) {
    const at = row + Math.floor(row / length);
    inputs[row] = tokens[at] as number;
    targets[row] = tokens[at + 1] as number;
  }
  return { inputs, targets, extent: { sequences, length } };
}
