/** One strip on one rank: its share of values and gradients, and the whole of either while that is needed. */
import { bytesOf, type CommOp, type Communicator, type DeviceBuffer } from "../../api/index.ts";
import { releaseAfter } from "../life.ts";
import type { Parameter, ParameterArray, ParameterDType, ParameterSet } from "../parameter-set.ts";
import type { MemoryMeter } from "./memory.ts";
import { type Stretch, type Strip, stretchesOf } from "./strips.ts";

/** The sharded parts: 1 optimizer state, 2 gradients as well, 3 parameter values as well. */
export type ShardingStage = 1 | 2 | 3;

/** The common parts of one trainer's strips. */
export interface StripContext {
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

/** The memory of a strip. The trainer decides when; this does it. */
export class StripStore {
  readonly strip: Strip;
  readonly stretches: readonly Stretch[];
  /** This rank's values; padding behind them. */
  readonly shard: ParameterArray;
  /** This rank's stretch of the summed gradients. */
  readonly gradientShard: ParameterArray;
  readonly #context: StripContext;
  #whole: ParameterArray | undefined;
  #gradient: ParameterArray | undefined;
  #gathering: Transfer | undefined;
  #scattering: Transfer | undefined;

  /** Takes the values over from the set, which is left without. */
  constructor(strip: Strip, context: StripContext) {
    const { comm, stage } = context;
    this.strip = strip;
    this.stretches = stretchesOf(strip, comm.rank);
    this.#context = context;
    const own = comm.rank * strip.share;
    const whole = this.#allocate("values", strip.share * comm.size);
    for (const { parameter, begin } of strip.parameters) whole.set(parameter.value, begin);
    if (stage === 3) {
      this.shard = this.#allocate("values", strip.share);
      this.shard.set(whole.subarray(own, own + strip.share));
      this.#free("values", whole);
    } else {
      this.#whole = whole;
      this.shard = whole.subarray(own, own + strip.share);
    }
    if (stage === 1) {
      this.#gradient = this.#allocate("gradients", whole.length);
      this.gradientShard = this.#gradient.subarray(own, own + strip.share);
    } else {
      this.gradientShard = this.#allocate("gradients", strip.share);
    }
    this.#place(this.#whole);
  }

  /** Posts the gathering of all ranks' values. */
  fetch(): void {
    const { comm } = this.#context;
    const buffer = this.#buffer();
    const send = this.#ownPart(buffer).copyFrom(this.shard);
    this.#gathering = { op: comm.allGather({ send, recv: buffer }), buffer };
    assertPosted(this.#gathering.op);
  }

  /** Takes what was gathered; from then on the parameters' values can be read. */
  async arrive(): Promise<void> {
    const { op, buffer } = this.#gathering as Transfer;
    await op;
    this.#whole ??= this.#allocate("values", buffer.length);
    await buffer.copyTo(this.#whole);
    this.#gathering = undefined;
    this.#dispose(buffer);
    this.#place(this.#whole);
  }

  /** The values can no longer be read; at stage 3 the memory is given back. */
  release(): void {
    this.#place(undefined);
    if (this.#context.stage < 3 || this.#whole === undefined) return;
    this.#free("values", this.#whole);
    this.#whole = undefined;
  }

  /** Forgets the gradients of the last step. */
  clear(): void {
    this.gradientShard.fill(0);
    this.#gradient?.fill(0);
  }

  /** Adds to a parameter's gradient on this rank. */
  add(parameter: Parameter, gradient: ParameterArray, scale: number): void {
    const placed = this.strip.parameters.find((each) => each.parameter === parameter);
    if (placed === undefined) return;
    const all = this.#wholeGradient();
    for (let at = 0, to = placed.begin; at < gradient.length; at++, to++) {
      all[to] = (all[to] as number) + scale * (gradient[at] as number);
    }
  }

  /** Posts the sum of all ranks' gradients, of which each keeps its stretch. */
  scatter(): void {
    const { comm, stage } = this.#context;
    const gradient = this.#wholeGradient();
    const buffer = this.#buffer().copyFrom(gradient);
    if (stage > 1) {
      this.#free("gradients", gradient);
      this.#gradient = undefined;
    }
    const recv = this.#ownPart(buffer);
    this.#scattering = { op: comm.reduceScatter({ send: buffer, recv, op: "sum" }), buffer };
    assertPosted(this.#scattering.op);
  }

  /** Takes this rank's stretch of the sum: adds it to that of earlier micro-batches. */
  async collect(): Promise<void> {
    const { op, buffer } = this.#scattering as Transfer;
    await op;
    const sum = await this.#ownPart(buffer).toHost();
    this.#scattering = undefined;
    this.#dispose(buffer);
    const mine = this.gradientShard;
    // At stage 1 micro-batches were added up before the sum, and the stretch still holds this rank's own part of it.
    if (this.#context.stage === 1) mine.set(sum);
    else
      for (let at = 0; at < mine.length; at++)
        mine[at] = (mine[at] as number) + (sum[at] as number);
  }

  /** Gives buffers back that a failed step left, once the calls that have them are done. */
  dispose(): void {
    for (const transfer of [this.#gathering, this.#scattering]) {
      if (transfer !== undefined) releaseAfter(transfer.op, () => this.#dispose(transfer.buffer));
    }
    this.#gathering = undefined;
    this.#scattering = undefined;
  }

  #wholeGradient(): ParameterArray {
    this.#gradient ??= this.#allocate("gradients", this.strip.share * this.#context.comm.size);
    return this.#gradient;
  }

  #place(whole: ParameterArray | undefined): void {
    for (const { parameter, begin } of this.strip.parameters) {
      const value = whole?.subarray(begin, begin + parameter.length);
      this.#context.set.place(parameter.name, value);
    }
  }

  #buffer(): DeviceBuffer<ParameterDType> {
    const { comm, meter } = this.#context;
    const { dtype, share } = this.strip;
    const buffer = comm.alloc<ParameterDType>(dtype, share * comm.size);
    meter.add("exchange", buffer.byteLength);
    return buffer;
  }

  #ownPart(buffer: DeviceBuffer<ParameterDType>): DeviceBuffer<ParameterDType> {
    const { rank } = this.#context.comm;
    const { share } = this.strip;
    return buffer.subarray(rank * share, (rank + 1) * share);
  }

  #dispose(buffer: DeviceBuffer<ParameterDType>): void {
    this.#context.meter.add("exchange", -buffer.byteLength);
    buffer.dispose();
  }

  #allocate(use: "values" | "gradients", length: number): ParameterArray {
    const { dtype } = this.strip;
    this.#context.meter.add(use, length * bytesOf(dtype));
    return dtype === "float32" ? new Float32Array(length) : new Float64Array(length);
  }

  #free(use: "values" | "gradients", array: ParameterArray): void {
    this.#context.meter.add(use, -array.byteLength);
  }
}

/** A call that could not be made must not be followed by the next: it would meet the others' call of this strip. */
function assertPosted(op: CommOp): void {
  if (op.status === "failed") throw op.error;
}
