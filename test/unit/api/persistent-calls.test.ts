/** Calls that are prepared once and started many times: their results, numbers, places and refusals. */
import {
  type Backend,
  type Communicator,
  createWorld,
  type DeviceBuffer,
  type WorldError,
} from "twinccl";
import { sim } from "twinccl/sim";
import { afterEach, describe, expect, test } from "vitest";
import { fakeGpus } from "../../support/fake-gpus/index.ts";
import { within } from "../../support/planted.ts";

const size = 2;

/** Runs a program on two ranks and gives its results. */
async function run<T>(backend: Backend, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend, size });
  return within(5000, world.run(program)).finally(() => world.close());
}

const hostOf = async (buffer: unknown): Promise<number[]> =>
  Array.from((await (buffer as DeviceBuffer<"int32">).toHost()) as Int32Array);

const refusalOf = (work: () => unknown): Record<string, unknown> => {
  try {
    work();
  } catch (error) {
    return error as Record<string, unknown>;
  }
  return {};
};

const fakes: ReturnType<typeof fakeGpus>[] = [];

afterEach(() => {
  for (const { machine } of fakes.splice(0)) expect(machine.complaints).toEqual([]);
});

const backends: Record<string, () => Backend> = {
  "the simulation": () => sim(),
  "fake GPUs": () => {
    const gpus = fakeGpus();
    fakes.push(gpus);
    return gpus.backend();
  },
};

