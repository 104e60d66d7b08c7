/** Streams of the caller: what takes place on them in which order, which are refused, and that they stay the caller's. */
import { createWorld } from "twinccl";
import { type NcclOptions, nccl } from "twinccl/nccl";
import { describe, expect, test } from "vitest";
import { cudaError, type FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { Stream } from "../../../../support/fake-gpus/streams.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";

quickTime();

/** A stream as other code would make it, gone when `release` is called. */
function foreignStream({ machine }: FakeGpus, device: number) {
  const stream = new Stream(machine.newHandle(), device);
  machine.streams.set(stream.handle, stream);
  return stream;
}

function foreignStreams(gpus: FakeGpus, devices: readonly number[]) {
  const streams = devices.map((device) => foreignStream(gpus, device));
  const release = (): void => {
    for (const { handle } of streams) {
      expect(gpus.machine.streams.delete(handle), "the stream is still there").toBe(true);
    }
  };
  return { streams, handles: streams.map(({ handle }) => handle), release };
}

describe("a given stream", () => {
  test("carries all work of its rank, in order with the caller's own work", async () => {
    const gpus = cleanGpus();
    const { streams, handles, release } = foreignStreams(gpus, [0, 1]);
    await inWorld(
      gpus,
      2,
      async (world) => {
        expect(gpus.machine.count("streamCreate")).toBe(0);
        const seen = await world.run(async (comm) => {
          expect(comm.stream).toBe(handles[comm.rank]);
          const data = comm.alloc("int32", 1);
          const at = (): Uint8Array => gpus.machine.memory.range(data.ptr, 4, comm.rank);
          const noted: number[] = [];
          const work = (step: () => void): void => {
            streams[comm.rank]?.put(() => ({
              what: "work of the caller",
              step: () => {
                step();
                return true;
              },
            }));
          };
          gpus.machine.hold();
          work(() => at().set([comm.rank + 5]));
          const op = comm.allReduce({ send: data, op: "sum" });
          await op.enqueued;
          work(() => noted.push(at()[0] as number));
          data.fill(3);
          work(() => noted.push(at()[0] as number));
          await turns();
          expect(noted).toEqual([]);
          gpus.machine.release();
          await op;
          await data.toHost();
          return noted;
        });
        expect(seen).toEqual([
          [11, 3],
          [11, 3],
        ]);
      },
      [0, 1],
      handles,
    );
    expect(gpus.machine.count("streamDestroy")).toBe(0);
    release();
  });

  test("is created by the library, and reported, when none is given", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const streams = await world.run((comm) => comm.stream);
      expect(streams.map((stream) => gpus.machine.streams.get(stream ?? 0n)?.device)).toEqual([
        0, 1,
      ]);
    });
  });

  test("may be used by code that switches the thread's device", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 1, async (world) => {
      const homes = await world.run(async (comm) => {
        expect(comm.stream).toBeDefined();
        const data = comm.alloc("int32", 4).fill(2);
        gpus.machine.current = 5;
        const other = comm.alloc("int32", 4);
        gpus.machine.current = 5;
        await comm.allReduce({ send: data, recv: other, op: "sum" });
        gpus.machine.current = 5;
        expect([...(await other.toHost())]).toEqual([2, 2, 2, 2]);
        return gpus.machine.memory.at(other.ptr)?.home;
      });
      expect(homes).toEqual([0]);
    });
  });

  test("and its device stay with the rank in a rebuilt world", async () => {
    const gpus = cleanGpus();
    const { handles, release } = foreignStreams(gpus, [3, 1, 2]);
    const world = await createWorld({ backend: gpus.backend([3, 1, 2], handles), size: 3 });
    const rebuilt = await world.rebuild({ without: [0] });
    const found = await rebuilt.run(async (comm) => {
      await comm.barrier();
      return [comm.device, comm.stream];
    });
    expect(found).toEqual([
      ["cuda:1", handles[1]],
      ["cuda:2", handles[2]],
    ]);
    const again = await rebuilt.rebuild({ without: [0] });
    expect(await again.run((comm) => [comm.device, comm.stream])).toEqual([["cuda:2", handles[2]]]);
    await again.close();
    release();
  });
});

describe("a stream is refused", () => {
  async function expectRefused(gpus: FakeGpus, handle: bigint, message: RegExp): Promise<void> {
    const opening = createWorld({ backend: gpus.backend([0], [handle]), size: 1 });
    await expect(opening).rejects.toThrow(message);
    await expect(opening).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "streams" });
    expect(gpus.machine.count("initRank")).toBe(0);
  }

  test("of another device", async () => {
    const gpus = cleanGpus();
    const { handles, release } = foreignStreams(gpus, [1]);
    await expectRefused(
      gpus,
      handles[0] as bigint,
      /cudaErrorInvalidResourceHandle, needs a live stream of cuda:0/,
    );
    release();
  });

  test("that is being captured", async () => {
    const gpus = cleanGpus();
    const { streams, handles, release } = foreignStreams(gpus, [0]);
    const [stream] = streams as [Stream];
    stream.recording = [];
    await expectRefused(
      gpus,
      handles[0] as bigint,
      /is being captured, needs a live stream of cuda:0/,
    );
    expect(stream.recording).toEqual([]);
    release();
  });

  test("that CUDA does not know", async () => {
    const gpus = cleanGpus();
    const unknown = cudaError("cudaStreamIsCapturing", 709, "cudaErrorContextIsDestroyed");
    gpus.machine.failNext("isCapturing", unknown);
    await expectRefused(gpus, 0x5550n, /21840 cannot be used: cudaErrorContextIsDestroyed/);
  });

  test("when the number of streams differs from the number of ranks", async () => {
    const gpus = cleanGpus();
    const opening = createWorld({ backend: gpus.backend([0, 1], [0x5550n]), size: 2 });
    await expect(opening).rejects.toThrow(/streams: found 1, a world of 2 ranks needs 2/);
  });

  test.each<[NcclOptions | object, RegExp]>([
    [{ stream: 7 }, /stream: found 7, needs the handle of a CUDA stream, as a bigint/],
    [{ streams: [] }, /streams: found none, needs handles/],
    [{ streams: 5n }, /streams: found 5n, needs handles/],
    [{ streams: [80n, -1n] }, /streams: found -1n, needs handles/],
    // Calls would take its lower 64 bits, a default stream.
    [{ stream: (1n << 64n) + 1n }, /stream: found 18446744073709551617n, needs the handle/],
    [{ streams: [80n, 96n, 80n] }, /streams: found 80 twice/],
    [{ stream: 0n }, /found the default stream 0, needs one of the caller's own/],
    [{ streams: [80n, 2n] }, /found the default stream 2/],
    [{ stream: 80n, streams: [80n] }, /found stream and streams, needs one of them/],
  ])("as %o", (options, message) => {
    expect(() => nccl(options as NcclOptions)).toThrow(message);
  });
});
