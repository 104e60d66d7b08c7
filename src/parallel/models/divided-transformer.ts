/** The transformer divided over ranks: its blocks over a tensor axis, its layers over the stages of a pipeline. */
import type { Communicator } from "../../api/index.ts";
import { assertCommunicator } from "../argument-checks.ts";
import { type MicroBatch, noVisits, type VisitLayer } from "../data-parallel/backward.ts";
import type { Divided } from "../divided.ts";
import { gelu } from "../layers/activation.ts";
import { selfAttention } from "../layers/attention.ts";
import { embed } from "../layers/embedding.ts";
import {
  type Layer,
  sequence,
  type TakeGradient,
  type Weights,
  zerosLike,
} from "../layers/layer.ts";
import { layerNorm } from "../layers/layer-norm.ts";
import { linear } from "../layers/linear.ts";
import { crossEntropy } from "../losses.ts";
import { type ParameterArray, type ParameterDeclaration, ParameterSet } from "../parameter-set.ts";
import type { Stage } from "../pipeline/stage.ts";
import {
  replicated,
  type ShardedLayer,
  sharded,
  shardedResidual,
  shardedSequence,
  visitedSequence,
} from "../tensor/sharded.ts";
import { partOf, splitTensor } from "../tensor/split.ts";
import { type ModelOptions, type StagePlace, weightsOf } from "./model.ts";
import {
  assertShape,
  declare,
  shifted,
  type TokenBatch,
  type TransformerShape,
} from "./transformer.ts";

/** One rank's part of a transformer. */
export interface ShardedTransformer {
  /** This rank's part of the divided parameters, and all of the others. */
  readonly parameters: ParameterSet;
  /** The axis along which a parameter is divided; `undefined` for one that every rank has whole. */
  axisOf(name: string): number | undefined;
  /** For the trainers of data parallel lines: the ranks of the model, and the parameters that all of them have. */
  readonly divided: Divided;
  /** The layer of a parameter, as `backward` visits them: `embedding`, `block0`, `block1`, …, `closing`. */
  layerOf(name: string): string;
  /**
   * As `Model.backward`, by all ranks together with the same batch. `visit` is called with every layer before its use, forward
   * and back; `ShardedParallel` at stage 3 needs it.
   *
   * @example
   * await trainer.step([batch], (each, ready, visit) => model.backward(each, ready, visit));
   */
  backward(batch: TokenBatch, take: TakeGradient, visit?: VisitLayer): Promise<MicroBatch>;
}

/**
 * Attention is divided by heads and the perceptron by hidden units; in an uneven division the first ranks have one more.
 * Embeddings, norms and the head are on every rank. Initial values are those of `transformer`, cut.
 *
 * - **Cost** of a backward: two all-reduces forward and two backward for every block, of sequences · length · width elements.
 *
 * @throws InvalidArgumentError as `transformer`.
 */
export function shardedTransformer(
  comm: Communicator,
  options: TransformerShape & ModelOptions,
): ShardedTransformer {
  assertCommunicator("shardedTransformer", comm);
  const { parameters, layerOf, copies, forward } = transformerStage(
    { rank: 0, size: 1 },
    options,
    comm,
  );
  return {
    parameters,
    axisOf,
    divided: { comm, copies },
    layerOf,
    async backward(batch, take, visit = noVisits) {
      const { totals, backward } = await forward(batch, undefined, visit);
      await backward(undefined, take);
      return totals as MicroBatch;
    },
  };
}

// The blocks of a transformer, whole or divided over the ranks of a communicator.

/** The ranks that the blocks are divided over; left out, they are whole. */
export interface DividedParts {
  readonly tensor: Communicator | undefined;
  readonly shape: TransformerShape;
  readonly get: (name: string) => Weights;
}

/** The axis along which a parameter is divided. */
function axisOf(name: string): number | undefined {
  if (/\.(query|key|value|up)\.(weight|bias)$/.test(name)) return 0;
  if (/\.(output|down)\.weight$/.test(name)) return 1;
  return undefined;
}

