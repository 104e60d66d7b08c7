/** The messages of a stage to its neighbours: arrays in the pipeline's dtype, each way at once. */
import type { Communicator, DeviceBuffer } from "../../api/index.ts";
import { invalid } from "../../api/option-kinds.ts";
import type { ParameterArray, ParameterDType } from "../parameter-set.ts";

/** Messages that are under way together; of those that come, the number of elements. */
export interface Messages {
  readonly toNext?: ParameterArray | undefined;
  readonly toPrevious?: ParameterArray | undefined;
  readonly fromNext?: number | undefined;
  readonly fromPrevious?: number | undefined;
}

/** The received arrays. */
export interface Received {
  readonly fromNext?: ParameterArray | undefined;
  readonly fromPrevious?: ParameterArray | undefined;
}

/** The messages of one rank, in buffers that are kept and grow with the longest message. */
export class Wires {
  readonly #comm: Communicator;
  readonly #dtype: ParameterDType;
  readonly #buffers = new Map<keyof Messages, DeviceBuffer<ParameterDType>>();

  constructor(comm: Communicator, dtype: ParameterDType) {
    this.#comm = comm;
    this.#dtype = dtype;
  }

  /** Sends and receives all of them as one group; resolves when all are done. */
  async exchange(messages: Messages): Promise<Received> {
    const { toNext, toPrevious, fromNext, fromPrevious } = messages;
    const [next, previous] = [this.#comm.rank + 1, this.#comm.rank - 1];
    const out = {
      next: toNext && this.#filled("toNext", toNext),
      previous: toPrevious && this.#filled("toPrevious", toPrevious),
    };
    const come = {
      next: fromNext === undefined ? undefined : this.#buffer("fromNext", fromNext),
      previous: fromPrevious === undefined ? undefined : this.#buffer("fromPrevious", fromPrevious),
    };
    await this.#comm.group(() => {
      if (out.next !== undefined) this.#comm.send({ send: out.next, peer: next });
      if (out.previous !== undefined) this.#comm.send({ send: out.previous, peer: previous });
      if (come.next !== undefined) this.#comm.recv({ recv: come.next, peer: next });
      if (come.previous !== undefined) this.#comm.recv({ recv: come.previous, peer: previous });
    });
    return { fromNext: await come.next?.toHost(), fromPrevious: await come.previous?.toHost() };
  }

  /** Gives the buffers back. */
  dispose(): void {
    for (const buffer of this.#buffers.values()) buffer.dispose();
    this.#buffers.clear();
  }

  #filled(wire: "toNext" | "toPrevious", array: ParameterArray): DeviceBuffer<ParameterDType> {
    const found = array instanceof Float32Array ? "float32" : "float64";
    if (found !== this.#dtype) {
      const { rank, size, name } = this.#comm;
      const what = wire === "toNext" ? "output" : "gradient by the input";
      throw invalid(
        "PipelineParallel",
        `${what} of stage ${rank}`,
        found,
        `${this.#dtype}, the pipeline's dtype`,
        'choose it with PipelineParallel.create(…, { dtype: "float64" })',
        { rank, size, comm: name, field: "dtype" },
      );
    }
    return this.#buffer(wire, array.length).copyFrom(array);
  }

  #buffer(wire: keyof Messages, length: number): DeviceBuffer<ParameterDType> {
    let buffer = this.#buffers.get(wire);
    if (buffer === undefined || buffer.length < length) {
      buffer?.dispose();
      buffer = this.#comm.alloc(this.#dtype, length);
      this.#buffers.set(wire, buffer);
    }
    return buffer.subarray(0, length);
  }
}
