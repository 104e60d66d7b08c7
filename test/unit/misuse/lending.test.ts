/** Strict lending on the simulation: writing what was lent is an error, reading it is not. */

import { type Backend, type Communicator, createWorld } from "twinccl";
import type { Work } from "twinccl/backend";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { host } from "../../conformance/host-backend.ts";
import { expectHealthy, within } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

type Outcome = readonly [code: string, field?: string | undefined, ranks?: readonly number[]];

const outcome = (op: PromiseLike<unknown>): PromiseLike<Outcome> =>
  op.then(
    () => ["ok"] as const,
    ({ code, field, ranks }: Thrown) => [code, field, [...ranks]] as const,
  );

/** Rank 0 has its turn first and comes as far as it can; so its memory is lent for a while. */
async function strictly<T>(
  size: number,
  program: (comm: Communicator, turn: Promise<void>) => Promise<T>,
): Promise<T[]> {
  const world = await createWorld({ backend: sim({ strict: true }), size });
  let next: () => void = () => undefined;
  const others = new Promise<void>((resolve) => {
    next = resolve;
  });
  try {
    const results = await within(
      3000,
      world.run((comm) => {
        if (comm.rank > 0) return program(comm, others);
        setTimeout(next, 0);
        return program(comm, Promise.resolve());
      }),
    );
    await expectHealthy(world);
    return results;
  } finally {
    await world.close();
  }
}

const fault: Outcome = ["ERR_COMM_ARG", "send", [0]];

