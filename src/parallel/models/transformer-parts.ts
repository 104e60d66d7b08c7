/** The parts of every transformer here, whole or divided: its shape, its parameters, its batches. */
import { assertOptions, invalid, type OptionKinds, textOf } from "../../api/option-kinds.ts";
import type { Extent } from "../layers/layer.ts";
import { assertCount, Initial, type ModelOptions } from "./model.ts";

/** Extents of a transformer. */
export interface TransformerShape {
  /** Number of different tokens. */
  readonly vocabulary: number;
  /** Longest sequence that it reads. */
  readonly context: number;
  readonly width: number;
  /** Divides the width. */
  readonly heads: number;
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

const kinds: OptionKinds<TransformerShape & ModelOptions> = {
  ...{ vocabulary: true, context: true, width: true, heads: true, blocks: true, hidden: true },
  ...{ dtype: true, seed: true },
};

/** Refuses extents that are none, heads that do not divide the width, and options of other names. */
export function assertShape(shape: TransformerShape & ModelOptions): void {
  assertOptions("transformer", shape, kinds);
  const { vocabulary, context, width, heads, blocks, hidden = 4 * width } = shape;
  for (const [field, value] of Object.entries({
    vocabulary,
    context,
    width,
    heads,
    blocks,
    hidden,
  })) {
    assertCount("transformer", field, value);
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

/** Refuses tokens outside the vocabulary, and sequences that are empty or longer than the context. */
export function assertTokens(
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
    throw invalid("transformer", `tokens[${at}]`, String(token), needed);
  }
}

/** Divides every sequence into the tokens that are read and those that are predicted. */
export function shifted(
  shape: TransformerShape,
  batch: TokenBatch,
): { inputs: Int32Array; targets: Int32Array; extent: Extent } {
  const { tokens, sequences } = batch ?? {};
  assertCount("transformer", "sequences", sequences);
  if (typeof tokens !== "object" || typeof tokens?.length !== "number") {
    const needed = "an array of tokens: a batch is { tokens, sequences }";
    throw invalid("transformer", "tokens", textOf(tokens), needed);
  }
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
