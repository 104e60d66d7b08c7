/**
 * The sum of one bucket of gradients over all ranks: in full, in 16-bit floats, or of its largest elements only.
 *
 * Gradients are host memory; what travels is the backend's. So every exchange owns buffers of the communicator, copies the
 * bucket into them when it is issued and out of them when it is collected.
 */
import type { CommOp, Communicator, DeviceBuffer } from "../../api/index.ts";
import { releaseAfter } from "../life.ts";
import type { ParameterArray, ParameterDType } from "../parameter-set.ts";
import { type HalfDType, halfBits, halfValue } from "./half.ts";
import { largestIndexes } from "./top-k.ts";

/** The format of gradients in messages: `"full"`, a 16-bit float, or the given share of largest elements with error feedback. */
export type Wire = "full" | HalfDType | { readonly topK: number };

/** The calls that sum one bucket; used once a step. */
export interface BucketExchange {
  /** Unsent gradients, which are added to the next ones, where there are such. Live memory. */
  readonly residual: ParameterArray | undefined;
  /** Posts the calls; `gradients` may be changed afterwards. */
  post(gradients: ParameterArray): CommOp;
  /** Writes the sum over all ranks. */
  collect(gradients: ParameterArray): Promise<void>;
  /** The step holds: what was left out of it becomes the residual. */
  commit(): void;
  /** Gives the buffers back, once the calls that have them are done. */
  dispose(): void;
}

/** The exchange of a bucket of so many elements; `scale` multiplies what is rounded to 16 bits. */
export function exchangeOf(
  comm: Communicator,
  wire: Wire,
  scale: number,
  dtype: ParameterDType,
  length: number,
): BucketExchange {
  if (wire === "full") return new FullExchange(comm, dtype, length);
  if (typeof wire === "string") return new HalfExchange(comm, wire, scale, length);
  return new TopExchange(comm, wire.topK, dtype, length);
}

/** An in-place all-reduce of the gradients as they are. */
class FullExchange implements BucketExchange {
  readonly residual = undefined;
  readonly #comm: Communicator;
  readonly #buffer: DeviceBuffer<ParameterDType>;
  #op: CommOp | undefined;

  constructor(comm: Communicator, dtype: ParameterDType, length: number) {
    this.#comm = comm;
    this.#buffer = comm.alloc(dtype, length);
  }

  post(gradients: ParameterArray): CommOp {
    this.#buffer.copyFrom(gradients);
    this.#op = this.#comm.allReduce({ send: this.#buffer, op: "sum" });
    return this.#op;
  }

  async collect(gradients: ParameterArray): Promise<void> {
    await this.#op;
    await this.#buffer.copyTo(gradients);
  }

  commit(): void {}

  dispose(): void {
    releaseAfter(this.#op, () => this.#buffer.dispose());
  }
}

/** An in-place all-reduce of the gradients, rounded to 16 bits; every hop rounds again. */
class HalfExchange implements BucketExchange {
  readonly residual = undefined;
  readonly #comm: Communicator;
  readonly #dtype: HalfDType;
  readonly #scale: number;
  readonly #bits: Uint16Array;
  readonly #buffer: DeviceBuffer<HalfDType>;
  #op: CommOp | undefined;

  constructor(comm: Communicator, dtype: HalfDType, scale: number, length: number) {
    this.#comm = comm;
    this.#dtype = dtype;
    this.#scale = scale;
    this.#bits = new Uint16Array(length);
    this.#buffer = comm.alloc(dtype, length);
  }

  post(gradients: ParameterArray): CommOp {
    for (let at = 0; at < gradients.length; at++) {
      this.#bits[at] = halfBits(this.#dtype, (gradients[at] as number) * this.#scale);
    }
    this.#buffer.copyFrom(this.#bits);
    this.#op = this.#comm.allReduce({ send: this.#buffer, op: "sum" });
    return this.#op;
  }

  async collect(gradients: ParameterArray): Promise<void> {
    await this.#op;
    await this.#buffer.copyTo(this.#bits);
    for (let at = 0; at < gradients.length; at++) {
      gradients[at] = halfValue(this.#dtype, this.#bits[at] as number) / this.#scale;
    }
  }

  commit(): void {}

  dispose(): void {
    releaseAfter(this.#op, () => this.#buffer.dispose());
  }
}

/**
 * All-gathers of each rank's largest elements and their places, summed in the order of ranks. What a rank does not send
 * it adds to its next gradient, so nothing is lost, only late.
 */
class TopExchange implements BucketExchange {
  readonly residual: ParameterArray;
  readonly #comm: Communicator;
  /** The rank's contribution: gradient and residual; after posting, the unsent part. */
  readonly #owed: ParameterArray;
  readonly #values: readonly [DeviceBuffer<ParameterDType>, DeviceBuffer<ParameterDType>];
  readonly #places: readonly [DeviceBuffer<"uint32">, DeviceBuffer<"uint32">];
  #op: CommOp | undefined;

  constructor(comm: Communicator, share: number, dtype: ParameterDType, length: number) {
    const count = Math.min(length, Math.ceil(length * share));
    const create = dtype === "float32" ? Float32Array : Float64Array;
    this.#comm = comm;
    this.residual = new create(length);
    this.#owed = new create(length);
    this.#values = [comm.alloc(dtype, count), comm.alloc(dtype, count * comm.size)];
    this.#places = [comm.alloc("uint32", count), comm.alloc("uint32", count * comm.size)];
  }

  post(gradients: ParameterArray): CommOp {
    const owed = this.#owed;
    for (let at = 0; at < owed.length; at++) {
      owed[at] = (gradients[at] as number) + (this.residual[at] as number);
    }
    const places = largestIndexes(owed, this.#places[0].length);
    const values = new (owed.constructor as Float64ArrayConstructor)(places.length);
    for (let at = 0; at < places.length; at++) {
      const place = places[at] as number;
      values[at] = owed[place] as number;
      owed[place] = 0;
    }
    this.#values[0].copyFrom(values);
    this.#places[0].copyFrom(places);
    this.#op = this.#comm.group(() => {
      this.#comm.allGather({ send: this.#places[0], recv: this.#places[1] });
      this.#comm.allGather({ send: this.#values[0], recv: this.#values[1] });
    });
    return this.#op;
  }

  async collect(gradients: ParameterArray): Promise<void> {
    await this.#op;
    const places = await this.#places[1].toHost();
    const values = await this.#values[1].toHost();
    gradients.fill(0);
    // A place occurs once for each rank at most, and ranks follow one another: the same order of adding everywhere.
    for (let at = 0; at < places.length; at++) {
      const place = places[at] as number;
      gradients[place] = (gradients[place] as number) + (values[at] as number);
    }
  }

  commit(): void {
    this.residual.set(this.#owed);
  }

  dispose(): void {
    releaseAfter(this.#op, () => {
      for (const buffer of [...this.#values, ...this.#places]) buffer.dispose();
    });
  }
}
