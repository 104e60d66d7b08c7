/** The end of a step: from the summed gradients and the reports of all ranks to the clipped mean, the same on every rank. */
import { ranksText } from "../../api/error-text.ts";
import { type Communicator, InvalidArgumentError, type Row } from "../../api/index.ts";
import { invalid } from "../../api/option-kinds.ts";
import {
  combineNorms,
  type Divided,
  groupByCopies,
  type NamedGradient,
  normOverRanks,
} from "../divided.ts";
import { NonFiniteGradientError, UnusedParametersError } from "../errors.ts";
import { gatherNumbers, gatherTexts } from "../host-collectives.ts";
import type { ParameterSet } from "../parameter-set.ts";
import type { Settings } from "./options.ts";

/** The result of a step; everything but `stepMs` is the same on all ranks. */
export interface StepStats {
  /** Number of the step, from 1. */
  readonly step: number;
  /** Mean loss over the samples of all ranks. */
  readonly loss: number;
  /** Norm of the mean gradient, before clipping; with `divided`, of the whole model. */
  readonly gradientNorm: number;
  /** The factor of clipping; 1 where it changed nothing. */
  readonly clip: number;
  /** Samples of all ranks. */
  readonly samples: number;
  /** Weight of all samples, which the mean divides by. */
  readonly weight: number;
  /** Parameters without a gradient on any rank, nor one of an earlier step that `topK` sent in this one. */
  readonly unused: readonly string[];
  /** Time that this rank spent in the step, in milliseconds. */
  readonly stepMs: number;
}

/** The inputs of the end of a step. */
export interface SummedGradients {
  /** The method, for errors. */
  readonly action: string;
  readonly parameters: ParameterSet;
  /** The sums that this rank holds: every gradient whole, or its ranges of them. */
  readonly gradients: readonly NamedGradient[];
  /** The ranks among which gradients are cut into ranges. */
  readonly shardedOver?: Communicator | undefined;
  readonly settings: Pick<
    Settings,
    "unused" | "nonFinite" | "maxGradientNorm" | "wire" | "divided"
  >;
}

/** True for an error that all ranks detect together, so that it leaves them in step. */
export function leavesInStep(error: unknown): boolean {
  return (
    error instanceof UnusedParametersError ||
    error instanceof NonFiniteGradientError ||
    error instanceof InvalidArgumentError
  );
}

/**
 * Turns the sums into the mean gradient, clips it, and returns the step's statistics.
 *
 * @throws InvalidArgumentError, UnusedParametersError, NonFiniteGradientError: on all ranks, because all have the same facts.
 */
export async function finishStep(
  summed: SummedGradients,
  ranks: readonly RankStep[],
): Promise<Omit<StepStats, "step" | "stepMs">> {
  const { action, gradients, settings } = summed;
  const refusal = stepError(summed, ranks);
  await throwWithDivided(summed, refusal);
  const total = (field: "loss" | "samples" | "weight"): number => totalOf(ranks, field);
  const weight = total("weight");
  divideGradients(gradients, weight);
  const norm = await globalNorm(summed);
  if (settings.nonFinite === "refuse" && !Number.isFinite(norm)) {
    throw nonFiniteError(action, await allNonFinite(summed), settings);
  }
  const clip = clipGradients(gradients, norm, settings.maxGradientNorm);
  const unused = unusedNames(summed, ranks);
  const loss = total("loss") / weight;
  return { loss, gradientNorm: norm, clip, samples: total("samples"), weight, unused };
}

/** The parameters whose sum is that of no gradient. With `topK` it may have the unsent rest of an earlier one. */
function unusedNames(
  { parameters, gradients }: SummedGradients,
  ranks: readonly RankStep[],
): string[] {
  const without = parameters.names.filter((_, at) => ranks.every(({ used }) => !used[at]));
  if (without.length === 0) return without;
  const sums = gradients.filter(({ gradient }) => gradient.some((each) => each !== 0));
  const owed = new Set(sums.map(({ name }) => name));
  return without.filter((name) => !owed.has(name));
}

function totalOf(ranks: readonly RankStep[], field: "loss" | "samples" | "weight"): number {
  return ranks.reduce((sum, each) => sum + each[field], 0);
}

