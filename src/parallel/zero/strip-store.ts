/** One flat parameter on one rank: its share of values and gradients, and the whole of either while that is needed. */
import { bytesOf, type CommOp, type Communicator, type DeviceBuffer } from "../../api/index.ts";
import { releaseAfter } from "../life.ts";
import type { Parameter, ParameterArray, ParameterDType, ParameterSet } from "../parameter-set.ts";
import type { MemoryMeter } from "./memory.ts";
import { type FlatParameter, type ShardRange, shardRangesOf } from "./strips.ts";

/** The sharded parts: 1 optimizer state, 2 gradients as well, 3 parameter values as well. */
export type ShardingStage = 1 | 2 | 3;

/** The common parts of one trainer's flat parameters. */
export interface ShardingContext {
  readonly comm: Communicator;
  readonly set: ParameterSet;
  readonly stage: ShardingStage;
  readonly meter: MemoryMeter;
}

/** A call under way, and the buffer that it has. */
interface Transfer {
  readonly op: CommOp;
  readonly buffer: DeviceBuffer<ParameterDType>;
}

/** The memory of a flat parameter. The trainer decides when; this does it. */
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

  /** Takes the values over from the set, which is left without. */
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

  /** Posts the gathering of all ranks' values. */
  startGather(): void {
    const { comm } = this.#context;
    const buffer = this.#buffer();
    const send = this.#ownPart(buffer).copyFrom(this.shard);
    this.#gather = { op: comm.allGather({ send, recv: buffer }), buffer };
    assertPosted(this.#gather.op);
  }

  /** Takes what was gathered; from then on the parameters' values can be read. */
  async finishGather(): Promise<void> {
    const { op, buffer } = this.#gather as Transfer;
    await op;
    this.#fullValues ??= this.#allocate("values", buffer.length);
    await buffer.copyTo(this.#fullValues);
    this.#gather = undefined;
    this.#dispose(buffer);
    this.#bindValues(this.#fullValues);
  }

  /** The values can no longer be read; at stage 3 the memory is given back. */
  release(): void {
    this.#bindValues(undefined);
    if (this.#context.stage < 3 || this.#fullValues === undefined) return;
    this.#free("values", this.#fullValues);
    this.#fullValues = undefined;
  }

  /** Forgets the gradients of the last step. */
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

  /** Posts the sum of all ranks' gradients, of which each keeps its range. */
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

  /** Takes this rank's range of the sum: adds it to that of earlier micro-batches. */
  async finishReduce(): Promise<void> {
    const { op, buffer } = this.#reduction as Transfer;
    await op;
    const sum = await this.#ownPart(buffer).toHost();
    this.#reduction = undefined;
    this.#dispose(buffer);
    const mine = this.gradientShard;
    // At stage 1 micro-batches were added up before the sum, and the range still holds this rank's own part of it.
    if (this.#context.stage === 1) mine.set(sum);
    else
      for (let at = 0; at < mine.length; at++)
        mine[at] = (mine[at] as number) + (sum[at] as number);
  }

  /** Gives buffers back that a failed step left, once the calls that have them are done. */
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
    return dtype === "float32" ? new Float32Array(length) : new Float64Array(length);
  }

  #free(use: "values" | "gradients", array: ParameterArray): void {
    this.#context.meter.add(use, -array.byteLength);
  }
}

/** A call that could not be made must not be followed by the next: it would meet the others' call of this flat parameter. */
function assertPosted(op: CommOp): void {
  if (op.status === "failed") throw op.error;
}
