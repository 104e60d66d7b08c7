/** Point to point: what is sent arrives, in order, bit for bit, at the time that the link allows. */

import { asDType, type Communicator, createWorld, type DType, dtypes } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { hostView } from "../../support/host-view.ts";
import { within } from "../../support/planted.ts";

async function inWorld<T>(size: number, program: (comm: Communicator) => T | PromiseLike<T>) {
  const world = await createWorld({ backend: sim(), size });
  try {
    return await within(3000, world.run(program));
  } finally {
    await world.close();
  }
}

const next = ({ rank, size }: Communicator): number => (rank + 1) % size;
const previous = ({ rank, size }: Communicator): number => (rank + size - 1) % size;

describe("send and recv", () => {
  test.each(dtypes)("move every bit of %s, between guards", async (dtype: DType) => {
    const bytes = Uint8Array.from({ length: 40 }, (_, i) => (i * 37 + 255) & 0xff);
    const results = await inWorld(2, async (comm) => {
      const memory = new Uint8Array(56).fill(0xa5);
      if (comm.rank === 0) memory.set(bytes, 8);
      const view = hostView(
        dtype,
        memory.buffer,
        8,
        40 / hostView(dtype, memory.buffer, 0, 1).byteLength,
      );
      const data = asDType(view as never, dtype);
      await (comm.rank === 0
        ? comm.send({ send: data, peer: 1 })
        : comm.recv({ recv: data, peer: 0 }));
      return [...memory];
    });
    const guard = new Array(8).fill(0xa5);
    const expected = [...guard, ...bytes, ...guard];
    expect(results).toEqual([expected, expected]);
  });

  test("of one pair meet in order, posted at once or one by one", async () => {
    const results = await inWorld(2, async (comm) => {
      const got: number[] = [];
      if (comm.rank === 0) {
        await Promise.all(
          [1, 2, 3].map((value) =>
            comm.send({ send: Int32Array.of(value) as Int32Array, peer: 1 }),
          ),
        );
      } else {
        for (let message = 0; message < 3; message++) {
          const recv: Int32Array = new Int32Array(1);
          expect(await comm.recv({ recv, peer: 0 })).toBe(recv);
          got.push(recv[0] as number);
        }
      }
      return got;
    });
    expect(results[1]).toEqual([1, 2, 3]);
  });

  test("pass a value around a ring, rank by rank", async () => {
    const results = await inWorld(5, async (comm) => {
      const data = comm.alloc("int64", 1).fill(comm.rank);
      if (comm.rank > 0) await comm.recv({ recv: data, peer: previous(comm) });
      const value = (await data.toHost())[0] as bigint;
      data.fill(value * 10n + BigInt(comm.rank));
      await comm.send({ send: data, peer: next(comm) }).catch(() => undefined);
      return Number(value);
    }).catch((error) => error.code);
    // Rank 0 never takes the last message.
    expect(results).toEqual([0, 0, 1, 12, 123]);
  });

  test("take no elements as well", async () => {
    const results = await inWorld(2, async (comm) => {
      const none = comm.alloc("float16", 0);
      await (comm.rank === 0
        ? comm.send({ send: none, peer: 1 })
        : comm.recv({ recv: none, peer: 0 }));
      await comm.sendRecv({ send: none, recv: none, to: 1 - comm.rank, from: 1 - comm.rank });
      return comm.stats().failures;
    });
    expect(results).toEqual([0, 0]);
  });

  test("resolve to nothing and to recv, and number their calls apart from collective ones", async () => {
    const results = await inWorld(2, async (comm) => {
      await comm.barrier();
      const data = new Int8Array(1);
      const op =
        comm.rank === 0 ? comm.send({ send: data, peer: 1 }) : comm.recv({ recv: data, peer: 0 });
      const result = await op;
      const last = comm.barrier();
      await last;
      return [op.call, last.call, result === data];
    });
    expect(results).toEqual([
      [0, 1, false],
      [0, 1, true],
    ]);
  });

  test("of different pairs do not wait for each other", async () => {
    const results = await inWorld(4, async (comm) => {
      const data = new Int32Array(1).fill(comm.rank);
      const peer = comm.rank ^ 1;
      if (comm.rank < 2) await new Promise((resolve) => setTimeout(resolve, 4));
      const started = comm.rank < 2;
      await (comm.rank % 2 === 0
        ? comm.send({ send: data, peer })
        : comm.recv({ recv: data, peer }));
      return [started, data[0]];
    });
    expect(results.map(([, value]) => value)).toEqual([0, 0, 2, 2]);
  });
});

