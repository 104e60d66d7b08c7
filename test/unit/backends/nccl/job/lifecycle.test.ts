/** Begin and end of worlds on GPUs: everything is given back, also after a failure on the way. */
import { createWorld } from "twinccl";
import { nccl } from "twinccl/nccl";
import { describe, expect, test } from "vitest";
import { cudaError, fakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, expectClean, inWorld, seen, turns } from "../gpus.ts";

quickTime();

describe("a world", () => {
  test("releases everything at its end, live buffers included", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 4, async (world) => {
      await world.run(async (comm) => {
        comm.alloc("float32", 1000).fill(1);
        comm
          .alloc("float64", 3)
          .copyFrom(Float64Array.of(1, 2, 3))
          .dispose();
        comm.alloc("int8", 64, { symmetric: true });
        await comm.barrier();
      });
      expect(gpus.machine.leaks().length).toBeGreaterThan(0);
    });
    expectClean(gpus);
  });

  test("closes once, for any number of callers", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    await Promise.all([world.close(), world.close(), gpus.sessions[0]?.close()]);
    await world.close();
    expect(gpus.machine.count("streamDestroy")).toBe(2);
    expect(gpus.machine.count("abortInBackground")).toBe(2);
  });

  test.each([
    ["streamCreate", 1, 1],
    ["malloc", 2, 2],
    ["computeCapability", 1, 1],
    ["uniqueId", 0, undefined],
    ["initRank", 2, 2],
    ["groupEnd", 0, undefined],
  ])(
    "that cannot be opened because of %s leaves no resource, and names the place",
    async (call, after, rank) => {
      const gpus = cleanGpus();
      const planned = cudaError(call, 46, "cudaErrorDevicesUnavailable");
      gpus.machine.failNext(call, planned, after);
      const device = rank === undefined ? undefined : `cuda:${rank}`;
      await expect(createWorld({ backend: gpus.backend(), size: 3 })).rejects.toEqual(
        seen(planned, { rank, size: 3, comm: "world", device }),
      );
      const leaks = gpus.machine.leaks().filter((leak) => !/communicator/.test(leak));
      expect(leaks).toEqual([]);
      for (const handle of [...gpus.nccl.ends.keys()])
        await gpus.nccl.calls.abortInBackground(handle);
    },
  );

  test("releases the rest when a part cannot be released, and reports the error", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    const planned = ncclError("ncclCommAbort", 3, "ncclInternalError");
    gpus.machine.failNext("abortInBackground", planned);
    await expect(world.close()).rejects.toEqual(seen(planned, { comm: "world", rank: 0 }));
    expect(gpus.machine.leaks()).toEqual(["rank 0 of a communicator of 2"]);
    for (const handle of [...gpus.nccl.ends.keys()])
      await gpus.nccl.calls.abortInBackground(handle);
  });

  test("works beside another one in the same process", async () => {
    const gpus = cleanGpus();
    const a = await createWorld({ backend: gpus.backend([0]), size: 1 });
    const b = await createWorld({ backend: gpus.backend([2, 3]), size: 2 });
    for (let round = 0; round < 3; round++) {
      await Promise.all([expectHealthy(a), expectHealthy(b)]);
    }
    await b.close();
    await expectHealthy(a);
    await a.close();
  });

  test("does not change the current devices of ranks", async () => {
    const gpus = cleanGpus();
    await inWorld(
      gpus,
      3,
      async (world) => {
        expect(await world.run((comm) => comm.device)).toEqual(["cuda:5", "cuda:1", "cuda:6"]);
        const homes = await world.run(
          (comm) => gpus.machine.memory.at(comm.alloc("int8", 1).ptr)?.home,
        );
        expect(homes).toEqual([5, 1, 6]);
      },
      [5, 1, 6],
    );
  });

  test("a call does not wait for a closed communicator to be freed, and a split does", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 2 });
    const { calls } = gpus.nccl;
    const { abortInBackground } = calls;
    const freeing: (() => void)[] = [];
    calls.abortInBackground = async (handle) => {
      await new Promise<void>((resolve) => freeing.push(resolve));
      return abortInBackground(handle);
    };
    await world.run(async (comm) => {
      const child = await comm.split({ color: 0 });
      const send = comm.alloc("int32", 1).fill(1);
      await comm.barrier();
      await child.close();
      await comm.allReduce({ send, op: "sum" });
      expect(await send.toHost()).toEqual(Int32Array.of(2));
      let isSplit = false;
      const split = comm.split({ color: 0 }).then(() => {
        isSplit = true;
      });
      await turns();
      expect([isSplit, freeing.length]).toEqual([false, 2]);
      if (comm.rank === 0) for (const end of freeing) end();
      await split;
    });
    calls.abortInBackground = abortInBackground;
    await world.close();
  });
});

