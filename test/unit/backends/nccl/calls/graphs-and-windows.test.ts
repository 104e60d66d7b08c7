/** Recordings and symmetric memory: what is taken for them, when, and that it is given back in the right order. */
import { expect, test } from "vitest";
import { cudaError, fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, seen, turns } from "../gpus.ts";

quickTime();

test("recordings run only when replayed, on the contents at the replay", async () => {
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

test.each([
  ["beginCapture", "cudaStreamBeginCapture"],
  ["instantiation", "cudaGraphInstantiateWithFlags"],
])(
  "a capture that fails (%s) is ended on every device, and the world continues",
  async (step, cCall) => {
    const gpus = cleanGpus({ staging: "copy" });
    await inWorld(gpus, 2, async (world) => {
      const planned = cudaError(cCall, 2, "cudaErrorMemoryAllocation");
      gpus.machine.failNext(step, planned, 1);
      await world.run(async (comm) => {
        const data = comm.alloc("int32", 2);
        const array = new Int32Array(2);
        const record = () =>
          comm.capture(() => {
            void comm.allReduce({ send: data, op: "sum" });
            void comm.allReduce({ send: array, op: "sum" });
          });
        await expect(record()).rejects.toEqual(
          seen(planned, { rank: comm.rank, size: 2, comm: "world", collective: "capture" }),
        );
        await comm.barrier();
        const made = gpus.machine.count("malloc");
        (await record()).dispose();
        await comm.barrier();
        expect(gpus.machine.count("malloc"), "what it had taken is there again").toBe(made);
      });
      expect(gpus.machine.capturing).toBe(false);
      await expectHealthy(world);
    });
  },
);

test("symmetric memory is registered once, at its first use, and freed after its window", async () => {
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

test("a disposed recording is freed on its device, once earlier replays are done", async () => {
  const gpus = cleanGpus();
  const { machine } = gpus;
  await inWorld(gpus, 2, async (world) => {
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 2).fill(1);
      const record = () =>
        comm.capture(() => {
          void comm.allReduce({ send: data, op: "sum" });
        });
      const [graph, other] = [await record(), await record()];
      await graph.replay();
      await comm.barrier();
      expect(machine.graphs.size).toBe(4);
      machine.hold();
      const last = graph.replay();
      await turns();
      graph.dispose();
      await turns();
      expect(machine.graphs.size, "a launch is under way").toBe(4);
      machine.release();
      await last;
      await comm.barrier();
      expect(machine.graphs.size).toBe(2);
      graph.dispose();
      await expect(graph.replay()).rejects.toThrow(/the recording was disposed, needs a live one/);
      await other.replay();
      expect([...(await data.toHost())]).toEqual([8, 8]);
      await comm.barrier();
      if (comm.rank === 0) other.dispose();
      await turns();
      expect(machine.graphs.size, "each rank gives back its own").toBe(1);
      await comm.barrier();
    });
  });
});

test("a disposed recording is freed after a replay under way, although a later one was cancelled", async () => {
  const gpus = cleanGpus();
  const { machine } = gpus;
  await inWorld(gpus, 2, async (world) => {
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 2).fill(1);
      const graph = await comm.capture(() => void comm.allReduce({ send: data, op: "sum" }));
      await graph.replay();
      await comm.barrier();
      machine.hold();
      const first = graph.replay();
      await turns();
      if (comm.rank === 0) {
        const abort = new AbortController();
        const [second, third] = [1, 2].map(() => graph.replay({ signal: abort.signal }));
        await turns();
        abort.abort();
        await expect(second).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
        await expect(third).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
        graph.dispose();
        await turns();
        expect(machine.graphs.size, "a launch is under way").toBe(2);
        machine.release();
      }
      await first;
      await turns();
      expect(machine.graphs.size, "of the other rank").toBe(1);
    });
  });
});

test("a recording ends with its communicator", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 2, async (world) => {
    const graphs = await world.run(async (comm) => {
      const half = await comm.split({ color: 0 });
      const data = comm.alloc("int32", 1);
      const record = (on = comm) =>
        on.capture(() => {
          void on.allReduce({ send: data, op: "sum" });
        });
      const [own, child] = [await record(), await record(half)];
      await half.close();
      await comm.barrier();
      expect([own.disposed, child.disposed]).toEqual([false, true]);
      await comm.close();
      return own;
    });
    expect(gpus.machine.graphs.size).toBe(0);
    await world.run(async () => {
      for (const graph of graphs) {
        expect(graph.disposed).toBe(true);
        await expect(graph.replay()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      }
    });
  });
});

const where = { rank: 0, size: 1, comm: "world", device: "cuda:0" };

test("a recording that cannot be freed is reported when the world closes", async () => {
  const gpus = cleanGpus();
  const planned = cudaError("cudaGraphExecDestroy", 1, "cudaErrorInvalidValue");
  const closing = inWorld(gpus, 1, async (world) => {
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 1);
      const graph = await comm.capture(() => {
        void comm.allReduce({ send: data, op: "sum" });
      });
      gpus.machine.failNext("graphDestroy", planned);
      graph.dispose();
    });
  });
  await expect(closing).rejects.toEqual(seen(planned, where));
  gpus.machine.graphs.clear();
});

test("a recording that cannot be freed with its communicator is named by rank and communicator", async () => {
  const gpus = cleanGpus();
  const planned = cudaError("cudaGraphExecDestroy", 1, "cudaErrorInvalidValue");
  const closing = inWorld(gpus, 1, async (world) => {
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 1);
      await comm.capture(() => {
        void comm.allReduce({ send: data, op: "sum" });
      });
    });
    gpus.machine.failNext("graphDestroy", planned);
  });
  await expect(closing).rejects.toEqual(seen(planned, where));
  gpus.machine.graphs.clear();
});

test("a window that cannot be released with its communicator is named by rank and communicator", async () => {
  // The window cannot be given back: the fake complains about it.
  const gpus = fakeGpus();
  const planned = ncclError("ncclCommWindowDeregister", 1, "ncclUnhandledCudaError");
  const closing = inWorld(gpus, 1, async (world) => {
    await world.run(async (comm) => {
      const data = comm.alloc("int32", 1, { symmetric: true });
      await comm.allReduce({ send: data, op: "sum" });
    });
    gpus.machine.failNext("deregisterWindow", planned);
  });
  await expect(closing).rejects.toEqual(seen(planned, where));
});