describe.each(Object.entries(backends))("a prepared call on %s", (_, backendOf) => {
  test("takes what its buffers hold at each start", async () => {
    const sums = await run(backendOf(), async (comm) => {
      const send = comm.alloc("int32", 1).fill(1);
      const sum = comm.prepare(() => comm.allReduce({ send, op: "sum" }));
      for (let step = 0; step < 3; step++) expect(await sum.start()).toBe(send);
      const several = [sum.start(), sum.start(), sum.start()];
      await Promise.all(several);
      expect(several.map(({ call }) => call)).toEqual([3, 4, 5]);
      expect(comm.stats().calls).toEqual({ allReduce: 6 });
      return hostOf(send);
    });
    expect(sums).toEqual([[64], [64]]);
  });

  test("meets the same call of another rank in any form", async () => {
    const sums = await run(backendOf(), async (comm) => {
      const send = comm.alloc("int32", 2).fill(comm.rank + 1);
      const args = { send, op: "max" } as const;
      const largest = comm.prepare(() => comm.allReduce(args));
      for (let step = 0; step < 4; step++) {
        await (comm.rank === 0 ? largest.start() : comm.allReduce(args));
      }
      return hostOf(send);
    });
    expect(sums).toEqual([
      [2, 2],
      [2, 2],
    ]);
  });

  test("shares a buffer with other prepared calls", async () => {
    const found = await run(backendOf(), async (comm) => {
      const send = comm.alloc("int32", 1).fill(comm.rank + 1);
      const recv = comm.alloc("int32", size);
      const sum = comm.prepare(() => comm.allReduce({ send, op: "sum" }));
      const all = comm.prepare(() => comm.allGather({ send, recv }));
      const gate = comm.prepare(() => comm.barrier());
      for (let step = 0; step < 3; step++) {
        await gate.start();
        await all.start();
        await sum.start();
      }
      return hostOf(recv);
    });
    expect(found).toEqual([
      [6, 6],
      [6, 6],
    ]);
  });

  test("is a part of a group and of a capture", async () => {
    const found = await run(backendOf(), async (comm) => {
      const [a, b] = [comm.alloc("int32", 1).fill(1), comm.alloc("int32", 1).fill(3)];
      const calls = [a, b].map((send) => comm.prepare(() => comm.allReduce({ send, op: "sum" })));
      const startAll = (): void => {
        for (const call of calls) void call.start();
      };
      for (let step = 0; step < 2; step++) await comm.group(startAll);
      const graph = await comm.capture(startAll);
      await graph.replay();
      return [...(await hostOf(a)), ...(await hostOf(b))];
    });
    expect(found).toEqual([
      [8, 24],
      [8, 24],
    ]);
  });

  test("may be a message", async () => {
    const found = await run(backendOf(), async (comm) => {
      const peer = 1 - comm.rank;
      const send = comm.alloc("int32", 1).fill(comm.rank + 5);
      const recv = comm.alloc("int32", 1);
      const swap = comm.prepare(() => comm.sendRecv({ send, to: peer, recv, from: peer }));
      for (let step = 0; step < 2; step++) expect(await swap.start()).toBe(recv);
      return hostOf(recv);
    });
    expect(found).toEqual([[6], [5]]);
  });

  test("keeps the lists and the scalar that it was prepared with", async () => {
    const found = await run(backendOf(), async (comm) => {
      const send = comm.alloc("int32", comm.rank + 1).fill(comm.rank + 1);
      const recv = comm.alloc("int32", 3);
      const recvCounts = [1, 2];
      const all = comm.prepare(() => comm.allGatherv({ send, recv, recvCounts }));
      recvCounts.reverse();
      const op = { preMul: 2 };
      const one = comm.alloc("float32", 1).fill(1);
      const scaled = comm.prepare(() => comm.allReduce({ send: one, op }));
      op.preMul = 100;
      for (let step = 0; step < 2; step++) await all.start();
      await scaled.start();
      return [...(await hostOf(recv)), ...((await one.toHost()) as Float32Array)];
    });
    expect(found).toEqual([
      [1, 2, 2, 4],
      [1, 2, 2, 4],
    ]);
  });

  test("takes a deadline and a signal at its start", async () => {
    await run(backendOf(), async (comm) => {
      const gate = comm.prepare(() => comm.barrier());
      await gate.start({ timeoutMs: 1000 });
      const signal = AbortSignal.abort(new Error("enough"));
      await expect(gate.start({ signal })).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
      await gate.start();
    });
  });

  test("exchanges counts at each start", async () => {
    const found = await run(backendOf(), async (comm) => {
      const send = comm.alloc("int32", 3).fill(comm.rank + 1);
      const sendCounts = comm.rank === 0 ? [1, 2] : [2, 1];
      const spread = comm.prepare(() => comm.allToAllv({ send, sendCounts }));
      await spread.start();
      const { recv, recvCounts } = await spread.start();
      return [...(await hostOf(recv)), ...recvCounts];
    });
    expect(found).toEqual([
      [1, 2, 2, 1, 2],
      [1, 1, 2, 2, 1],
    ]);
  });

  test("is refused with a disposed buffer, and after the close of its communicator", async () => {
    await run(backendOf(), async (comm) => {
      const [child, send] = [await comm.split({ color: 0 }), comm.alloc("int32", 1)];
      const sum = comm.prepare(() => comm.allReduce({ send, op: "sum" }));
      const gate = child.prepare(() => child.barrier());
      await Promise.all([sum.start(), gate.start()]);
      send.dispose();
      await child.close();
      await expect(sum.start()).rejects.toMatchObject({
        code: "ERR_COMM_CLOSED",
        message: expect.stringContaining("a buffer of the prepared allReduce was disposed"),
      });
      await expect(gate.start()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      await comm.barrier();
    });
  });

  test("notifies hooks at each start", async () => {
    await run(backendOf(), async (comm) => {
      const gate = comm.prepare(() => comm.barrier());
      await gate.start();
      const seen: string[] = [];
      const unhook = comm.hooks.before(({ collective, call }) => {
        seen.push(`${collective} ${call}`);
      });
      await gate.start();
      unhook();
      await gate.start();
      expect(seen).toEqual(["barrier 1"]);
    });
  });
});

describe("prepare refuses", () => {
  const refused = (callback: (comm: Communicator) => unknown) =>
    run(sim(), async (comm) => {
      const error = refusalOf(() => comm.prepare((() => callback(comm)) as never));
      await comm.barrier();
      return error;
    });

  test.each([
    ["no call", () => undefined, "call", "0 calls"],
    [
      "two calls",
      (comm: Communicator) => {
        void comm.barrier();
        return comm.barrier();
      },
      "call",
      "2 calls",
    ],
    [
      "a call that is not returned",
      (comm: Communicator) => void comm.barrier(),
      "call",
      "returned undefined",
    ],
    [
      "an async callback",
      async (comm: Communicator) => comm.barrier(),
      "call",
      "returned a promise",
    ],
    [
      "a callback that goes on behind the call",
      (comm: Communicator) => comm.barrier().then(() => 1),
      "call",
      "returned a promise",
    ],
    ["a split", (comm: Communicator) => comm.split({ color: 0 }), "call", "split"],
    [
      "a deadline",
      (comm: Communicator) => comm.barrier({ timeoutMs: 5 }),
      "timeoutMs",
      "prepare: timeoutMs: found 5, needs none",
    ],
    [
      "a wrong argument",
      (comm: Communicator) => comm.allReduce({ send: comm.alloc("int8", 1), op: "sun" as never }),
      "op",
      "sun",
    ],
  ])("%s", async (_, callback, field, text) => {
    for (const error of await refused(callback)) {
      expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
      expect(String(error["message"])).toContain(text);
    }
  });

  test("a group, with the way to start its calls together", async () => {
    const found = await run(sim(), async (comm) =>
      refusalOf(() => comm.prepare(() => comm.group(() => void comm.barrier()))),
    );
    for (const error of found) {
      expect(error).toMatchObject({
        ...{ code: "ERR_COMM_ARG", field: "call" },
        message: expect.stringContaining("found a callback that returned a group or another call"),
        hint: "prepare each call of a group, and start them in comm.group",
      });
    }
  });

  test("a value that is not a function", async () => {
    const [error] = await run(sim(), async (comm) => refusalOf(() => comm.prepare(7 as never)));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "call" });
  });

  test("options behind the callback", async () => {
    const [error] = await run(sim(), async (comm) =>
      // @ts-expect-error: a program in JavaScript
      refusalOf(() => comm.prepare(() => comm.barrier(), { timeoutMs: 5 })),
    );
    expect(error).toMatchObject({
      ...{ code: "ERR_COMM_ARG", field: "options" },
      hint: "pass timeoutMs and signal to start",
    });
  });

  test("other options than a deadline and a signal at the start", async () => {
    await run(sim(), async (comm) => {
      const gate = comm.prepare(() => comm.barrier());
      const wrong = gate.start({ root: 1 } as never);
      await expect(wrong).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "root" });
      await expect(wrong).rejects.toThrow("start: root: found 1, needs timeoutMs or signal");
      await expect(gate.start(7 as never)).rejects.toMatchObject({ field: "options" });
      await gate.start();
    });
  });

  test("one receive twice in a group", async () => {
    await run(sim(), async (comm) => {
      const recv = comm.alloc("int32", 1);
      const receive = comm.prepare(() => comm.recv({ recv, peer: 1 - comm.rank }));
      const both = comm.group(() => {
        receive.start();
        receive.start();
      });
      await expect(both).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "recv" });
    });
  });

  test("a call on another communicator", async () => {
    const failure = run(sim(), async (comm) => {
      const child = await comm.split({ color: 0 });
      comm.prepare(() => child.barrier());
    });
    await expect(failure).rejects.toThrow("inside of another communicator's prepare");
  });

  test("a replay, and a close", async () => {
    const failures = await run(sim(), async (comm) => {
      const graph = await comm.capture(() => void comm.barrier());
      const replay = refusalOf(() => comm.prepare(() => graph.replay()));
      const close = refusalOf(() => comm.prepare(() => comm.close() as never));
      return [String(replay["message"]), String(close["message"])];
    });
    for (const [replay, close] of failures) {
      expect(replay).toContain('replay: called on "world" inside of its own prepare');
      expect(close).toContain('close: called on "world" inside of its own prepare');
    }
  });
});

test("the operation of a prepared call is never done, and says so", async () => {
  await run(sim(), async (comm) => {
    let inner: PromiseLike<unknown> = Promise.resolve();
    comm.prepare(() => {
      const op = comm.barrier();
      inner = op;
      return op;
    });
    await expect(inner).rejects.toMatchObject({ hint: "await call.start()" });
  });
});

test("prepared calls that differ between ranks are a mismatch", async () => {
  const failure = run(sim(), async (comm) => {
    const send = comm.alloc("int32", 1);
    const call = comm.prepare(() => comm.allReduce({ send, op: comm.rank === 0 ? "sum" : "max" }));
    await call.start();
  });
  const error = (await failure.catch((thrown: unknown) => thrown)) as WorldError;
  expect(error.failures[0]?.error).toMatchObject({ code: "ERR_COMM_MISMATCH", field: "op" });
});
