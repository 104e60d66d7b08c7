/** The messages between server and worker: three numbers, and the values or gradients of all parameters. */
import type { Communicator } from "../../api/index.ts";
import type { ParameterArray, ParameterDType, ParameterSet } from "../parameter-set.ts";

/** Requests of a worker. */
export const asks = { pull: 0, push: 1, leave: 2 } as const;

/** Answers of the server. */
export const answers = { accepted: 0, stale: 1, future: 2, nonFinite: 3, notPulled: 4 } as const;

/** A kind or an answer, a version, and a staleness. */
export type Words = readonly [number, number, number];

const dtypes: readonly ParameterDType[] = ["float32", "float64"];

/** One worker's connection with the server: a communicator of the two, on which neither waits for other workers. */
export class Line {
  readonly #comm: Communicator;
  readonly #peer: number;

  constructor(pair: Communicator) {
    this.#comm = pair;
    this.#peer = 1 - pair.rank;
  }

  async say(words: Words): Promise<void> {
    await this.#send("float64", Float64Array.from(words));
  }

  async hear(): Promise<Words> {
    const [first = 0, second = 0, third = 0] = await this.#recv("float64", 3);
    return [first, second, third];
  }

  /** Sends values or gradients, a message for each dtype that the parameters have. */
  async give(set: ParameterSet, what: "values" | "gradients"): Promise<void> {
    for (const dtype of dtypes) {
      const array = set[what](dtype);
      if (array.length > 0) await this.#send(dtype, array);
    }
  }

  /** Receives values or gradients as long as the parameters are. */
  async take(set: ParameterSet): Promise<Map<ParameterDType, ParameterArray>> {
    const taken = new Map<ParameterDType, ParameterArray>();
    for (const dtype of dtypes) {
      const { length } = set.values(dtype);
      if (length > 0) taken.set(dtype, await this.#recv(dtype, length));
    }
    return taken;
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
