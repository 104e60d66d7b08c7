/** The protocol between server and worker: a header of three numbers, and the values or gradients of all parameters. */
import type { Communicator } from "../../api/index.ts";
import type { ParameterArray, ParameterDType, ParameterSet } from "../parameter-set.ts";

/** Kinds of requests of a worker. */
export const requestKinds = { pull: 0, push: 1, leave: 2 } as const;

/** Status of a reply of the server. */
export const replyCodes = { accepted: 0, stale: 1, future: 2, nonFinite: 3, notPulled: 4 } as const;

/** The kind of a request or the code of a reply, a version, and a staleness. */
export type MessageHeader = readonly [number, number, number];

const dtypes: readonly ParameterDType[] = ["float32", "float64"];

/** One worker's connection with the server: a communicator of the two, on which neither waits for other workers. */
export class Connection {
  readonly #comm: Communicator;
  readonly #peer: number;

  constructor(pair: Communicator) {
    this.#comm = pair;
    this.#peer = 1 - pair.rank;
  }

  async sendHeader(header: MessageHeader): Promise<void> {
    await this.#send("float64", Float64Array.from(header));
  }

  async recvHeader(): Promise<MessageHeader> {
    const [first = 0, second = 0, third = 0] = await this.#recv("float64", 3);
    return [first, second, third];
  }

  /** Sends values or gradients, a message for each dtype that the parameters have. */
  async sendArrays(set: ParameterSet, what: "values" | "gradients"): Promise<void> {
    for (const dtype of dtypes) {
      const array = set[what](dtype);
      if (array.length > 0) await this.#send(dtype, array);
    }
  }

  /** Receives values or gradients as long as the parameters are. */
  async recvArrays(set: ParameterSet): Promise<Map<ParameterDType, ParameterArray>> {
    const received = new Map<ParameterDType, ParameterArray>();
    for (const dtype of dtypes) {
      const { length } = set.values(dtype);
      if (length > 0) received.set(dtype, await this.#recv(dtype, length));
    }
    return received;
  }

  async close(): Promise<void> {
    await this.#comm.close();
  }

  async #send(dtype: ParameterDType, array: ParameterArray): Promise<void> {
    const buffer = this.#comm.alloc(dtype, array.length).copyFrom(array);
    try {
      await this.#comm.send({ send: buffer, peer: this.#peer });
    } finally {
      buffer.dispose();
    }
  }

  async #recv(dtype: ParameterDType, length: number): Promise<ParameterArray> {
    const buffer = this.#comm.alloc(dtype, length);
    try {
      await this.#comm.recv({ recv: buffer, peer: this.#peer });
      return await buffer.toHost();
    } finally {
      buffer.dispose();
    }
  }
}
