/** TypedArrays in calls (`staging: "copy"`): which bytes travel when, in which order, and what is kept for the next call. */
import { asDType, type Communicator, createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { cudaError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";

quickTime();

const copying = (options: Parameters<typeof cleanGpus>[0] = {}) =>
  cleanGpus({ staging: "copy", ...options });

/** The result of every rank's program, in a world of copied arrays. */
async function ofRanks<T>(size: number, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  return await inWorld(copying(), size, (world) => world.run(program));
}

describe("an array", () => {
  test("has the result when the call settles, and not before", async () => {
    const gpus = copying();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const data = Float32Array.of(1, 2, 3);
        gpus.machine.hold();
        const op = comm.allReduce({ send: data, op: "sum" });
        await turns();
        expect([...data]).toEqual([1, 2, 3]);
        gpus.machine.release();
        expect(await op).toBe(data);
        expect([...data]).toEqual([2, 4, 6]);
      });
    });
  });

  test("may be part of a longer one, apart or in place; the rest is not written", async () => {
    const found = await ofRanks(2, async (comm) => {
      const memory = new ArrayBuffer(64);
      const all = new Int32Array(memory).fill(-7);
      const [send, recv] = [new Int32Array(memory, 4, 2), new Int32Array(memory, 16, 4)];
      send.set([10 + comm.rank, 20 + comm.rank]);
      await comm.allGather({ send, recv });
      const inPlace = recv.subarray(2 * comm.rank, 2 * comm.rank + 2).fill(comm.rank + 1);
      await comm.allGather({ send: inPlace, recv });
      await comm.reduceScatter({ send: recv, recv: inPlace, op: "prod" });
      return [...all];
    });
    const rest = Array<number>(8).fill(-7);
    expect(found).toEqual([
      [-7, 10, 20, -7, 1, 1, 2, 2, ...rest],
      [-7, 11, 21, -7, 1, 1, 4, 4, ...rest],
    ]);
  });

  test("keeps the gaps between blocks that arrive", async () => {
    const found = await ofRanks(2, async (comm) => {
      const recv = new Int16Array(8).fill(9);
      const bits = asDType(new Uint16Array(recv.buffer), "bfloat16");
      const send = asDType(Uint16Array.of(comm.rank + 1, comm.rank + 1), "bfloat16");
      const blocks = { recvCounts: [2, 2], recvOffsets: [1, 5] };
      await comm.allGatherv({ send, recv: bits, ...blocks });
      return [...recv];
    });
    for (const each of found) expect(each).toEqual([9, 1, 1, 9, 9, 2, 2, 9]);
  });

  test("carries a result into the next call, also without await", async () => {
    const found = await ofRanks(2, async (comm) => {
      const [a, b, c] = [Int32Array.of(1, 5), new Int32Array(2), new Int32Array(4)];
      void comm.allReduce({ send: a, op: "sum" });
      void comm.allReduce({ send: a, recv: b, op: { preMul: 10 } });
      void comm.allReduce({ send: b.subarray(0, 1), op: "sum" });
      void comm.allReduce({ send: a, op: "sum" });
      await comm.allGather({ send: b, recv: c });
      return [...a, ...b, ...c];
    });
    for (const each of found) expect(each).toEqual([4, 20, 80, 200, 80, 200, 80, 200]);
  });

  test("may be passed on in messages, also to the rank itself", async () => {
    const found = await ofRanks(3, async (comm) => {
      const [send, recv, own] = [Int8Array.of(comm.rank), new Int8Array(1), new Int8Array(1)];
      await comm.group(() => {
        void comm.send({ send, peer: (comm.rank + 1) % 3 });
        void comm.recv({ recv, peer: (comm.rank + 2) % 3 });
        void comm.sendRecv({ send, recv: own, to: comm.rank, from: comm.rank });
      });
      const none = new Int8Array(0);
      await comm.allReduce({ send: none, op: "sum" });
      return [recv[0], own[0]];
    });
    expect(found).toEqual([
      [2, 0],
      [0, 1],
      [1, 2],
    ]);
  });

  test("may stand beside a buffer", async () => {
    const found = await ofRanks(2, async (comm) => {
      const buffer = comm.alloc("float64", 2).fill(comm.rank);
      const array = new Float64Array(2);
      await comm.allReduce({ send: buffer, recv: array, op: "max" });
      await comm.allReduce({ send: array, recv: buffer, op: "sum" });
      return [...array, ...(await buffer.toHost())];
    });
    for (const each of found) expect(each).toEqual([1, 1, 2, 2]);
  });
});

