/** Communicators with streams of their own: their order among other work of the rank, their memory, and their end. */
import { type Communicator, createWorld } from "twinccl";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import {
  cudaError,
  type FakeGpus,
  fakeGpus,
  ncclError,
} from "../../../../support/fake-gpus/index.ts";
import { Stream } from "../../../../support/fake-gpus/streams.ts";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";
import { block, ofItsOwn, ownStream, stateOf, sum } from "./streams.ts";
import { outcome } from "./watched-world.ts";

quickTime();

/** The stream of a rank's memory, without letting the library know that it is used. */
const mainStream = (gpus: FakeGpus, rank: number): bigint =>
  gpus.sessions.at(-1)!.device(rank).local.device.stream;

/** Streams that are alive, beside those of the ranks. */
const further = ({ machine }: FakeGpus, size: number): number => machine.streams.size - size;

/** Runs a program on two ranks that meet at points that no stream takes part in. */
async function onTwo(
  gpus: FakeGpus,
  program: (comm: Communicator, meet: () => Promise<void>) => Promise<void>,
): Promise<void> {
  await inWorld(gpus, 2, async (world) => {
    let arrived = 0;
    const meet = async (): Promise<void> => {
      const needed = 2 * Math.ceil(++arrived / 2);
      while (arrived < needed) await turns(1);
    };
    await within(
      5000,
      world.run((comm) => program(comm, meet)),
    );
  });
}

describe("calls on communicators with streams of their own", () => {
  test("are done while those of another communicator are blocked", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const [a, b] = [await ofItsOwn(comm), await ofItsOwn(comm)];
      const [x, y, z] = [1, 2, 3].map((value) => comm.alloc("int32", 1).fill(value));
      // The first calls wait for the contents of the buffers.
      await Promise.all([a.barrier(), b.barrier()]);
      const unblock = block(gpus, ownStream(a));
      const one = sum(a, x);
      expect(await stateOf(sum(b, y))).toBe("done");
      expect(await stateOf(sum(comm, z))).toBe("done");
      expect(await stateOf(one)).toBe("pending");
      await meet();
      unblock();
      await one;
      const held = await Promise.all([x, y, z].map((each) => each!.toHost()));
      expect(held.map(([value]) => value)).toEqual([2, 4, 6]);
    });
  });

  test("are done while calls of the rank's stream are blocked", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const buffer = comm.alloc("int32", 1).fill(comm.rank + 1);
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      const before = comm.barrier();
      for (let time = 0; time < 100; time++) expect(await stateOf(sum(own, buffer))).toBe("done");
      expect(await stateOf(before)).toBe("pending");
      await meet();
      unblock();
      await before;
      // Sums of 32 bits that wrap around.
      const [value] = await buffer.toHost();
      expect(value).toBe(0);
    });
  });

  test("complete in opposite orders", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm) => {
      const [a, b] = [await ofItsOwn(comm), await ofItsOwn(comm)];
      const calls = [a, b].map((each) => () => sum(each));
      if (comm.rank === 1) calls.reverse();
      const found = await Promise.all(calls.map((call) => call()));
      for (const buffer of found) expect([...(await buffer.toHost())]).toEqual([3]);
    });
  });

  test("send and receive while calls of the rank's stream are blocked", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const [send, recv] = [comm.alloc("int32", 1).fill(comm.rank + 1), comm.alloc("int32", 1)];
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      const peer = 1 - comm.rank;
      const message = own.sendRecv({ send, recv, to: peer, from: peer });
      expect(await stateOf(message)).toBe("done");
      await meet();
      unblock();
      expect([...(await recv.toHost())]).toEqual([peer + 1]);
    });
  });
});

