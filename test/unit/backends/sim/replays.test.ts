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