/** The parameters of the whole model in the order of use; a divided one is cut to this rank's part. */
function dividedDeclarations(
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
function dividedBlock(parts: DividedParts, at: number): ShardedLayer {
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
function closing(parts: DividedParts): ShardedLayer {
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

// The transformer of `transformer` as stages of a pipeline, each whole or divided over ranks.

/** One stage of a transformer. */
export interface TransformerStage extends Stage<TokenBatch> {
  /** The stage's own: where it is divided, this rank's part of the divided parameters, and all of the others. */
  readonly parameters: ParameterSet;
  /** The layer of a parameter, as the stage visits them: `embedding`, `block0`, `block1`, …, `closing`. */
  layerOf(name: string): string;
  /** The axis along which a parameter is divided; `undefined` for one that every rank of the stage has whole. */
  axisOf(name: string): number | undefined;
  /** Number of ranks of the stage that have a parameter, for `Divided.copies`; 1 where the stage is not divided. */
  copies(name: string): number;
}

/**
 * Stage `rank` of `size`, of whole blocks; in an uneven division the first stages have one more. The first stage also has the
 * embeddings, the last the closing norm, the head and the loss. With `tensor` its ranks divide the stage among them like
 * `shardedTransformer`, and all of them make its calls. Initial values are those of `transformer`.
 *
 * @throws InvalidArgumentError as `transformer`.
 * @example
 * const stage = transformerStage(mesh.comm("pipeline"), shape, mesh.comm("tensor"));
 * const pipeline = await PipelineParallel.create(mesh.comm("pipeline"), stage);
 */
export function transformerStage(
  place: StagePlace,
  options: TransformerShape & ModelOptions,
  tensor?: Communicator,
): TransformerStage {
  assertShape(options);
  const own = partOf(options.blocks, place);
  const { rank, size } = place;
  const { vocabulary, width } = options;
  const [isFirst, isLast] = [rank === 0, rank === size - 1];
  const parameters = new ParameterSet(
    dividedDeclarations(tensor, options).filter(({ name }) => {
      const block = /^block(\d+)\./.exec(name)?.[1];
      if (block !== undefined) return Number(block) >= own.begin && Number(block) < own.end;
      return /^(token|position)\./.test(name) ? isFirst : isLast;
    }),
  );
  const parts = { tensor, shape: options, get: weightsOf(parameters) };
  const layers = new Map<string, ShardedLayer>();
  for (let at = own.begin; at < own.end; at++) layers.set(`block${at}`, dividedBlock(parts, at));
  if (isLast) layers.set("closing", closing(parts));
  return {
    parameters,
    layerOf,
    axisOf,
    copies: (name) => (axisOf(name) === undefined ? (tensor?.size ?? 1) : 1),
    inputLength: (batch) => shifted(options, batch).inputs.length * width,
    async forward(batch, input, visit) {
      const { inputs, targets, extent } = shifted(options, batch);
      if (isFirst) await visit("embedding");
      const embedded = isFirst ? embed(tableOf(parameters, width), inputs, extent) : undefined;
      const stack = visitedSequence(layers, visit);
      const pass = await stack.forward(embedded?.output ?? (input as ParameterArray), extent);
      const { output } = pass;
      const gradient = isLast ? zerosLike(output, output.length) : undefined;
      const loss =
        gradient &&
        crossEntropy({ logits: output, targets, classes: vocabulary, gradient, reduction: "sum" });
      return {
        output,
        totals: loss && { loss: loss.value, samples: targets.length, weight: loss.weight },
        async backward(above, take) {
          const below = await pass.backward(gradient ?? (above as ParameterArray), take);
          if (embedded === undefined) return below;
          await visit("embedding");
          embedded.backward(below, take);
          return below;
        },
      };
    },
  };
}

function layerOf(name: string): string {
  if (/^(token|position)\./.test(name)) return "embedding";
  return /^block\d+/.exec(name)?.[0] ?? "closing";
}

function tableOf(parameters: ParameterSet, width: number) {
  return {
    token: parameters.get("token.weight"),
    position: parameters.get("position.weight"),
    width,
  };
}