describe("a call on a stream of its own waits", () => {
  const writes: readonly [string, (comm: Communicator) => ReturnType<typeof sum>][] = [
    ["a fill", (comm) => sum(comm, comm.alloc("int32", 1).fill(2))],
    [
      "a copy from the host",
      (comm) => sum(comm, comm.alloc("int32", 1).copyFrom(Int32Array.of(2))),
    ],
    ["the zeros of an allocation", (comm) => sum(comm, comm.alloc("int32", 1))],
  ];
  test.each(writes)("for %s before it", async (_, call) => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      await own.barrier();
      const before = gpus.machine.count("streamWaitEvent");
      await meet();
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      const op = call(own);
      expect(await stateOf(op)).toBe("pending");
      expect(gpus.machine.count("streamWaitEvent")).toBe(before + 2);
      await meet();
      unblock();
      const buffer = await op;
      expect([...(await buffer.toHost())]).toEqual(call === writes[2]![1] ? [0] : [4]);
      await meet();
      // The read is a memory operation too. Without any in between there is nothing more to wait for.
      for (let time = 0; time < 2; time++) await own.allReduce({ send: buffer, op: "sum" });
      expect(gpus.machine.count("streamWaitEvent")).toBe(before + 4);
    });
  });

  test("for a memory operation before its communicator was created", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      const buffer = comm.alloc("int32", 1).fill(2);
      const op = sum(await ofItsOwn(comm), buffer);
      expect(await stateOf(op)).toBe("pending");
      await meet();
      unblock();
      await op;
      expect([...(await buffer.toHost())]).toEqual([4]);
    });
  });

  test("for a read of its buffer before it", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const buffer = comm.alloc("int32", 1).fill(comm.rank + 1);
      await own.barrier();
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      const held = buffer.toHost();
      const op = sum(own, buffer);
      expect(await stateOf(op)).toBe("pending");
      await meet();
      unblock();
      await op;
      expect([...(await held)]).toEqual([comm.rank + 1]);
    });
  });

  test.each(["adopted", "allocated"])(
    "for operations on other memory of the same bytes, which are %s",
    async (kind) => {
      const gpus = cleanGpus();
      await onTwo(gpus, async (comm, meet) => {
        const own = await ofItsOwn(comm);
        const foreign = gpus.machine.memory.allocate(4, comm.rank);
        const allocated = comm.alloc("int32", 1);
        const summed = kind === "adopted" ? comm.adopt(foreign, "int32", 1) : allocated;
        const written = comm.adopt(summed.ptr, "int32", 1);
        await sum(own, summed);
        const unblock = block(gpus, mainStream(gpus, comm.rank));
        written.fill(2);
        const op = sum(own, summed);
        expect(await stateOf(op)).toBe("pending");
        await meet();
        unblock();
        await op;
        expect([...(await written.toHost())]).toEqual([4]);
        gpus.machine.memory.free(foreign);
      });
    },
  );

  test("for no operation on memory that it does not use", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const [used, other] = [comm.alloc("int32", 1).fill(1), comm.alloc("int32", 1)];
      await sum(own, used);
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      for (let time = 0; time < 100; time++) {
        other.fill(time);
        expect(await stateOf(sum(own, used))).toBe("done");
      }
      await meet();
      unblock();
    });
  });

  test("keep no more events than there are memory operations under way", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const buffer = comm.alloc("int32", 1);
      await own.barrier();
      await meet();
      const before = gpus.machine.events.size;
      await meet();
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      for (let time = 0; time < 1000; time++) buffer.fill(time);
      await meet();
      unblock();
      for (let time = 0; time < 2; time++) buffer.fill(time);
      await meet();
      expect(gpus.machine.events.size).toBeLessThan(before + 5);
    });
  });

  test("for no call of the rank's stream behind the last memory operation", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const buffer = comm.alloc("int32", 1).fill(comm.rank + 1);
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      const main = comm.barrier();
      expect(await stateOf(sum(own, buffer))).toBe("done");
      expect(await stateOf(main)).toBe("pending");
      await meet();
      unblock();
      await main;
    });
  });

  test("for memory operations before each repeated call", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm) => {
      const own = await ofItsOwn(comm);
      const buffer = comm.alloc("int32", 1);
      const repeated = own.prepare(() => own.allReduce({ send: buffer, op: "sum" }));
      for (let time = 0; time < 150; time++) {
        buffer.fill(time);
        await repeated.start();
        expect([...(await buffer.toHost())]).toEqual([2 * time]);
      }
    });
    expect(gpus.machine.count("streamWaitEvent")).toBe(300);
  });

  test.each(["given", "read from comm.stream"])(
    "for work that the caller has put on a stream that was %s",
    async (how) => {
      const gpus = cleanGpus();
      const { machine } = gpus;
      const foreign = [0, 1].map((device) => new Stream(machine.newHandle(), device));
      for (const stream of foreign) machine.streams.set(stream.handle, stream);
      const handles = how === "given" ? foreign.map(({ handle }) => handle) : undefined;
      const program = async (comm: Communicator): Promise<void> => {
        const own = await ofItsOwn(comm);
        const data = comm.alloc("int32", 1).fill(0);
        await own.barrier();
        const handle = how === "given" ? handles?.[comm.rank] : comm.stream;
        for (let value = 1; value < 4; value++) {
          machine.stream(handle as bigint).put(() => ({
            what: "work of the caller",
            step() {
              machine.memory.range(data.ptr, 4, comm.rank).set([value, 0, 0, 0]);
              return true;
            },
          }));
          await sum(own, data);
          expect([...(await data.toHost())]).toEqual([2 * value]);
        }
      };
      await inWorld(gpus, 2, (world) => world.run(program), [0, 1], handles);
      for (const { handle } of foreign) machine.streams.delete(handle);
    },
  );
});

