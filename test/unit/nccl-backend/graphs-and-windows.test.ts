/** Recordings and symmetric memory: what is taken for them, when, and that it is given back in the right order. */
import { expect, test } from "vitest";
import { cudaError } from "../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../support/planted.ts";
import { cleanGpus, inWorld, turns } from "./gpus.ts";

test("recordings run only when replayed, on the contents of then", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 3, async (world) => {
    const seen = await world.run(async (comm) => {
      const data = comm.alloc("int32", 2).fill(1);
      const graph = await comm.capture(() => {
        void comm.allReduce({ send: data, op: "sum" });
        void comm.allReduce({ send: data, op: { preMul: 2 } });
      });
      const before = (await data.toHost())[0];
      await graph.replay();
      const once = (await data.toHost())[0];
      data.fill(comm.rank);
      await graph.replay();
      return [before, once, (await data.toHost())[0]];
    });
    for (const each of seen) expect(each).toEqual([1, 18, 18]);
    expect(gpus.machine.count("graphLaunch")).toBe(6);
  });
});

test("a capture that fails is ended on every device, and the world goes on", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 2, async (world) => {
    const planned = cudaError("cudaGraphInstantiateWithFlags", 2, "cudaErrorMemoryAllocation");
    gpus.machine.failNext("instantiation", planned, 1);
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 2);
      const capture = comm.capture(() => {
        void comm.allReduce({ send: data, op: "sum" });
      });
      await expect(capture).rejects.toBe(planned);
    });
    expect(gpus.machine.capturing).toBe(false);
    await expectHealthy(world);
  });
});

test("symmetric memory is registered at its first use, once, and its window goes before it", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 2, async (world) => {
    await world.run(async (comm) => {
      const data = comm.alloc("float32", 8, { symmetric: true }).fill(1.5);
      expect(gpus.machine.count("registerWindow")).toBe(0);
      await comm.allReduce({ send: data, op: "sum" });
      await comm.allReduce({ send: data, op: "sum" });
      expect(Array.from(await data.toHost())).toEqual(new Array(8).fill(6));
      expect(gpus.machine.count("registerWindow")).toBe(2);
      await comm.barrier();
      data.dispose();
      await turns(20);
    });
    expect(gpus.machine.count("deregisterWindow")).toBe(2);
    expect(gpus.machine.count("memFree")).toBe(2);
  });
});
