/** Point to point: what is sent arrives, in order, bit for bit, at the time that the link allows. */

import { asDType, type Communicator, createWorld, type DType, dtypes } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { hostView } from "../../support/host-view.ts";
import { inWorld } from "../../support/in-world.ts";

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

  test("of one pair match in order, posted at once or one by one", async () => {
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

  test("accept zero elements", async () => {
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

  test("resolve to undefined and to recv, and are numbered separately from collective calls", async () => {
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

  test("matches a send and a recv of other ranks", async () => {
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
    seed = 0,
  ): Promise<number[]> {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ link, trace, seed }), size });
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

  test("the sender is done when the message has left, the receiver when it has arrived", async () => {
    const times = await timesAfter(2, (comm) =>
      comm.rank === 0
        ? comm.send({ send: bytes(700), peer: 1 })
        : comm.recv({ recv: bytes(700), peer: 0 }),
    );
    expect(times).toEqual([700, latencyNs + 700]);
  });

  test("the transfer begins when both ranks have made the call", async () => {
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

  test("a ring shift takes one message, whatever the number of ranks and the seed", async () => {
    for (const size of [1, 2, 3, 8]) {
      for (let seed = 0; seed < 5; seed++) {
        const shift = (comm: Communicator) => ({
          ...{ send: bytes(300), recv: bytes(300) },
          ...{ to: next(comm), from: previous(comm) },
        });
        const times = await timesAfter(size, (comm) => comm.sendRecv(shift(comm)), seed);
        expect(times).toEqual(new Array(size).fill(latencyNs + 300));
      }
    }
  });

  test("ring shifts that are awaited together run one after another", async () => {
    const times = await timesAfter(3, (comm) => {
      const shift = () =>
        comm.sendRecv({ send: bytes(300), recv: bytes(300), to: next(comm), from: previous(comm) });
      return Promise.all([shift(), shift(), shift()]);
    });
    expect(times).toEqual(new Array(3).fill(3 * (latencyNs + 300)));
  });

  test("messages of a group share the ports of their ranks", async () => {
    const times = await timesAfter(4, (comm) =>
      comm.group(() => {
        if (comm.rank > 0) void comm.send({ send: bytes(1000), peer: 0 });
        else for (const peer of [1, 2, 3]) void comm.recv({ recv: bytes(1000), peer });
      }),
    );
    expect(times[0]).toBe(latencyNs + 3000);
    for (const time of times.slice(1)) expect(time).toBeLessThanOrEqual(3000);
  });

  test("messages of a group to many share the send port of their rank", async () => {
    const times = await timesAfter(4, (comm) =>
      comm.rank > 0
        ? comm.recv({ recv: bytes(1000), peer: 0 })
        : comm.group(() => {
            for (const peer of [1, 2, 3]) void comm.send({ send: bytes(1000), peer });
          }),
    );
    expect(times[0]).toBe(3000);
    expect(times.slice(1).sort((a, b) => a - b)).toEqual(
      [1, 2, 3].map((sent) => latencyNs + sent * 1000),
    );
  });

  test("a late message of a group leaves the ports to the others, in any order", async () => {
    for (const late of [1, 2]) {
      for (let seed = 0; seed < 6; seed++) {
        const times = await timesAfter(
          3,
          (comm) => {
            if (comm.rank === late) comm.work(50_000);
            return comm.group(() => {
              if (comm.rank > 0) void comm.send({ send: bytes(1000), peer: 0 });
              else for (const peer of [1, 2]) void comm.recv({ recv: bytes(1000), peer });
            });
          },
          seed,
        );
        expect(times[0]).toBe(50_000 + latencyNs + 1000);
        expect([times[late], times[3 - late]]).toEqual([51_000, 1000]);
      }
    }
  });

  test("a message without bytes waits for no port", async () => {
    const times = await timesAfter(3, (comm) => {
      if (comm.rank === 2) comm.work(500);
      const recv = bytes(comm.rank === 1 ? 1000 : 0);
      if (comm.rank > 0) return comm.recv({ recv, peer: 0 });
      return comm.group(() => {
        void comm.send({ send: bytes(1000), peer: 1 });
        void comm.send({ send: bytes(0), peer: 2 });
      });
    });
    expect(times).toEqual([1000, 1000 + latencyNs, 500 + latencyNs]);
  });

  test("a message fits into a gap between others only when it is short enough", async () => {
    for (const [length, end] of [
      [400, 400],
      [700, 2000 + 700],
    ] as const) {
      const times = await timesAfter(3, async (comm) => {
        // Rank 1's message takes rank 0's send port from 1000 to 2000, before rank 2 has really come.
        if (comm.rank === 1) comm.work(1000);
        if (comm.rank === 2) {
          comm.work(500);
          await new Promise((resolve) => setTimeout(resolve, 3));
        }
        if (comm.rank > 0) {
          await comm.recv({ recv: bytes(comm.rank === 1 ? 1000 : length), peer: 0 });
        } else {
          await comm.group(() => {
            void comm.send({ send: bytes(1000), peer: 1 });
            void comm.send({ send: bytes(length), peer: 2 });
          });
        }
      });
      expect(times[1]).toBe(2000 + latencyNs);
      expect(times[2]).toBe((length === 400 ? 500 : 0) + end + latencyNs);
    }
  });

  test("of messages matched at the same time, the first one able to leave goes first", async () => {
    for (const early of [1, 2]) {
      const times = await timesAfter(3, async (comm) => {
        if (comm.rank > 0) {
          if (comm.rank !== early) comm.work(500);
          return comm.send({ send: bytes(1000), peer: 0 });
        }
        await new Promise((resolve) => setTimeout(resolve, 3));
        return comm.group(() => {
          for (const peer of [1, 2]) void comm.recv({ recv: bytes(1000), peer });
        });
      });
      expect([times[0], times[early], times[3 - early]]).toEqual([latencyNs + 2000, 1000, 1500]);
    }
  });

  test("all pairs of a group keep every port busy, with every seed", async () => {
    const size = 5;
    for (let seed = 0; seed < 10; seed++) {
      const times = await timesAfter(
        size,
        (comm) =>
          comm.group(() => {
            for (let peer = 0; peer < size; peer++) {
              if (peer === comm.rank) continue;
              void comm.send({ send: bytes(1000), peer });
              void comm.recv({ recv: bytes(1000), peer });
            }
          }),
        seed,
      );
      for (const time of times) {
        expect(time).toBeGreaterThanOrEqual(latencyNs + (size - 1) * 1000);
        // A receive port may stand idle until the last message has left, and no longer.
        expect(time).toBeLessThanOrEqual(latencyNs + 2 * (size - 1) * 1000);
      }
    }
  });

  test("a call after a group waits for the whole group, a group for all earlier calls", async () => {
    const times = await timesAfter(2, (comm) => {
      const peer = 1 - comm.rank;
      const first = comm.send.bind(comm, { send: bytes(100), peer });
      const data = () => ({ send: bytes(200), recv: bytes(200), to: peer, from: peer });
      return Promise.all([
        comm.rank === 0 ? first() : comm.recv({ recv: bytes(100), peer }),
        comm.group(() => {
          for (let twice = 0; twice < 2; twice++) void comm.sendRecv(data());
        }),
        comm.sendRecv(data()),
      ]);
    });
    expect(times).toEqual(new Array(2).fill(100 + 200 * 3 + 3 * latencyNs));
  });
});
