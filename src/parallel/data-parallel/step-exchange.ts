/** The messages of ranks at the end of a step: their loss and samples, and the parameters that got no gradient. */
import type { Communicator } from "../../api/index.ts";

/** One rank's part of a step. */
export interface RankStep {
  /** Sum of the losses of its samples. */
  readonly loss: number;
  readonly samples: number;
  /** The divisor of the mean; the samples where they count alike. */
  readonly weight: number;
  /** One flag for each parameter, in the order of names: it got a gradient. */
  readonly used: readonly boolean[];
}

/** Every rank's part, by rank. Costs one all-gather of 24 bytes and a bit for every parameter. */
export async function exchangeSteps(comm: Communicator, mine: RankStep): Promise<RankStep[]> {
  const parameters = mine.used.length;
  const bytes = 24 + Math.ceil(parameters / 8);
  const out = new Uint8Array(bytes);
  const numbers = new DataView(out.buffer);
  numbers.setFloat64(0, mine.loss);
  numbers.setFloat64(8, mine.samples);
  numbers.setFloat64(16, mine.weight);
  for (const [at, used] of mine.used.entries()) {
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