test("a read of a lost GPU rejects, and nothing else does", async () => {
  const gpus = cleanGpus();
  const unhandled = vi.fn();
  process.on("unhandledRejection", unhandled);
  onTestFinished(() => void process.off("unhandledRejection", unhandled));
  await onTwo(gpus, async (comm, meet) => {
    await ofItsOwn(comm);
    const buffer = comm.alloc("int32", 1);
    await comm.barrier();
    await meet();
    if (comm.rank === 1) return;
    for (const call of ["copy", "eventRecord"]) {
      gpus.machine.failNext(call, cudaError(call, 700, "cudaErrorIllegalAddress"));
    }
    await expect(buffer.toHost()).rejects.toMatchObject({ code: "ERR_COMM_CUDA", rank: 0 });
    await turns(3);
  });
  expect(unhandled).not.toHaveBeenCalled();
});

describe("memory", () => {
  test("is not freed while a call on a stream of its own is under way", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const [data, old] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
      const symmetric = comm.alloc("int32", 1, { symmetric: true });
      await own.barrier();
      const unblock = block(gpus, ownStream(own));
      const op = sum(own, data);
      old.dispose();
      symmetric.dispose();
      await comm.barrier();
      await turns(30);
      const frees = () => gpus.machine.count("free") + gpus.machine.count("memFree");
      expect(frees()).toBe(0);
      await meet();
      unblock();
      await op;
      await turns(30);
      await meet();
      expect(frees()).toBe(4);
    });
  });

  test("for arrays is separate for each communicator, and freed with it", async () => {
    const gpus = cleanGpus({ staging: "copy" });
    const live: number[] = [];
    await onTwo(gpus, async (comm, meet) => {
      for (let time = 0; time < 4; time++) {
        const [a, b] = [await ofItsOwn(comm), await ofItsOwn(comm)];
        const unblock = block(gpus, ownStream(a));
        const array = (value: number) => Int32Array.of(value, comm.rank);
        const [x, y, z] = [array(1), array(2), array(3)];
        const blocked = a.allReduce({ send: x, recv: x, op: "sum" });
        await b.allReduce({ send: y, recv: y, op: "sum" });
        await comm.allReduce({ send: z, recv: z, op: "sum" });
        expect(await stateOf(blocked)).toBe("pending");
        await meet();
        unblock();
        await blocked;
        expect([x, y, z].map((each) => [...each])).toEqual([
          [2, 1],
          [4, 1],
          [6, 1],
        ]);
        await Promise.all([a.close(), b.close()]);
        await turns(30);
        await meet();
        live[time] = gpus.machine.memory.live.length;
        await meet();
      }
    });
    expect(live.slice(1)).toEqual(live.slice(0, -1));
  });
});

test("recordings of a communicator are launched on its stream, behind memory operations", async () => {
  const gpus = cleanGpus();
  await onTwo(gpus, async (comm, meet) => {
    const own = await ofItsOwn(comm);
    const data = comm.alloc("int32", 1).fill(1);
    const graph = await own.capture(() => void own.allReduce({ send: data, op: "sum" }));
    for (let time = 0; time < 20; time++) {
      data.fill(time);
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      const main = comm.barrier();
      expect(await stateOf(graph.replay())).toBe("done");
      expect(await stateOf(main)).toBe("pending");
      await meet();
      unblock();
      await main;
      expect([...(await data.toHost())]).toEqual([2 * time]);
    }
    const unblock = block(gpus, ownStream(own));
    const replay = graph.replay();
    expect(await stateOf(comm.barrier())).toBe("done");
    expect(await stateOf(replay)).toBe("pending");
    await meet();
    unblock();
    await replay;
    graph.dispose();
    await turns();
    await meet();
    expect(gpus.machine.graphs.size).toBe(0);
  });
});