describe("sendRecv", () => {
  test.each([1, 2, 3, 8])("shifts data around a ring of %i", async (size) => {
    const results = await inWorld(size, async (comm) => {
      const recv: Int32Array = new Int32Array(2);
      const send = Int32Array.of(comm.rank, comm.rank + 100) as Int32Array;
      const args = { send, recv, to: next(comm), from: previous(comm) };
      expect(await comm.sendRecv(args)).toBe(recv);
      return [...recv];
    });
    expect(results).toEqual(
      Array.from({ length: size }, (_, rank) => (rank + size - 1) % size).map((from) => [
        from,
        from + 100,
      ]),
    );
  });

  test("swaps, with itself and with lengths that differ by direction", async () => {
    const results = await inWorld(2, async (comm) => {
      const own: Int32Array = new Int32Array(2);
      const me = comm.rank;
      const mine = Int32Array.of(me, me) as Int32Array;
      await comm.sendRecv({ send: mine, recv: own, to: me, from: me });
      const send = new Int32Array(me + 1).fill(me);
      const recv: Int32Array = new Int32Array(2 - me).fill(9);
      await comm.sendRecv({ send, recv, to: 1 - me, from: 1 - me });
      return [[...own], [...recv]];
    });
    expect(results).toEqual([
      [
        [0, 0],
        [1, 1],
      ],
      [[1, 1], [0]],
    ]);
  });

  test("meets a send and a recv of others", async () => {
    const results = await inWorld(3, async (comm) => {
      const data: Int32Array = new Int32Array(1).fill(comm.rank);
      if (comm.rank === 0) await comm.send({ send: data, peer: 1 });
      else if (comm.rank === 2) await comm.recv({ recv: data, peer: 1 });
      else {
        const recv: Int32Array = new Int32Array(1);
        await comm.sendRecv({ send: data, recv, to: 2, from: 0 });
        return recv[0];
      }
      return data[0];
    });
    expect(results).toEqual([0, 0, 1]);
  });
});

describe("virtual time of a message", () => {
  const latencyNs = 1500;
  const link = { latencyNs, gigabytesPerSecond: 1 };

  /** Times in nanoseconds at which each rank makes a barrier after a program. */
  async function timesAfter(
    size: number,
    program: (comm: Communicator) => unknown,
  ): Promise<number[]> {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ link, trace }), size });
    await world.run(async (comm) => {
      await program(comm);
      await comm.barrier();
    });
    await world.close();
    const times: number[] = [];
    for (const [, time, rank] of trace.toText().matchAll(/^(\d+) post rank=(\d+) .* barrier/gm)) {
      times[Number(rank)] = Number(time) / 1000;
    }
    return times;
  }

  const bytes = (count: number): Uint8Array => new Uint8Array(count);

  test("the sender is free when it has left, the receiver when it is there", async () => {
    const times = await timesAfter(2, (comm) =>
      comm.rank === 0
        ? comm.send({ send: bytes(700), peer: 1 })
        : comm.recv({ recv: bytes(700), peer: 0 }),
    );
    expect(times).toEqual([700, latencyNs + 700]);
  });

  test("neither begins before both have come", async () => {
    for (const late of [0, 1]) {
      const times = await timesAfter(2, (comm) => {
        if (comm.rank === late) comm.work(5000);
        return comm.rank === 0
          ? comm.send({ send: bytes(700), peer: 1 })
          : comm.recv({ recv: bytes(700), peer: 0 });
      });
      expect(times).toEqual([5700, 5000 + latencyNs + 700]);
    }
  });

  // BUG (both): what of a batch meets first counts as an earlier call of its rank (`Streams`), so that the other half
  // of the same `sendRecv` or group waits for it, latency included; the time depends on who happens to post first.
  test.fails("a ring shift takes one message, whatever the number of ranks", async () => {
    for (const size of [2, 3, 8]) {
      const times = await timesAfter(size, (comm) =>
        comm.sendRecv({ send: bytes(300), recv: bytes(300), to: next(comm), from: previous(comm) }),
      );
      expect(times).toEqual(new Array(size).fill(latencyNs + 300));
    }
  });

  test.fails("messages of a group share the ports of their ranks", async () => {
    const times = await timesAfter(4, (comm) =>
      comm.group(() => {
        if (comm.rank > 0) void comm.send({ send: bytes(1000), peer: 0 });
        else for (const peer of [1, 2, 3]) void comm.recv({ recv: bytes(1000), peer });
      }),
    );
    expect(times[0]).toBe(latencyNs + 3000);
    for (const time of times.slice(1)) expect(time).toBeLessThanOrEqual(3000);
  });
});