describe("recordings", () => {
  test("read arrays at each replay and have results in them, without waiting in between too", async () => {
    const found = await ofRanks(2, async (comm) => {
      const [a, b] = [Int32Array.of(1), new Int32Array(1)];
      const graph = await comm.capture(() => {
        void comm.allReduce({ send: a, op: "sum" });
        void comm.allReduce({ send: a, recv: b, op: { preMul: 3 } });
      });
      expect([...a, ...b]).toEqual([1, 0]);
      await graph.replay();
      const once = [...a, ...b];
      a[0] = 10;
      void graph.replay();
      void graph.replay();
      void comm.allReduce({ send: a, op: "sum" });
      await graph.replay();
      return [...once, ...a, ...b];
    });
    for (const each of found) expect(each).toEqual([2, 12, 160, 960]);
  });
});

describe("arrays during their copy to the host", () => {
  /** Staged in page-locked memory of their own. */
  const length = 1 << 19;

  test("are not staged any longer when another rank's copies cannot begin", async () => {
    const gpus = copying();
    const planned = cudaError("cudaHostAlloc", 2, "cudaErrorMemoryAllocation");
    // Both ranks copy in, and the first one begins to copy back.
    gpus.machine.failNext("hostAlloc", planned, 3);
    await inWorld(gpus, 2, async (world) => {
      const sums = await world.run(async (comm) => {
        const [send, recv] = [new Int32Array(length).fill(1), new Int32Array(length)];
        await expect(comm.allReduce({ send, recv, op: "sum" })).rejects.toThrow("cudaHostAlloc");
        recv.fill(100 + comm.rank);
        const sum = new Int32Array(length);
        await comm.allReduce({ send: recv, recv: sum, op: "sum" });
        return sum[0];
      });
      expect(sums).toEqual([201, 201]);
    });
  });

  test("nor when those of a replay cannot", async () => {
    const gpus = copying();
    const planned = cudaError("cudaHostAlloc", 2, "cudaErrorMemoryAllocation");
    await inWorld(gpus, 2, async (world) => {
      const sums = await world.run(async (comm) => {
        const [send, recv] = [new Int32Array(length).fill(1), new Int32Array(length)];
        const graph = await comm.capture(() => void comm.allReduce({ send, recv, op: "sum" }));
        if (comm.rank === 0) gpus.machine.failNext("hostAlloc", planned, 3);
        await comm.barrier();
        await expect(graph.replay()).rejects.toThrow("cudaHostAlloc");
        graph.dispose();
        recv.fill(100 + comm.rank);
        const sum = new Int32Array(length);
        await comm.allReduce({ send: recv, recv: sum, op: "sum" });
        return sum[0];
      });
      expect(sums).toEqual([201, 201]);
    });
  });

  test("are not staged any longer when another rank's array was transferred away", async () => {
    const gpus = copying();
    await inWorld(gpus, 2, async (world) => {
      const sums = await world.run(async (comm) => {
        const [send, recv] = [Int32Array.of(1), new Int32Array(1)];
        gpus.machine.hold();
        const op = comm.allReduce({ send, recv, op: "sum" });
        await turns();
        if (comm.rank === 0) structuredClone(recv.buffer, { transfer: [recv.buffer] });
        gpus.machine.release();
        await expect(op).rejects.toThrow(/ArrayBuffer was transferred away/);
        const next = comm.rank === 0 ? new Int32Array(1) : recv;
        next.fill(100 + comm.rank);
        const sum = new Int32Array(1);
        await comm.allReduce({ send: next, recv: sum, op: "sum" });
        return sum[0];
      });
      expect(sums).toEqual([201, 201]);
    });
  });
});

describe("device memory for arrays", () => {
  test("is kept and used again, also for similar lengths", async () => {
    const gpus = copying();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const large = new Float32Array(1000);
        const [x, y] = [new Float32Array(1000), new Float32Array(990)];
        await comm.allReduce({ send: large, recv: x, op: "sum" });
        await comm.barrier();
        const made = gpus.machine.count("malloc");
        for (let round = 0; round < 20; round++) {
          await comm.allReduce({ send: large.subarray(0, 990), recv: y, op: "sum" });
          await comm.allReduce({ send: x, op: "max" });
        }
        await comm.barrier();
        expect(gpus.machine.count("malloc")).toBe(made);
      });
    });
  });

  test("fails the call by name when none is left, and only that call", async () => {
    const gpus = copying({ memoryBytes: 1 << 20 });
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const error = await comm
          .allReduce({ send: new Uint8Array(1 << 21), op: "sum" })
          .catch((each: unknown) => each);
        expect(error).toMatchObject({ code: "ERR_COMM_ARG" });
        expect(String(error)).toMatch(/staging: 2097152 bytes are more than cuda:0 has free/);
      });
      await expectHealthy(world);
    });
  });
});

