/**
 * Work that grows with the square of ranks or messages: steps are counted on a small and a large world. A step for each
 * rank or message is as many per unit on both; one for each pair is several times as many on the large one.
 */
import { type Communicator, createWorld, DeviceBuffer } from "twinccl";
import { sim } from "twinccl/sim";
import { afterEach, describe, expect, test, vi } from "vitest";
import { buildProgram } from "../../src/algorithms/algorithm.ts";
import { ringAllReduce } from "../../src/algorithms/all-reduce/ring.ts";
import { type CommError, WorldError } from "../../src/api/index.ts";
import { Operation } from "../../src/api/op.ts";
import type { ActiveWorld } from "../../src/api/world/interrupts.ts";
import { inWorld } from "../support/in-world.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

/**
 * Calls of a getter or method during a run, per unit of work. Time stands still: a slow run has more turns of the event loop, and
 * what they serve is no step of the run.
 */
async function stepsPer(
  units: number,
  count: () => { readonly mock: { readonly calls: readonly unknown[] } },
  run: () => Promise<unknown>,
): Promise<number> {
  vi.spyOn(performance, "now").mockReturnValue(0);
  const steps = count();
  await run();
  const callCount = steps.mock.calls.length;
  vi.restoreAllMocks();
  return callCount / units;
}

const lengthsRead = () => vi.spyOn(DeviceBuffer.prototype, "byteLength", "get");
const statesRead = () => vi.spyOn(Operation.prototype, "pending", "get");

/** Each unit takes at most a tenth more steps on the large size, and the counter saw some. */
function expectFlat(small: number, large: number): void {
  expect(small).toBeGreaterThan(0);
  expect(large / small).toBeLessThan(1.1);
}

describe("messages of a group", () => {
  const exchange = (messages: number, host: boolean) => async (comm: Communicator) => {
    const peer = 1 - comm.rank;
    const [sent, received] = host
      ? [new Float32Array(messages), new Float32Array(messages)]
      : [comm.alloc("float32", messages), comm.alloc("float32", messages)];
    await comm.group(() => {
      for (let at = 0; at < messages; at++) {
        comm.send({ send: sent.subarray(at, at + 1), peer });
        comm.recv({ recv: received.subarray(at, at + 1), peer });
      }
    });
  };

  test.each([["buffers", false] as const, ["TypedArrays", true] as const])(
    "compare no pair of %s",
    async (_, host) => {
      const steps = (messages: number): Promise<number> =>
        stepsPer(messages, lengthsRead, () => inWorld(2, exchange(messages, host)));
      expectFlat(await steps(40), await steps(400));
    },
  );

  test("are visited once, however many ranks exchange them", async () => {
    const toAll = async (comm: Communicator): Promise<void> => {
      const [sent, received] = [comm.alloc("float32", comm.size), comm.alloc("float32", comm.size)];
      await comm.group(() => {
        for (let peer = 0; peer < comm.size; peer++) {
          const recv = received.subarray(peer, peer + 1);
          comm.sendRecv({ send: sent.subarray(peer, peer + 1), to: peer, recv, from: peer });
        }
      });
    };
    const steps = (size: number): Promise<number> =>
      stepsPer(size * size, statesRead, () => inWorld(size, toAll));
    expectFlat(await steps(6), await steps(24));
  });

  test("match sends that are posted one at a time", async () => {
    const oneByOne = (messages: number) => async (comm: Communicator) => {
      const memory = comm.alloc("float32", messages);
      const part = (at: number): DeviceBuffer => memory.subarray(at, at + 1);
      if (comm.rank === 0) {
        for (let at = 0; at < messages; at++) await comm.send({ send: part(at), peer: 1 });
      } else {
        await comm.group(() => {
          for (let at = 0; at < messages; at++) comm.recv({ recv: part(at), peer: 0 });
        });
      }
    };
    const steps = (messages: number): Promise<number> =>
      stepsPer(messages, statesRead, () => inWorld(2, oneByOne(messages)));
    expectFlat(await steps(40), await steps(400));
  });

  test("are not listed to find one that is awaited", async () => {
    const steps = async (messages: number): Promise<number> => {
      await using world = await createWorld({ backend: sim(), size: 2 });
      const cancel = new AbortController();
      const { signal } = cancel;
      const run = world.run(async (comm) => {
        if (comm.rank === 0) return;
        const memory = comm.alloc("float32", messages);
        const received = comm.group(() => {
          for (let at = 0; at < messages; at++)
            comm.recv({ recv: memory.subarray(at, at + 1), peer: 0, signal });
        });
        await expect(received).rejects.toThrow("cancelled by its signal");
      });
      await new Promise(setImmediate);
      const count = await stepsPer(1, statesRead, async () => {
        expect((world as unknown as ActiveWorld).awaited).toBeDefined();
      });
      cancel.abort();
      await run;
      return count;
    };
    expectFlat(await steps(40), await steps(400));
  });

  test("of one group are cancelled by one signal", async () => {
    const cancelled = (messages: number) => async (comm: Communicator) => {
      if (comm.rank > 0) return;
      const memory = comm.alloc("float32", messages);
      const cancel = new AbortController();
      const ops: Operation[] = [];
      const whole = comm.group(() => {
        for (let at = 0; at < messages; at++) {
          const recv = memory.subarray(at, at + 1);
          ops.push(comm.recv({ recv, peer: 1, signal: cancel.signal }) as Operation);
        }
      });
      cancel.abort();
      await expect(whole).rejects.toThrow("cancelled by its signal");
      await Promise.allSettled(ops);
    };
    const steps = (messages: number): Promise<number> =>
      stepsPer(messages, statesRead, () => inWorld(2, cancelled(messages)));
    expectFlat(await steps(40), await steps(400));
  });
});