describe("buffers", () => {
  test("that outlive their world are refused or dropped without touching the device", async () => {
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 1 });
    const [buffer] = await world.run((comm) => comm.alloc("int32", 4).fill(3));
    await world.close();
    expectClean(gpus);
    expect(() => buffer?.fill(1)).toThrow(/closed/);
    expect(() => buffer?.copyFrom(new Int32Array(4))).toThrow(/closed/);
    await expect(buffer?.toHost()).rejects.toThrow(/closed/);
    buffer?.dispose();
    await turns();
  });

  test("are freed once the work that uses them is done, not before", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const data = comm.alloc("int32", 8).fill(comm.rank);
        await comm.barrier();
        gpus.machine.hold();
        const op = comm.allReduce({ send: data, op: "sum" });
        await turns();
        const frees = gpus.machine.count("free");
        const other = comm.alloc("int32", 8);
        other.dispose();
        await turns();
        expect(gpus.machine.count("free")).toBe(frees);
        gpus.machine.release();
        await op;
        data.dispose();
      });
      await turns(50);
    });
    expect(gpus.machine.count("free")).toBe(2 * 2 + 2);
  });

  test("that cannot be freed end no process", async () => {
    const gpus = fakeGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 1 });
    await world.run(async (comm) => {
      const data = comm.alloc("int8", 8);
      gpus.machine.failNext("free", cudaError("cudaFree", 700, "cudaErrorIllegalAddress"));
      data.dispose();
      await turns(20);
    });
    expect(gpus.machine.count("free")).toBe(1);
    await world.close();
  });

  test("larger than the device has free are refused by name", async () => {
    const gpus = cleanGpus({ memoryBytes: 1 << 20 });
    await inWorld(gpus, 1, async (world) => {
      await world.run((comm) => {
        expect(() => comm.alloc("int8", 1 << 21)).toThrow(/2097152 bytes are more than cuda:0 has/);
        expect(() => comm.alloc("int8", 1 << 21, { symmetric: true })).toThrow(
          /more than cuda:0 has/,
        );
      });
      await expectHealthy(world);
    });
  });

  test("that NCCL cannot make for another reason are refused with that reason", async () => {
    const gpus = cleanGpus();
    const broken = ncclError("ncclMemAlloc", 1, "ncclUnhandledCudaError");
    await inWorld(gpus, 1, async (world) => {
      await world.run((comm) => {
        gpus.machine.failNext("memAlloc", broken);
        const allocate = () => comm.alloc("int8", 8, { symmetric: true });
        const facts = { code: "ERR_COMM_NCCL", cCall: "ncclMemAlloc", rank: 0, device: "cuda:0" };
        expect(allocate).toThrow(expect.objectContaining(facts));
        gpus.machine.failNext("memAlloc", broken);
        gpus.machine.failNext("memoryInfo", cudaError("cudaMemGetInfo", 700, "cudaError"));
        expect(allocate).toThrow(expect.objectContaining(facts));
      });
      await expectHealthy(world);
    });
  });

  test("begin with zeros and keep the results of fills and copies, in call order", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 1, async (world) => {
      await world.run(async (comm) => {
        const zeros = comm.alloc("float64", 5);
        expect(await zeros.toHost()).toEqual(new Float64Array(5));
        const count = 100_000;
        const long = comm.alloc("int32", count).fill(0x01020304);
        long.subarray(1, 3).copyFrom(Int32Array.of(7, 8));
        long.subarray(2, 3).fill(-1);
        const host = await long.toHost();
        expect([...host.subarray(0, 4)]).toEqual([0x01020304, 7, -1, 0x01020304]);
        expect(host.subarray(4).every((value) => value === 0x01020304)).toBe(true);
      });
    });
  });
});

describe("options", () => {
  test.each([
    [[], /found \[\]/],
    [[0, 1, 0], /found 0 twice/],
    [[0, -1], /found -1/],
    [[0.5], /found 0.5/],
    ["all", /found "all"/],
  ])("devices %j are refused", (devices, message) => {
    expect(() => nccl({ devices: devices as number[] })).toThrow(message);
  });

  test.each([0, -1, Number.NaN, "soon"])("timeoutMs %j is refused", (timeoutMs) => {
    expect(() => nccl({ timeoutMs: timeoutMs as number })).toThrow(/timeoutMs: found/);
  });
});