describe("wrong arrays", () => {
  test("of two ranks that share what is written are refused, and nothing is written", async () => {
    const shared = Int32Array.of(4, 4);
    await ofRanks(2, async (comm) => {
      const wrong = comm.allReduce({ send: Int32Array.of(1, 1), recv: shared, op: "sum" });
      await expect(wrong).rejects.toThrow(/ranks 0 and 1 were given the same memory/);
    });
    expect([...shared]).toEqual([4, 4]);
  });

  test("that overlap other than in place are refused as on the simulation", async () => {
    await ofRanks(1, async (comm) => {
      const memory = new Int32Array(8);
      const send = memory.subarray(0, 4);
      const wrong = comm.allReduce({ send, recv: memory.subarray(1, 5), op: "sum" });
      await expect(wrong).rejects.toThrow(/recv: it overlaps send in 12 bytes/);
      const bits = comm.allReduce({ send: new Uint16Array(2) as never, op: "sum" });
      await expect(bits).rejects.toThrow(/a Uint16Array does not name its dtype/);
    });
  });

  test("that were transferred away meanwhile fail their call, and the next one works", async () => {
    const gpus = copying();
    await inWorld(gpus, 1, async (world) => {
      await world.run(async (comm) => {
        const data = Int32Array.of(1, 2);
        gpus.machine.hold();
        const op = comm.allReduce({ send: data, op: "sum" });
        await turns();
        structuredClone(data.buffer, { transfer: [data.buffer] });
        gpus.machine.release();
        await expect(op).rejects.toThrow(/ArrayBuffer was transferred away while a call had it/);
      });
      await expectHealthy(world);
    });
  });

  test("of a recording that were transferred away since are refused, and the rest continues", async () => {
    for (const gpus of [copying(), undefined]) {
      const world = await createWorld({ backend: gpus?.backend() ?? sim(), size: 2 });
      await world.run(async (comm) => {
        const data = Int32Array.of(1, 2);
        const graph = await comm.capture(() => void comm.allReduce({ send: data, op: "sum" }));
        for (let i = 0; i < 3; i++) await graph.replay();
        structuredClone(data.buffer, { transfer: [data.buffer] });
        const text = "replay: an array of the recorded allReduce was transferred away";
        const facts = { code: "ERR_COMM_CLOSED", collective: "allReduce", rank: comm.rank };
        const message = expect.stringContaining(text);
        await expect(graph.replay()).rejects.toMatchObject({ ...facts, message });
        await comm.barrier();
      });
      await world.close();
    }
  });

  test("that were transferred away name their rank and its device to every rank", async () => {
    const gpus = copying();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const data = Int32Array.of(1, 2);
        gpus.machine.hold();
        const op = comm.allReduce({ send: data, op: "sum" });
        await turns();
        if (comm.rank === 1) structuredClone(data.buffer, { transfer: [data.buffer] });
        gpus.machine.release();
        const facts = { code: "ERR_COMM_ARG", rank: 1, ranks: [1], device: "cuda:1" };
        await expect(op).rejects.toMatchObject(facts);
      });
    });
  });

  test("of an aborted call are not written", async () => {
    const gpus = copying();
    await inWorld(gpus, 2, async (world) => {
      const data = [Int32Array.of(1), Int32Array.of(2)];
      const run = world.run(async (comm) => {
        gpus.machine.hold();
        const op = comm.allReduce({ send: data[comm.rank] as Int32Array, op: "sum" });
        await turns();
        if (comm.rank === 0) comm.abort(new Error("enough"));
        gpus.machine.release();
        await expect(op).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
        await turns();
      });
      await run;
      expect(data).toEqual([Int32Array.of(1), Int32Array.of(2)]);
    });
  });
});

test("without staging, TypedArrays are refused with the alternative", async () => {
  await inWorld(cleanGpus(), 1, async (world) => {
    await world.run(async (comm) => {
      const refused = comm.allReduce({ send: new Float32Array(3), op: "sum" });
      await expect(refused).rejects.toThrow(
        /write: const send = comm\.alloc\("float32", 3\)\.copyFrom\(array\); or .*staging: "copy"/,
      );
    });
  });
  expect(() => nccl({ staging: "pinned" as "copy" })).toThrow(
    /staging: found "pinned", needs "copy"/,
  );
});