describe("strict lending", () => {
  test.each([
    ["fill", (buffer: { fill(value: number): unknown }) => buffer.fill(9)],
    [
      "copyFrom",
      (buffer: { copyFrom(array: Int32Array): unknown }) => buffer.copyFrom(Int32Array.of(1, 2)),
    ],
  ] as const)("finds %s into a send that is lent, and nothing is written", async (_, write) => {
    const results = await strictly(3, async (comm, turn) => {
      await turn;
      const send = comm.alloc("int32", 2).fill(1);
      const recv: Int32Array = new Int32Array(2).fill(7);
      const op = comm.allReduce({ send, recv: recv as never, op: "sum" });
      if (comm.rank === 0) write(send as never);
      return [await outcome(op), [...recv]];
    });
    expect(results).toEqual(new Array(3).fill([fault, [7, 7]]));
  });

  test("finds a write to a host array, of one element, in place", async () => {
    const results = await strictly(2, async (comm, turn) => {
      await turn;
      const send: Float32Array = new Float32Array(100).fill(comm.rank);
      const op = comm.allReduce({ send, op: "sum" });
      if (comm.rank === 0) send[99] = 5;
      return [await outcome(op), send[0], send[99]];
    });
    expect(results).toEqual([
      [fault, 0, 5],
      [fault, 1, 1],
    ]);
  });

  test("finds a root's write during a broadcast", async () => {
    const results = await strictly(3, async (comm, turn) => {
      await turn;
      const data: Int32Array = new Int32Array(2).fill(comm.rank);
      const op = comm.broadcast({ recv: data, root: 0 });
      if (comm.rank === 0) data.fill(4);
      return [await outcome(op), data[0]];
    });
    expect(results).toEqual([
      [fault, 4],
      [fault, 1],
      [fault, 2],
    ]);
  });

  test("allows reads of lent memory, and writes beside it", async () => {
    const results = await strictly(2, async (comm, turn) => {
      await turn;
      const whole: Int32Array = new Int32Array(6).fill(comm.rank + 1);
      const op = comm.allReduce({ send: whole.subarray(2, 4), op: "sum" });
      const read = whole[2];
      whole[1] = 8;
      whole[4] = 9;
      // The last rank to come is served at once.
      return [await outcome(op), comm.rank === 0 ? read : 2, [...whole]];
    });
    expect(results).toEqual([
      [["ok"], 1, [1, 8, 3, 3, 9, 1]],
      [["ok"], 2, [2, 8, 3, 3, 9, 2]],
    ]);
  });

  test("allows writes after the call, and before the next one", async () => {
    const results = await strictly(2, async (comm) => {
      const send = new Int32Array(1);
      for (let call = 0; call < 3; call++) {
        send[0] = call;
        await comm.allReduce({ send, op: "sum" });
      }
      return send[0];
    });
    expect(results).toEqual([4, 4]);
  });

  test("changes no result", async () => {
    const results = await strictly(4, async (comm) => {
      const data = comm.alloc("int32", 8).fill(comm.rank + 1);
      const recv = comm.alloc("int32", 2);
      await comm.reduceScatter({ send: data, recv, op: "sum" });
      await comm.allGather({ send: recv, recv: data });
      const [to, from] = [(comm.rank + 1) % 4, (comm.rank + 3) % 4];
      await comm.sendRecv({ send: data, recv: comm.alloc("int32", 8), to, from });
      return Array.from(await data.toHost());
    });
    expect(results).toEqual(new Array(4).fill(new Array(8).fill(10)));
  });

  test("is off by default", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const codes = await world.run(async (comm) => {
      if (comm.rank === 1) await new Promise((resolve) => setTimeout(resolve, 3));
      const send = new Int32Array(2);
      const op = comm.allReduce({ send, recv: new Int32Array(2), op: "sum" });
      if (comm.rank === 0) send.fill(3);
      return outcome(op);
    });
    expect(codes).toEqual([["ok"], ["ok"]]);
    await world.close();
  });

  test("fails every rank with an error of its own", async () => {
    const ranks = await strictly(3, async (comm, turn) => {
      await turn;
      const send = new Int32Array(2);
      const op = comm.allReduce({ send, recv: new Int32Array(2), op: "sum" });
      if (comm.rank === 0) send.fill(3);
      return op.catch((error: Thrown) => error.rank);
    });
    expect(ranks).toEqual([0, 1, 2]);
  });

  test("finds a write into a message that is lent", async () => {
    const results = await strictly(2, async (comm, turn) => {
      await turn;
      const data: Int32Array = new Int32Array(2).fill(comm.rank);
      if (comm.rank === 1) return [await outcome(comm.recv({ recv: data, peer: 0 })), data[0]];
      const op = comm.send({ send: data, peer: 1 });
      data.fill(4);
      return [await outcome(op), 4];
    });
    expect(results).toEqual([
      [fault, 4],
      [fault, 1],
    ]);
  });

  test("raises no false alarm when consecutive calls use the same memory", async () => {
    const results = await strictly(3, async (comm) => {
      const send = new Int32Array(1).fill(1);
      const ops = [1, 2, 3].map(() => comm.allReduce({ send, op: "sum" }));
      return [await Promise.all(ops.map(outcome)), send[0]];
    });
    expect(results).toEqual(new Array(3).fill([[["ok"], ["ok"], ["ok"]], 27]));
  });

  test("finds a write into the pending output of an earlier call", async () => {
    const results = await strictly(2, async (comm, turn) => {
      await turn;
      const whole = new Int32Array(4).fill(1);
      const first = comm.allReduce({ send: whole.subarray(0, 2), op: "sum" });
      const second = comm.allReduce({ send: whole, op: "sum" });
      if (comm.rank === 0) whole[3] = 9;
      return [await outcome(first), await outcome(second), [...whole]];
    });
    expect(results).toEqual([
      [["ok"], fault, [2, 2, 1, 9]],
      [["ok"], fault, [2, 2, 1, 1]],
    ]);
  });

  test("finds a write into a receive that is lent", async () => {
    const results = await strictly(2, async (comm, turn) => {
      await turn;
      const recv: Int32Array = new Int32Array(2);
      const op = comm.allReduce({ send: new Int32Array(2), recv, op: "sum" });
      if (comm.rank === 0) recv[1] = 3;
      return [await outcome(op), [...recv]];
    });
    const careless: Outcome = ["ERR_COMM_ARG", "recv", [0]];
    expect(results).toEqual([
      [careless, [0, 3]],
      [careless, [0, 0]],
    ]);
  });

  test("ignores the messages of other ranks", async () => {
    const results = await strictly(3, async (comm, turn) => {
      await turn;
      const { rank } = comm;
      const send: Int32Array = new Int32Array(2).fill(rank);
      const recv: Int32Array = new Int32Array(2).fill(7);
      // Ranks 0 and 1 exchange a message with themselves, beside one that rank 0 spoils for rank 2.
      const op = comm.group(() => {
        void comm.sendRecv({ send: Int32Array.of(rank, rank), recv, to: rank, from: rank });
      });
      const spoiled =
        rank === 1
          ? undefined
          : rank === 0
            ? comm.send({ send, peer: 2 })
            : comm.recv({ recv: send, peer: 0 });
      if (rank === 0) send[0] = 9;
      const spoiledOutcome = spoiled === undefined ? undefined : await outcome(spoiled);
      return [await outcome(op), [...recv], spoiledOutcome];
    });
    expect(results).toEqual([
      [["ok"], [0, 0], fault],
      [["ok"], [1, 1], undefined],
      [["ok"], [2, 2], fault],
    ]);
  });

  test("fails a sendRecv with an error of each rank's own, and names the call", async () => {
    const results = await strictly(2, async (comm, turn) => {
      await turn;
      const peer = 1 - comm.rank;
      const send = comm.alloc("int32", 2).fill(1);
      const op = comm.sendRecv({ send, recv: comm.alloc("int32", 2), to: peer, from: peer });
      if (comm.rank === 0) send.fill(5);
      return op.then(
        () => undefined,
        ({ rank, collective, call, field, ranks }: Thrown) => [
          rank,
          collective,
          call,
          field,
          ...ranks,
        ],
      );
    });
    expect(results).toEqual([
      [0, "send", 0, "send", 0],
      [1, "recv", 0, "send", 0],
    ]);
  });

  test("leaves a disposed buffer to its own error", async () => {
    const results = await strictly(2, async (comm, turn) => {
      await turn;
      const send = comm.alloc("int32", 2);
      const op = comm.allReduce({ send, op: "sum" });
      const after = comm.allReduce({ send: new Int32Array(1), op: "sum" });
      if (comm.rank === 0) send.dispose();
      return [await outcome(op), await outcome(after)];
    });
    const closed: Outcome = ["ERR_COMM_CLOSED", undefined, [0]];
    expect(results).toEqual([
      [closed, ["ok"]],
      [closed, ["ok"]],
    ]);
  });
});