function stepError(
  { action, parameters, settings }: SummedGradients,
  ranks: readonly RankStep[],
): UnusedParametersError | InvalidArgumentError | undefined {
  const unused = settings.unused === "refuse" ? unusedError(action, parameters, ranks) : undefined;
  const weight = totalOf(ranks, "weight");
  if (unused !== undefined || (weight > 0 && weight < Number.POSITIVE_INFINITY)) return unused;
  if (weight > 0) return invalid(action, "weight", "a sum of Infinity", "one that is finite");
  return new InvalidArgumentError(
    { headline: `${action}: no rank had a sample with a weight, needs at least one` },
    { field: "samples" },
  );
}

/** Where the model is divided, a refusal is sent to its other ranks, so that none continues alone. */
async function throwWithDivided(
  { action, settings: { divided } }: SummedGradients,
  refusal: Error | undefined,
): Promise<void> {
  if (divided === undefined) {
    if (refusal !== undefined) throw refusal;
    return;
  }
  const refusals = await gatherNumbers(divided.comm, [refusal === undefined ? 0 : 1]);
  if (refusal !== undefined) throw refusal;
  const refusing = refusals.flatMap(([each], rank) => (each === 1 ? [rank] : []));
  if (refusing.length === 0) return;
  throw new InvalidArgumentError(
    {
      headline: `${action}: ${ranksText(refusing)} of the divided model refused the step`,
      hint: "its own error says why; all parts of a model take the same batches",
    },
    { ranks: refusing, field: "divided" },
  );
}

/** The norm of all gradients of the model: over the ranks that cut them, and over those that divide it. */
async function globalNorm({
  gradients,
  shardedOver,
  settings: { divided },
}: SummedGradients): Promise<number> {
  let norm = shareOfNorm(gradients, divided);
  if (shardedOver !== undefined) norm = await normOverRanks(shardedOver, norm);
  if (divided !== undefined) norm = await normOverRanks(divided.comm, norm);
  return norm;
}

/** The names of all ranks' gradients that are not finite. */
async function allNonFinite(summed: SummedGradients): Promise<string[]> {
  let names = nonFinite(summed.gradients);
  for (const comm of [summed.shardedOver, summed.settings.divided?.comm]) {
    if (comm === undefined) continue;
    const texts = await gatherTexts(comm, JSON.stringify(names));
    names = [...new Set(texts.flatMap((text) => JSON.parse(text) as string[]))];
  }
  return names.sort((a, b) => (a < b ? -1 : 1));
}

function unusedError(
  action: string,
  parameters: ParameterSet,
  ranks: readonly RankStep[],
): UnusedParametersError | undefined {
  const missing = [...parameters].flatMap(({ name }, at) => {
    const on = ranks.flatMap(({ samples, used }, rank) => (samples > 0 && !used[at] ? [rank] : []));
    return on.length === 0 ? [] : [{ name, on }];
  });
  if (missing.length === 0) return undefined;
  const table: Row[] = missing.map(({ name, on }) => [name, `on ${ranksText(on)}`]);
  const names = missing.map(({ name }) => name);
  const create = action.replace(".step", ".create");
  return new UnusedParametersError(
    {
      headline: `${action}: ${names.length} ${names.length === 1 ? "parameter" : "parameters"} got no gradient`,
      table: [["parameter", "missing"], ...table],
      hint: `call ready for every parameter, or take zeros: ${create}(…, { unused: "zeros" })`,
    },
    {
      parameters: names,
      ranks: [...new Set(missing.flatMap(({ on }) => on))].sort((a, b) => a - b),
      field: names[0],
    },
  );
}

function nonFiniteError(
  action: string,
  names: readonly string[],
  { wire }: Pick<Settings, "wire">,
): NonFiniteGradientError {
  const all = names.map((each) => `"${each}"`).join(", ");
  // Elements near the end of float64 have a norm beyond it; an infinite norm would clip them to zero.
  const what = names.length === 0 ? "the norm of the mean gradient" : `the mean gradient of ${all}`;
  return new NonFiniteGradientError(
    {
      headline: `${action}: ${what} is not finite`,
      hint:
        wire === "float16"
          ? "the sum may have left the range of float16, ±65504: choose a wireScale below 1, or bfloat16"
          : 'lower the learning rate, look at the samples, or hand it on with nonFinite: "keep"',
    },
    { parameters: names, field: names[0] },
  );
}

// The treatment of a step's summed gradients: divide, measure, refuse or clip. The same on every rank.

/** Divides the summed gradients by the weight of all samples; one rounding each. */
function divideGradients(parameters: Iterable<NamedGradient>, weight: number): void {
  for (const { gradient } of parameters) {
    for (let at = 0; at < gradient.length; at++) gradient[at] = (gradient[at] as number) / weight;
  }
}

