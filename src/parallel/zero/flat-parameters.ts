/**
 * The shards of parameters, and their memory on one rank: each rank holds an equal range of every layer.
 *
 * The parameters of a layer are concatenated in flat parameters, one for each dtype. A divided model has one for each number of
 * holding ranks as well. A flat parameter is padded to a multiple of the ranks; rank r holds the r-th part of it, across the
 * bounds of parameters. Padding is zeros, never visible outside and never saved.
 */

import { bytesOf, type CommOp, type Communicator, type DeviceBuffer } from "../../api/index.ts";
import { releaseAfter } from "../call-guard.ts";
import { type Divided, groupByCopies } from "../divided.ts";
import {
  type Parameter,
  type ParameterArray,
  type ParameterDType,
  type ParameterSet,
  zerosOf,
} from "../parameter-set.ts";

/** The place of a parameter in its flat parameter. */
export interface FlatPosition {
  readonly parameter: Parameter;
  /** First element in the flat parameter. */
  readonly begin: number;
}

/** Parameters that are cut together. */
export interface FlatParameter {
  readonly dtype: ParameterDType;
  readonly parameters: readonly FlatPosition[];
  /** Elements of all its parameters; at least 1. */
  readonly length: number;
  /** Elements that each rank holds, padding included. */
  readonly shardLength: number;
}

/** Flat parameters that are gathered, used and freed together. */
export interface LayerPlan {
  readonly name: string;
  readonly parameters: readonly Parameter[];
  readonly flatParameters: readonly FlatParameter[];
}

/** A range of a parameter that a rank holds. */
export interface ShardRange {
  readonly parameter: Parameter;
  /** First element in the parameter. */
  readonly begin: number;
  /** Exclusive. */
  readonly end: number;
  /** First element in the rank's share. */
  readonly at: number;
}

/** The layers of a model, for parameters in their order of use; layers are in the order of their first parameters. */
export function layersOf(
  inUse: readonly Parameter[],
  layerOf: (name: string) => string,
  divided: Divided | undefined,
  size: number,
): LayerPlan[] {
  const layers = new Map<string, Parameter[]>();
  for (const parameter of inUse) {
    const name = layerOf(parameter.name);
    layers.set(name, [...(layers.get(name) ?? []), parameter]);
  }
  return [...layers].map(([name, parameters]) => {
    const alike = (["float32", "float64"] as const).flatMap((dtype) =>
      groupByCopies(
        parameters.filter((each) => each.dtype === dtype),
        divided,
      ).map(([, of]) => flatParameterOf(dtype, of, size)),
    );
    return { name, parameters, flatParameters: alike.filter(({ length }) => length > 0) };
  });
}

function flatParameterOf(
  dtype: ParameterDType,
  parameters: readonly Parameter[],
  size: number,
): FlatParameter {
  let length = 0;
  const placed = parameters.map((parameter) => {
    const begin = length;
    length += parameter.length;
    return { parameter, begin };
  });
  return { dtype, parameters: placed, length, shardLength: Math.ceil(length / size) };
}

/**
 * The ranges of a flat parameter's parameters that a rank holds. Empty ones are included, so that every rank lists every
 * parameter.
 */
function shardRangesOf({ parameters, shardLength }: FlatParameter, rank: number): ShardRange[] {
  const first = rank * shardLength;
  return parameters.map(({ parameter, begin }) => {
    const inside = (at: number): number => Math.min(Math.max(at - begin, 0), parameter.length);
    const [from, end] = [inside(first), inside(first + shardLength)];
    return { parameter, begin: from, end, at: Math.min(Math.max(begin - first, 0), shardLength) };
  });
}

// One flat parameter on one rank: its share of values and gradients, and the whole of either while needed.

/** The sharded parts: 1 optimizer state, 2 gradients as well, 3 parameter values as well. */
export type ShardingStage = 1 | 2 | 3;

/** The common parts of one trainer's flat parameters. */
export interface ShardingContext {
  readonly comm: Communicator;
  readonly set: ParameterSet;
  readonly stage: ShardingStage;
  readonly meter: MemoryMeter;
}

/** A call under way, and its buffer. */
interface Transfer {
  readonly op: CommOp;
  readonly buffer: DeviceBuffer<ParameterDType>;
}

/** The memory of a flat parameter; the trainer decides when it is gathered and freed. */
export class FlatParameterHandle {
  readonly flat: FlatParameter;
  readonly ranges: readonly ShardRange[];
  /** This rank's values; padding behind them. */
  readonly shard: ParameterArray;
  /** This rank's range of the summed gradients. */
  readonly gradientShard: ParameterArray;
  readonly #context: ShardingContext;
  #fullValues: ParameterArray | undefined;
  #fullGradient: ParameterArray | undefined;
  #gather: Transfer | undefined;
  #reduction: Transfer | undefined;