test("a host array that is transferred while it is lent fails the call everywhere, and is not written", async () => {
  const world = await createWorld({ backend: sim(), size: 3 });
  const found = await within(
    3000,
    world.run(async (comm) => {
      const send: Float32Array = new Float32Array(4).fill(1);
      const recv: Float32Array = new Float32Array(4).fill(7);
      const op = comm.allReduce({ send, recv: recv as never, op: "sum" });
      if (comm.rank === 1) structuredClone(send, { transfer: [send.buffer as ArrayBuffer] });
      return [await outcome(op), [...recv]];
    }),
  );
  const closed: Outcome = ["ERR_COMM_CLOSED", undefined, [1]];
  expect(found).toEqual(new Array(3).fill([closed, [7, 7, 7, 7]]));
  await expectHealthy(world);
  await world.close();
});

test("a host array that is transferred while its call is under way fails the call everywhere", async () => {
  const inner = host();
  const late: Backend = {
    ...inner,
    open: async (request) => {
      const session = await inner.open(request);
      const execute = async (work: Work): Promise<void> => {
        await new Promise((resolve) => setImmediate(resolve));
        await session.execute(work);
      };
      return { ...session, execute };
    },
  };
  const world = await createWorld({ backend: late, size: 2 });
  const found = await within(
    3000,
    world.run(async (comm) => {
      const data: Float32Array = new Float32Array(4).fill(1);
      const op = comm.allReduce({ send: data, op: "sum" });
      await op.enqueued;
      if (comm.rank === 1) structuredClone(data, { transfer: [data.buffer as ArrayBuffer] });
      return outcome(op);
    }),
  );
  expect(found).toEqual([0, 1].map(() => ["ERR_COMM_CLOSED", undefined, [1]]));
  await expectHealthy(world);
  await world.close();
});

test("a message with a transferred host array fails on both ends", async () => {
  const world = await createWorld({ backend: sim(), size: 2 });
  const found = await within(
    3000,
    world.run(async (comm) => {
      const data: Float32Array = new Float32Array(4).fill(comm.rank);
      // The send is posted, and its array gone, before the receive that it meets is made.
      if (comm.rank === 1) await new Promise((resolve) => setTimeout(resolve, 0));
      const op =
        comm.rank === 0
          ? comm.send({ send: data, peer: 1 })
          : comm.recv({ recv: data as never, peer: 0 });
      if (comm.rank === 0) structuredClone(data, { transfer: [data.buffer as ArrayBuffer] });
      const spoiledOutcome = await outcome(op);
      return [spoiledOutcome, data.length === 0 ? "gone" : [...data]];
    }),
  );
  const closed: Outcome = ["ERR_COMM_CLOSED", undefined, [0]];
  expect(found).toEqual([
    [closed, "gone"],
    [closed, [1, 1, 1, 1]],
  ]);
  await world.close();
});
