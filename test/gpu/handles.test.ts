/** Memory and streams of other CUDA code, arrays of the host, and disposed recordings, on real GPUs. */
import { type Communicator, createWorld } from "twinccl";
import { type NcclOptions, nccl } from "twinccl/nccl";
import { describe, expect, test } from "vitest";
import { loadLibraries } from "../../src/backends/nccl/discovery/libraries.ts";
import { gpuSizes, testOn } from "./machine.ts";

const found = (await gpuSizes()).length;
const size = Math.min(2, found);
const { cuda } = await loadLibraries();

/** Something of every device, as other code would make it. */
function onEach(make: () => bigint): bigint[] {
  return Array.from({ length: size }, (_, device) => {
    cuda.setDevice(device);
    return make();
  });
}

async function ofRanks<T>(
  options: NcclOptions,
  program: (comm: Communicator) => Promise<T>,
): Promise<T[]> {
  const world = await createWorld({ backend: nccl(options), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

const same = <T>(value: T): T[] => new Array<T>(size).fill(value);

describe("adopted memory", () => {
  test("takes part in calls, and outlives its buffer and its world", async () => {
    const owned = onEach(() => cuda.malloc(64));
    const sums = await ofRanks({}, async (comm) => {
      const data = comm.adopt(owned[comm.rank] as bigint, "int32", 16).fill(comm.rank + 1);
      await comm.allReduce({ send: data.subarray(0, 8), op: "sum" });
      const held = await data.toHost();
      data.dispose();
      return [held[0], held[7], held[8]];
    });
    const sum = (size * (size + 1)) / 2;
    expect(sums).toEqual(Array.from({ length: size }, (_, rank) => [sum, sum, rank + 1]));
    for (const ptr of owned) cuda.free(ptr);
  });

  test("on another device than the rank's is refused", async () => {
    const pinned = cuda.hostAlloc(64);
    await ofRanks({}, async (comm) => {
      expect(() => comm.adopt(pinned, "int8", 64)).toThrow(/page-locked memory of the host/);
      expect(() => comm.adopt(0x1000n, "int8", 64)).toThrow(/no memory that CUDA knows/);
    });
    cuda.hostFree(pinned);
  });

  testOn(2, found)("of another GPU is refused", async () => {
    const owned = onEach(() => cuda.malloc(64));
    await ofRanks({}, async (comm) => {
      const other = owned[1 - comm.rank] as bigint;
      expect(() => comm.adopt(other, "int8", 64)).toThrow(/memory of cuda:\d, needs memory of/);
    });
    for (const ptr of owned) cuda.free(ptr);
  });
});

describe("a given stream", () => {
  test("orders the caller's work with calls, and stays valid", async () => {
    const streams = onEach(() => cuda.streamCreate());
    const bytes = 1 << 24;
    const results = await ofRanks({ streams }, async (comm) => {
      const stream = streams[comm.rank] as bigint;
      expect(comm.stream).toBe(stream);
      const [data, copy] = [comm.alloc("uint8", bytes), comm.alloc("uint8", bytes)];
      cuda.setDevice(comm.rank);
      cuda.set(data.ptr, comm.rank + 1, bytes, stream);
      const op = comm.allReduce({ send: data, op: "sum" });
      await op.enqueued;
      cuda.setDevice(comm.rank);
      cuda.copy(copy.ptr, data.ptr, bytes, stream);
      cuda.set(data.ptr, 77, bytes, stream);
      const [copied, left] = [await copy.toHost(), await data.toHost()];
      await op;
      return [copied[0], copied[bytes - 1], left[0], left[bytes - 1]];
    });
    const sum = (size * (size + 1)) / 2;
    expect(results).toEqual(same([sum, sum, 77, 77]));
    for (const stream of streams) {
      cuda.streamSynchronize(stream);
      cuda.streamDestroy(stream);
    }
  });

  test("that is being captured is refused, and the capture continues", async () => {
    cuda.setDevice(0);
    const stream = cuda.streamCreate();
    cuda.beginCapture(stream);
    const opening = createWorld({ backend: nccl({ stream }), size: 1 });
    await expect(opening).rejects.toThrow(/is being captured, needs a live stream of cuda:0/);
    cuda.graphDestroy(cuda.instantiate(cuda.endCapture(stream)));
    cuda.streamDestroy(stream);
  });

  testOn(2, found)("of another GPU is refused", async () => {
    cuda.setDevice(1);
    const stream = cuda.streamCreate();
    const opening = createWorld({ backend: nccl({ stream }), size: 1 });
    await expect(opening).rejects.toThrow(/streams: \d+ cannot be used/);
    cuda.setDevice(1);
    cuda.streamDestroy(stream);
  });
});

describe("arrays in calls", () => {
  test("are copied in and back, in calls without await and in replays", async () => {
    const results = await ofRanks({ staging: "copy" }, async (comm) => {
      const [a, b] = [new Float32Array(100_000).fill(comm.rank + 1), new Float32Array(100_000)];
      void comm.allReduce({ send: a, op: "sum" });
      await comm.allReduce({ send: a, recv: b, op: "max" });
      const graph = await comm.capture(() => {
        void comm.allReduce({ send: b, op: "avg" });
        void comm.allReduce({ send: b, op: { preMul: 2 } });
      });
      b.fill(1);
      void graph.replay();
      await graph.replay();
      return [a[0], a[99_999], b[0], b[99_999]];
    });
    const sum = (size * (size + 1)) / 2;
    const twice = (2 * size) ** 2;
    expect(results).toEqual(same([sum, sum, twice, twice]));
  });
});

describe("a recording that was disposed", () => {
  test("is refused, and its device memory is freed: a hundred recordings need no more", async () => {
    const grown = await ofRanks({}, async (comm) => {
      const data = comm.alloc("float32", 1024).fill(1);
      const cycle = async (): Promise<void> => {
        const graph = await comm.capture(() => {
          for (let i = 0; i < 50; i++) void comm.allReduce({ send: data, op: "max" });
        });
        void graph.replay();
        const last = graph.replay();
        graph.dispose();
        await last;
        await expect(graph.replay()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      };
      const free = (): number => {
        cuda.setDevice(comm.rank);
        return cuda.memoryInfo().freeBytes;
      };
      expect(comm.stream).toBeDefined();
      for (let i = 0; i < 20; i++) await cycle();
      const before = free();
      for (let i = 0; i < 100; i++) await cycle();
      return before - free();
    });
    for (const bytes of grown) expect(bytes).toBeLessThan(8 << 20);
  });
});