  /** Takes the values over from the set, which loses them. */
  constructor(flat: FlatParameter, context: ShardingContext) {
    const { comm, stage } = context;
    this.flat = flat;
    this.ranges = shardRangesOf(flat, comm.rank);
    this.#context = context;
    const own = comm.rank * flat.shardLength;
    const whole = this.#allocate("values", flat.shardLength * comm.size);
    for (const { parameter, begin } of flat.parameters) whole.set(parameter.value, begin);
    if (stage === 3) {
      this.shard = this.#allocate("values", flat.shardLength);
      this.shard.set(whole.subarray(own, own + flat.shardLength));
      this.#free("values", whole);
    } else {
      this.#fullValues = whole;
      this.shard = whole.subarray(own, own + flat.shardLength);
    }
    if (stage === 1) {
      this.#fullGradient = this.#allocate("gradients", whole.length);
      this.gradientShard = this.#fullGradient.subarray(own, own + flat.shardLength);
    } else {
      this.gradientShard = this.#allocate("gradients", flat.shardLength);
    }
    this.#bindValues(this.#fullValues);
  }

  /** The calls under way. */
  get posted(): CommOp[] {
    return [this.#gather, this.#reduction].flatMap((transfer) => transfer?.op ?? []);
  }

  /** Posts the gathering of all ranks' values. */
  startGather(): void {
    const { comm } = this.#context;
    const buffer = this.#buffer();
    const send = this.#ownPart(buffer).copyFrom(this.shard);
    this.#gather = { op: comm.allGather({ send, recv: buffer }), buffer };
    assertPosted(this.#gather.op);
  }

  /** Takes the gathered values; from then on they can be read. */
  async finishGather(): Promise<void> {
    const { op, buffer } = this.#gather as Transfer;
    await op;
    this.#fullValues ??= this.#allocate("values", buffer.length);
    await buffer.copyTo(this.#fullValues);
    this.#gather = undefined;
    this.#dispose(buffer);
    this.#bindValues(this.#fullValues);
  }

  /** Makes the values unreadable; at stage 3 their memory is freed. */
  release(): void {
    this.#bindValues(undefined);
    if (this.#context.stage < 3 || this.#fullValues === undefined) return;
    this.#free("values", this.#fullValues);
    this.#fullValues = undefined;
  }

  /** Drops the gradients of the last step. */
  clearGradients(): void {
    this.gradientShard.fill(0);
    this.#fullGradient?.fill(0);
  }

  /** Adds to a parameter's gradient on this rank. */
  addGradient(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    const placed = this.flat.parameters.find((each) => each.parameter === parameter);
    if (placed === undefined) return;
    const all = this.#allocatedGradient();
    for (let at = 0, to = placed.begin; at < gradient.length; at++, to++) {
      all[to] = (all[to] as number) + scale * (gradient[at] as number);
    }
  }

  /** Posts the reduce-scatter of all ranks' gradients. */
  startReduce(): void {
    const { comm, stage } = this.#context;
    const gradient = this.#allocatedGradient();
    const buffer = this.#buffer().copyFrom(gradient);
    if (stage > 1) {
      this.#free("gradients", gradient);
      this.#fullGradient = undefined;
    }
    const recv = this.#ownPart(buffer);
    this.#reduction = { op: comm.reduceScatter({ send: buffer, recv, op: "sum" }), buffer };
    assertPosted(this.#reduction.op);
  }

  /** Adds this rank's range of the sum to its sum over earlier micro-batches. */
  async finishReduce(): Promise<void> {
    const { op, buffer } = this.#reduction as Transfer;
    await op;
    const sum = await this.#ownPart(buffer).toHost();
    this.#reduction = undefined;
    this.#dispose(buffer);
    const ownRange = this.gradientShard;
    // At stage 1 micro-batches were added up before the call, and the range still holds this rank's own part.
    if (this.#context.stage === 1) ownRange.set(sum);
    else
      for (let at = 0; at < ownRange.length; at++)
        ownRange[at] = (ownRange[at] as number) + (sum[at] as number);
  }

  /** Frees the buffers of a failed step once their calls are done. */
  dispose(): void {
    for (const transfer of [this.#gather, this.#reduction]) {
      if (transfer !== undefined) releaseAfter(transfer.op, () => this.#dispose(transfer.buffer));
    }
    this.#gather = undefined;
    this.#reduction = undefined;
  }

  #allocatedGradient(): ParameterArray {
    this.#fullGradient ??= this.#allocate(
      "gradients",
      this.flat.shardLength * this.#context.comm.size,
    );
    return this.#fullGradient;
  }

  #bindValues(whole: ParameterArray | undefined): void {
    for (const { parameter, begin } of this.flat.parameters) {
      const value = whole?.subarray(begin, begin + parameter.length);
      this.#context.set.place(parameter.name, value);
    }
  }

  #buffer(): DeviceBuffer<ParameterDType> {
    const { comm, meter } = this.#context;
    const { dtype, shardLength } = this.flat;
    const buffer = comm.alloc<ParameterDType>(dtype, shardLength * comm.size);
    meter.add("exchange", buffer.byteLength);
    return buffer;
  }

  #ownPart(buffer: DeviceBuffer<ParameterDType>): DeviceBuffer<ParameterDType> {
    const { rank } = this.#context.comm;
    const { shardLength } = this.flat;
    return buffer.subarray(rank * shardLength, (rank + 1) * shardLength);
  }

  #dispose(buffer: DeviceBuffer<ParameterDType>): void {
    this.#context.meter.add("exchange", -buffer.byteLength);
    buffer.dispose();
  }

  #allocate(use: "values" | "gradients", length: number): ParameterArray {
    const { dtype } = this.flat;
    this.#context.meter.add(use, length * bytesOf(dtype));
    return zerosOf(dtype, length);
  }

  #free(use: "values" | "gradients", array: ParameterArray): void {
    this.#context.meter.add(use, -array.byteLength);
  }
}

