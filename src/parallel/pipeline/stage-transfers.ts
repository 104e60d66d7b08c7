/** The transfers of a stage to and from its neighbours: arrays in the pipeline's dtype, in both directions at once. */
import type { Communicator, DeviceBuffer } from "../../api/index.ts";
import { invalid } from "../../api/option-kinds.ts";
import { factsOf } from "../argument-checks.ts";
import { type ParameterArray, type ParameterDType, parameterDTypeOf } from "../parameter-set.ts";

/** Messages of one group: arrays to send, and the number of elements to receive. */
export interface StageMessages {
  readonly toNext?: ParameterArray | undefined;
  readonly toPrevious?: ParameterArray | undefined;
  readonly fromNext?: number | undefined;
  readonly fromPrevious?: number | undefined;
}

/** The received arrays. */
export interface ReceivedMessages {
  readonly fromNext?: ParameterArray | undefined;
  readonly fromPrevious?: ParameterArray | undefined;
}

/** The transfers of one rank, in buffers that are kept and grow with the longest message. */
export class StageTransfers {
  readonly #comm: Communicator;
  readonly #dtype: ParameterDType;
  readonly #buffers = new Map<keyof StageMessages, DeviceBuffer<ParameterDType>>();

  constructor(comm: Communicator, dtype: ParameterDType) {
    this.#comm = comm;
    this.#dtype = dtype;
  }

  /** Sends and receives all of them as one group; resolves when all are done. */
  async exchange(messages: StageMessages): Promise<ReceivedMessages> {
    const { toNext, toPrevious, fromNext, fromPrevious } = messages;
    const [next, previous] = [this.#comm.rank + 1, this.#comm.rank - 1];
    const outgoing = {
      next: toNext && this.#filled("toNext", toNext),
      previous: toPrevious && this.#filled("toPrevious", toPrevious),
    };
    const incoming = {
      next: fromNext === undefined ? undefined : this.#buffer("fromNext", fromNext),
      previous: fromPrevious === undefined ? undefined : this.#buffer("fromPrevious", fromPrevious),
    };
    await this.#comm.group(() => {
      if (outgoing.next !== undefined) this.#comm.send({ send: outgoing.next, peer: next });
      if (outgoing.previous !== undefined)
        this.#comm.send({ send: outgoing.previous, peer: previous });
      if (incoming.next !== undefined) this.#comm.recv({ recv: incoming.next, peer: next });
      if (incoming.previous !== undefined)
        this.#comm.recv({ recv: incoming.previous, peer: previous });
    });
    return {
      fromNext: await incoming.next?.toHost(),
      fromPrevious: await incoming.previous?.toHost(),
    };
  }

  /** Frees the buffers. */
  dispose(): void {
    for (const buffer of this.#buffers.values()) buffer.dispose();
    this.#buffers.clear();
  }

  #filled(slot: "toNext" | "toPrevious", array: ParameterArray): DeviceBuffer<ParameterDType> {
    const found = parameterDTypeOf(array) ?? "float64";
    if (found !== this.#dtype) {
      const what = slot === "toNext" ? "output" : "gradient by the input";
      throw invalid(
        "PipelineParallel",
        `${what} of stage ${this.#comm.rank}`,
        found,
        `${this.#dtype}, the pipeline's dtype`,
        'choose it with PipelineParallel.create(…, { dtype: "float64" })',
        { ...factsOf(this.#comm), field: "dtype" },
      );
    }
    return this.#buffer(slot, array.length).copyFrom(array);
  }

  #buffer(slot: keyof StageMessages, length: number): DeviceBuffer<ParameterDType> {
    let buffer = this.#buffers.get(slot);
    if (buffer === undefined || buffer.length < length) {
      buffer?.dispose();
      buffer = this.#comm.alloc(this.#dtype, length);
      this.#buffers.set(slot, buffer);
    }
    return buffer.subarray(0, length);
  }
}