describe("a split", () => {
  /** Counts the elements of arrays that are searched. */
  const elementsSearched = () => {
    const calls: unknown[] = [];
    for (const name of ["find", "includes", "indexOf"] as const) {
      const search = Array.prototype[name] as (...args: unknown[]) => unknown;
      const counted = function (this: unknown[], ...args: unknown[]): unknown {
        calls.length += this.length;
        return search.apply(this, args);
      };
      vi.spyOn(Array.prototype, name).mockImplementation(counted as never);
    }
    return { mock: { calls } };
  };

  test("of many ranks searches for none of them among all", async () => {
    const steps = (size: number): Promise<number> =>
      stepsPer(size, elementsSearched, () =>
        inWorld(size, async (comm) => {
          const half = await comm.split({ color: comm.rank % 2 });
          await half.close();
        }),
      );
    expectFlat(await steps(20), await steps(200));
  });
});

describe("TypedArrays of all ranks", () => {
  test("are compared with no other rank's", async () => {
    const steps = (size: number): Promise<number> => {
      // Disjoint parts of one ArrayBuffer: each rank writes memory of all others.
      const shared = new Float32Array(size);
      return stepsPer(size, lengthsRead, () =>
        inWorld(size, async (comm) => {
          const own = shared.subarray(comm.rank, comm.rank + 1);
          await comm.broadcast(comm.rank === 0 ? { send: own, root: 0 } : { recv: own, root: 0 });
        }),
      );
    };
    expectFlat(await steps(16), await steps(160));
  });

  test("that overlap are reported by the first pair", async () => {
    const shared = new Float32Array(12);
    // Ranks 3 and 4 overlap, and so do 1 and 5, which come first.
    const begins = [0, 4, 2, 6, 7, 5];
    const errors: CommError[] = [];
    await inWorld(6, async (comm) => {
      const begin = begins[comm.rank] as number;
      const own = shared.subarray(begin, begin + 2);
      await comm
        .broadcast(comm.rank === 0 ? { send: own, root: 0 } : { recv: own, root: 0 })
        .catch((error) => errors.push(error as CommError));
    });
    expect(errors.map(({ ranks }) => ranks)).toEqual(Array.from({ length: 6 }, () => [1, 5]));
    expect(errors[0]?.message).toContain(
      "broadcast: recv: ranks 1 and 5 were given the same memory, needs memory of their own",
    );
  });
});

test("a program that is too large is refused by its first lane", () => {
  let lanes = 0;
  const counted: typeof ringAllReduce = {
    ...ringAllReduce,
    write: (program) => {
      const everyRank = program.everyRank.bind(program);
      program.everyRank = (write, channel) =>
        everyRank((lane, rank) => {
          lanes++;
          write(lane, rank);
        }, channel);
      ringAllReduce.write(program);
    },
  };
  expect(() => buildProgram("allReduce", counted, 50_000, -1)).toThrow(
    "allReduce by ring on 50000 ranks: a program of more than 8,388,608 steps, the limit",
  );
  expect(lanes).toBe(1);
});

describe("the report of an error that all ranks get", () => {
  const laidOut = () => vi.spyOn(String.prototype, "padEnd");

  /** The error of every rank's call. */
  async function failed(
    size: number,
    call: (comm: Communicator) => PromiseLike<unknown>,
  ): Promise<CommError[]> {
    const errors: CommError[] = [];
    const run = inWorld(
      size,
      async (comm) => {
        await call(comm).then(undefined, (error: CommError) => errors.push(error));
      },
      sim(),
    );
    await run.catch((error: unknown) => {
      if (!(error instanceof WorldError)) throw error;
    });
    return errors;
  }

  test("of a deadlock in a ring is formatted once, and visits each call once", async () => {
    const ring = async (size: number): Promise<void> => {
      const errors = await failed(size, (comm) =>
        comm.recv({ recv: comm.alloc("float32", 1), peer: (comm.rank + 1) % size }),
      );
      expect(errors).toHaveLength(size);
      expect(errors[0]?.message).toContain("deadlock: every unfinished rank waits for another one");
    };
    expectFlat(
      await stepsPer(20, laidOut, () => ring(20)),
      await stepsPer(200, laidOut, () => ring(200)),
    );
    const callingRankReads = () => vi.spyOn(Operation.prototype, "callingRank", "get");
    expectFlat(
      await stepsPer(20, callingRankReads, () => ring(20)),
      await stepsPer(200, callingRankReads, () => ring(200)),
    );
  });

  test("of a mismatch is formatted once", async () => {
    const lengths = async (size: number): Promise<void> => {
      const errors = await failed(size, (comm) =>
        comm.allReduce({ send: comm.alloc("float32", comm.rank), op: "sum" }),
      );
      expect(errors).toHaveLength(size);
    };
    expectFlat(
      await stepsPer(20, laidOut, () => lengths(20)),
      await stepsPer(200, laidOut, () => lengths(200)),
    );
  });

  test("of a call that ranks miss lists them once", async () => {
    const size = 40;
    const errors = await failed(size, (comm) =>
      comm.rank < size / 2 ? comm.barrier() : Promise.resolve(),
    );
    expect(errors).toHaveLength(size / 2);
    const { waits } = errors[0] as CommError & { waits: { missing: readonly number[] }[] };
    const missing = waits.slice(0, size / 2).map((wait) => wait.missing);
    expect(new Set(missing).size).toBe(1);
    expect(missing[0]).toEqual(Array.from({ length: size / 2 }, (_, at) => at + size / 2));
  });
});
