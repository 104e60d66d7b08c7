/** The transformer of `transformer`, its blocks divided over the ranks of a communicator. */
import type { Communicator } from "../../api/index.ts";
import type { MicroBatch } from "../data-parallel/backward.ts";
import { copyFromFirst } from "../host-calls.ts";
import { gelu } from "../layers/activation.ts";
import { selfAttention } from "../layers/attention.ts";
import { embed } from "../layers/embedding.ts";
import { type Layer, sequence, type TakeGradient, zerosLike } from "../layers/layer.ts";
import { layerNorm } from "../layers/layer-norm.ts";
import { linear } from "../layers/linear.ts";
import { crossEntropy } from "../losses/cross-entropy.ts";
import { ParameterSet } from "../parameter-set.ts";
import {
  replicated,
  type ShardedLayer,
  sharded,
  shardedResidual,
  shardedSequence,
} from "../tensor/sharded.ts";
import { partOf, splitTensor } from "../tensor/split.ts";
import { type ModelOptions, weightsOf } from "./model.ts";
import {
  assertShape,
  declare,
  shifted,
  type TokenBatch,
  type TransformerShape,
} from "./transformer-parts.ts";

/** One rank's part of a transformer. */
export interface ShardedTransformer {
  /** This rank's part of the divided parameters, and all of the others. */
  readonly parameters: ParameterSet;
  /** The axis along which a parameter is divided; `undefined` for one that every rank has whole. */
  axisOf(name: string): number | undefined;
  /**
   * Gives the gradients of whole parameters the first rank's bits on all ranks. Needed between `DataParallel.step` and the
   * optimizer where parts are uneven: then the ranks' buckets differ, so sums over data parallel ranks round differently,
   * and whole parameters would drift apart. Costs a broadcast of these gradients.
   */
  alignGradients(): Promise<void>;
  /** As `Model.backward`, by all ranks together with the same batch. */
  backward(batch: TokenBatch, take: TakeGradient): Promise<MicroBatch>;
}

/**
 * Attention is divided by heads and the perceptron by hidden units, the first ranks having one more where they do not come
 * out even; embeddings, norms and the head are on every rank. Initial values are those of `transformer`, cut.
 *
 * - **Cost** of a backward: two all-reduces forward and two backward for every block, of sequences · length · width elements.
 *
 * @throws InvalidArgumentError as `transformer`.
 */
export function shardedTransformer(
  comm: Communicator,
  options: TransformerShape & ModelOptions,
): ShardedTransformer {
  assertShape(options);
  const { width, heads, vocabulary } = options;
  const { rank, size } = comm;
  const headWidth = width / heads;
  const own = declare(options).declarations.map((declaration) => {
    const { name, shape, values = [] } = declaration;
    const axis = axisOf(name);
    if (axis === undefined) return declaration;
    const whole = { shape, data: Float64Array.from(values) };
    const unit = name.includes(".attention.") ? headWidth : 1;
    const part = splitTensor(whole, axis, { rank, size, unit });
    return { ...declaration, shape: part.shape, values: part.data };
  });
  const parameters = new ParameterSet(own);
  const stack = dividedDecoder(comm, options, parameters);
  const get = weightsOf(parameters);
  const table = { token: get("token.weight"), position: get("position.weight"), width };
  return {
    parameters,
    axisOf,
    async alignGradients() {
      const whole = [...parameters].filter(({ name }) => axisOf(name) === undefined);
      await copyFromFirst(
        comm,
        whole.map(({ gradient }) => gradient),
      );
    },
    async backward(batch, take) {
      const { inputs, targets, extent } = shifted(options, batch);
      const embedded = embed(table, inputs, extent);
      const pass = await stack.forward(embedded.output, extent);
      const gradient = zerosLike(pass.output, pass.output.length);
      const { value, weight } = crossEntropy({
        logits: pass.output,
        targets,
        classes: vocabulary,
        gradient,
        reduction: "sum",
      });
      embedded.backward(await pass.backward(gradient, take), take);
      return { loss: value, samples: targets.length, weight };
    },
  };
}

function axisOf(name: string): number | undefined {
  if (/\.(query|key|value|up)\.(weight|bias)$/.test(name)) return 0;
  if (/\.(output|down)\.weight$/.test(name)) return 1;
  return undefined;
}

function dividedDecoder(
  comm: Communicator,
  shape: TransformerShape,
  parameters: ParameterSet,
): ShardedLayer {
  const { vocabulary, width, heads, blocks, hidden = 4 * width } = shape;
  const { rank, size } = comm;
  const lengthOf = ({ begin, end }: { begin: number; end: number }): number => end - begin;
  const ownHeads = lengthOf(partOf(heads, { rank, size }));
  const ownHidden = lengthOf(partOf(hidden, { rank, size }));
  const headWidth = width / heads;
  const inner = ownHeads * headWidth;
  const get = weightsOf(parameters);
  const norm = (name: string): ShardedLayer =>
    replicated(layerNorm({ weight: get(`${name}.weight`), bias: get(`${name}.bias`) }));
  /** Without its bias where that is added after the sum. */
  const dense = (name: string, inputs: number, outputs: number, biased = true): Layer =>
    linear({
      weight: get(`${name}.weight`),
      bias: biased ? get(`${name}.bias`) : undefined,
      inputs,
      outputs,
    });
  const layers = Array.from({ length: blocks }, (_, at) => {
    const name = `block${at}`;
    const attention = selfAttention({
      query: dense(`${name}.attention.query`, width, inner),
      key: dense(`${name}.attention.key`, width, inner),
      value: dense(`${name}.attention.value`, width, inner),
      output: dense(`${name}.attention.output`, inner, width, false),
      heads: ownHeads,
      headWidth,
    });
    const perceptron = sequence([
      dense(`${name}.mlp.up`, width, ownHidden),
      gelu(),
      dense(`${name}.mlp.down`, ownHidden, width, false),
    ]);
    const outputBias = get(`${name}.attention.output.bias`);
    const downBias = get(`${name}.mlp.down.bias`);
    return shardedSequence([
      shardedResidual(
        shardedSequence([norm(`${name}.norm1`), sharded(comm, attention, outputBias)]),
      ),
      shardedResidual(
        shardedSequence([norm(`${name}.norm2`), sharded(comm, perceptron, downBias)]),
      ),
    ]);
  });
  const head = replicated(dense("head", width, vocabulary));
  return shardedSequence([...layers, norm("norm"), head]);
}