/** After a call that could not be made no other may follow: it would match the others' call of this flat parameter. */
function assertPosted(op: CommOp): void {
  if (op.status === "failed") throw op.error;
}

// One layer on one rank: its values are gathered, used and freed together.

/** The memory of a layer. */
export class LayerShards {
  readonly name: string;
  readonly parameters: ReadonlySet<Parameter>;
  readonly flatParameters: readonly FlatParameterHandle[];
  /** The state of the values: readable, being gathered, or neither. */
  #values: "here" | "coming" | "away";

  constructor(plan: LayerPlan, context: ShardingContext) {
    this.name = plan.name;
    this.parameters = new Set(plan.parameters);
    this.flatParameters = plan.flatParameters.map((flat) => new FlatParameterHandle(flat, context));
    this.#values = context.stage === 3 ? "away" : "here";
  }

  /** True if the values can be read. */
  get isReadable(): boolean {
    return this.#values === "here";
  }

  /** Posts the gathering of the values, unless they are readable or already being gathered. */
  startGather(): void {
    if (this.#values !== "away") return;
    this.#values = "coming";
    for (const flat of this.flatParameters) flat.startGather();
  }

  /** Resolves when the values can be read. */
  async finishGather(): Promise<void> {
    this.startGather();
    if (this.#values === "here") return;
    for (const flat of this.flatParameters) await flat.finishGather();
    this.#values = "here";
  }

  /** Makes the values unreadable. */
  release(): void {
    if (this.#values !== "here") return;
    for (const flat of this.flatParameters) flat.release();
    this.#values = "away";
  }

  addGradient(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    for (const flat of this.flatParameters) flat.addGradient(parameter, gradient, scale);
  }

  /** Posts the sum of the gradients. */
  startReduce(): void {
    for (const flat of this.flatParameters) flat.startReduce();
  }

  /** Resolves when this rank has its ranges of the sums. */
  async finishReduce(): Promise<void> {
    for (const flat of this.flatParameters) await flat.finishReduce();
  }
}

// Counts the memory of sharded training where it is allocated and freed.

/** The uses of memory. */
export type MemoryUse = "values" | "gradients" | "optimizer" | "exchange";

/** Bytes of one use. */
export interface HeldBytes {
  readonly nowBytes: number;
  /** The most since the creation of the trainer. */
  readonly peakBytes: number;
}

/**
 * Bytes that a rank holds: parameter values, their gradients, the optimizer's state, and buffers of calls under way, padding
 * included. `total` peaks when the sum does.
 */
export type ShardedMemory = Readonly<Record<MemoryUse | "total", HeldBytes>>;

/** Counts bytes by use. */
export class MemoryMeter {
  readonly #held = new Map<MemoryUse | "total", { nowBytes: number; peakBytes: number }>();

  /** Counts allocated bytes; negative numbers count freed bytes. */
  add(use: MemoryUse, bytes: number): void {
    for (const each of [use, "total"] as const) {
      const held = this.#held.get(each) ?? { nowBytes: 0, peakBytes: 0 };
      held.nowBytes += bytes;
      held.peakBytes = Math.max(held.peakBytes, held.nowBytes);
      this.#held.set(each, held);
    }
  }

  report(): ShardedMemory {
    const of = (use: MemoryUse | "total"): HeldBytes => ({
      nowBytes: 0,
      peakBytes: 0,
      ...this.#held.get(use),
    });
    return {
      values: of("values"),
      gradients: of("gradients"),
      optimizer: of("optimizer"),
      exchange: of("exchange"),
      total: of("total"),
    };
  }
}
