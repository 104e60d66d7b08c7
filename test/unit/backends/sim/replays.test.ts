/** Replays of recordings on the simulation: calls are planned and bound once. */
import { createWorld } from "twinccl";
import { type BoundCall, cpu, type Executor, sim } from "twinccl/sim";
import { expect, test } from "vitest";

test("replays hand the same bound calls to the executor each time", async () => {
  const inner = cpu();
  const bound: BoundCall[] = [];
  const executor: Executor = {
    name: "noting",
    execute(call) {
      bound.push(call);
      return inner.execute(call);
    },
  };
  const replays = 5;
  const world = await createWorld({ backend: sim({ executor }), size: 3 });
  try {
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 4).fill(1);
      const graph = await comm.capture(() => {
        for (let call = 0; call < 2; call++) void comm.broadcast({ recv: data, root: 0 });
      });
      for (let i = 0; i < replays; i++) await graph.replay();
      expect((await data.toHost())[0]).toBe(1);
    });
  } finally {
    await world.close();
  }
  expect(bound).toHaveLength(2 * replays);
  expect(new Set(bound).size).toBe(2);
});

test("replays submit recorded calls in their order to an executor that takes time", async () => {
  const inner = cpu();
  const executor: Executor = {
    name: "late",
    execute: async (call) => {
      await undefined;
      await inner.execute(call);
    },
  };
  const world = await createWorld({ backend: sim({ executor }), size: 2 });
  try {
    const sums = await world.run(async (comm) => {
      const send = comm.alloc("int32", 4).copyFrom(Int32Array.of(1, 2, 3, 4));
      const [block, all] = [comm.alloc("int32", 2), comm.alloc("int32", 4)];
      const graph = await comm.capture(() => {
        comm.reduceScatterv({ send, recv: block, op: "sum", sendCounts: [2, 2] });
        comm.allGather({ send: block, recv: all });
      });
      await graph.replay();
      return [...(await all.toHost())];
    });
    expect(sums).toEqual([
      [2, 4, 6, 8],
      [2, 4, 6, 8],
    ]);
  } finally {
    await world.close();
  }
});

test("a replay with a call that throws fails with the calls under way", async () => {
  let calls = 0;
  const executor: Executor = {
    name: "failing",
    execute: () => {
      if (++calls === 2) throw new Error("the second one");
      return Promise.resolve().then(() => Promise.reject(new Error("the first one, later")));
    },
  };
  const world = await createWorld({ backend: sim({ executor }), size: 1 });
  const unhandled: unknown[] = [];
  const note = (error: unknown): number => unhandled.push(error);
  process.on("unhandledRejection", note);
  try {
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 4);
      const graph = await comm.capture(() => {
        for (let call = 0; call < 2; call++) void comm.allReduce({ send: data, op: "sum" });
      });
      await expect(graph.replay()).rejects.toThrow("the second one");
      await new Promise((resolve) => setTimeout(resolve, 5));
    });
  } finally {
    process.off("unhandledRejection", note);
    await world.close();
  }
  expect(unhandled).toEqual([]);
});