describe("comm.stream", () => {
  test("is the communicator's own, and that of the rank on its splits", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const [child, grandchild] = [await own.split({ color: 0 }), await ofItsOwn(own)];
      const streams = [comm, own, grandchild].map(ownStream);
      expect(new Set(streams).size).toBe(3);
      expect(streams.map((each) => gpus.machine.streams.get(each)?.device)).toEqual(
        new Array(3).fill(comm.rank),
      );
      expect(child?.stream).toBe(comm.stream);
      await Promise.all([own, child!, grandchild].map((each) => sum(each)));
      await own.close();
      await meet();
      expect(own.stream).toBeUndefined();
      expect(child?.stream).toBe(comm.stream);
    });
  });
});

describe("the streams of a communicator", () => {
  test("are destroyed when it is closed, once the rank's streams are idle", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      await sum(own);
      const unblock = block(gpus, mainStream(gpus, comm.rank));
      await own.close();
      await turns(30);
      await meet();
      expect(further(gpus, 2)).toBe(2);
      unblock();
      await turns(30);
      await meet();
      expect(further(gpus, 2)).toBe(0);
      expect(await stateOf(sum(comm))).toBe("done");
    });
    expect(gpus.machine.count("streamDestroy")).toBe(gpus.machine.count("streamCreate"));
  });

  test("are destroyed when it is aborted with calls under way", async () => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      const own = await ofItsOwn(comm);
      const unblock = block(gpus, ownStream(own));
      const op = outcome(sum(own));
      const main = sum(comm);
      await turns();
      await meet();
      if (comm.rank === 0) own.abort();
      expect(await op).toBe("ERR_COMM_ABORTED");
      await main;
      expect(further(gpus, 2)).toBe(2);
      await meet();
      unblock();
      await turns(30);
      await meet();
      expect(further(gpus, 2)).toBe(0);
      expect(await stateOf(sum(comm))).toBe("done");
    });
  });

  test("are destroyed with the world, and those of a rebuilt world are others", async () => {
    const gpus = cleanGpus();
    let world = await createWorld({ backend: gpus.backend(), size: 3 });
    for (const size of [3, 2, 1]) {
      await world.run(async (comm) => {
        const own = await ofItsOwn(comm);
        await Promise.all([sum(own), sum(comm)]);
        void sum(own);
      });
      expect(further(gpus, size)).toBe(size);
      if (size > 1) world = await world.rebuild({ without: [0] });
    }
    await world.close();
    expect(gpus.machine.count("streamDestroy")).toBe(gpus.machine.count("streamCreate"));
  });

  test("are abandoned with a world of calls without an end", async () => {
    const gpus = fakeGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    const running = world.run(async (comm) => {
      const own = await ofItsOwn(comm);
      await own.barrier();
      block(gpus, ownStream(own));
      await sum(own);
    });
    const failed = running.then(null, (error) => error);
    await turns(20);
    world.abort(new Error("enough"));
    expect(await failed).toMatchObject({ cause: { code: "ERR_COMM_ABORTED" } });
    let isClosed = false;
    const closing = world.close().then(() => {
      isClosed = true;
    });
    for (let second = 0; second < 40 && !isClosed; second++) {
      await turns(2);
      await vi.advanceTimersByTimeAsync(1_000);
    }
    await closing;
    expect(gpus.machine.complaints).toEqual([]);
    expect(gpus.machine.count("free") + gpus.machine.count("streamDestroy")).toBe(0);
  });

  test.each([
    ["streamCreate", 1, cudaError("cudaStreamCreateWithFlags", 2, "cudaErrorMemoryAllocation")],
    ["eventCreate", 1, cudaError("cudaEventCreateWithFlags", 2, "cudaErrorMemoryAllocation")],
    ["split", 1, ncclError("ncclCommSplit", 2, "ncclSystemError")],
  ])("are destroyed when %s fails in its split", async (name, after, error) => {
    const gpus = cleanGpus();
    await onTwo(gpus, async (comm, meet) => {
      gpus.machine.failNext(name, error, after);
      expect(["ERR_COMM_CUDA", "ERR_COMM_NCCL"]).toContain(await outcome(ofItsOwn(comm)));
      await turns(30);
      await meet();
      expect(further(gpus, 2)).toBe(0);
      await meet();
      expect(await stateOf(sum(comm))).toBe("done");
      expect(await stateOf(sum(await ofItsOwn(comm)))).toBe("done");
    });
  });
});