/** The Euclidean norm of all gradients together, summed in double precision in the order of names. */
function gradientNorm(parameters: Iterable<NamedGradient>): number {
  const all = [...parameters];
  const plain = Math.sqrt(sumOfSquares(all, 1));
  if (Number.isNaN(plain) || (plain > 1e-150 && plain < 1e150)) return plain;
  // The squares may exceed the range of doubles: measure in units of the largest element.
  let most = 0;
  for (const { gradient } of all) {
    for (const each of gradient) most = Math.max(most, Math.abs(each));
  }
  if (most === 0 || most === Number.POSITIVE_INFINITY) return most;
  return Math.sqrt(sumOfSquares(all, most)) * most;
}

/** This rank's share in the norm of a divided model: parameters of several ranks count once among them. */
function shareOfNorm(parameters: Iterable<NamedGradient>, divided: Divided | undefined): number {
  if (divided === undefined) return gradientNorm(parameters);
  return combineNorms(
    groupByCopies(parameters, divided).map(([copies, of]) => gradientNorm(of) / Math.sqrt(copies)),
  );
}

function sumOfSquares(parameters: readonly NamedGradient[], unit: number): number {
  let sum = 0;
  for (const { gradient } of parameters) {
    for (const each of gradient) sum += (each / unit) * (each / unit);
  }
  return sum;
}

/** The names of parameters with an infinity or a NaN in their gradient. */
function nonFinite(parameters: Iterable<NamedGradient>): string[] {
  return [...parameters]
    .filter(({ gradient }) => !gradient.every((each) => Number.isFinite(each)))
    .map(({ name }) => name);
}

/**
 * Scales all gradients down so that their norm is at most `most`, and returns the factor. It is 1 for a smaller norm, and for
 * one that is not finite, which would make them zero.
 */
function clipGradients(parameters: Iterable<NamedGradient>, norm: number, most: number): number {
  if (!(norm > most) || norm === Number.POSITIVE_INFINITY) return 1;
  const factor = most / norm;
  for (const { gradient } of parameters) {
    for (let at = 0; at < gradient.length; at++) gradient[at] = (gradient[at] as number) * factor;
  }
  return factor;
}

// The messages of ranks at the end of a step: their loss and samples, and the parameters that got no gradient.

/** One rank's part of a step. */
export interface RankStep {
  /** Sum of the losses of its samples. */
  readonly loss: number;
  readonly samples: number;
  /** The divisor of the mean; the samples where they count alike. */
  readonly weight: number;
  /** One flag for each parameter, in the order of names: true if it got a gradient. */
  readonly used: readonly boolean[];
}

/** Every rank's part, by rank. Costs one all-gather of 24 bytes and a bit for every parameter. */
export async function exchangeSteps(comm: Communicator, ownStep: RankStep): Promise<RankStep[]> {
  const parameters = ownStep.used.length;
  const bytes = 24 + Math.ceil(parameters / 8);
  const out = new Uint8Array(bytes);
  const numbers = new DataView(out.buffer);
  numbers.setFloat64(0, ownStep.loss);
  numbers.setFloat64(8, ownStep.samples);
  numbers.setFloat64(16, ownStep.weight);
  for (const [at, used] of ownStep.used.entries()) {
    const byte = 24 + (at >> 3);
    if (used) out[byte] = (out[byte] as number) | (1 << (at & 7));
  }
  const send = comm.alloc("uint8", bytes).copyFrom(out);
  const recv = comm.alloc("uint8", bytes * comm.size);
  try {
    await comm.allGather({ send, recv });
    const all = await recv.toHost();
    return Array.from({ length: comm.size }, (_, rank) =>
      decoded(all.subarray(rank * bytes, (rank + 1) * bytes), parameters),
    );
  } finally {
    send.dispose();
    recv.dispose();
  }
}

function decoded(bytes: Uint8Array, parameters: number): RankStep {
  const numbers = new DataView(bytes.buffer, bytes.byteOffset);
  return {
    loss: numbers.getFloat64(0),
    samples: numbers.getFloat64(8),
    weight: numbers.getFloat64(16),
    used: Array.from(
      { length: parameters },
      (_, at) => (((bytes[24 + (at >> 3)] as number) >> (at & 7)) & 1) === 1,
    ),
  };
}
