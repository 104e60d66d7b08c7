/** A rank's error when NCCL or CUDA fails: one of its own, with a next step. */
import type { CommError, Communicator, DeviceBuffer } from "twinccl";
import { CudaError, NcclError } from "twinccl/nccl";
import { describe, expect, test } from "vitest";
import { cudaError, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, seen, turns } from "../gpus.ts";

quickTime();

const thrown = (op: PromiseLike<unknown>): Promise<CommError> =>
  Promise.resolve(op).then(
    () => Promise.reject(new Error("nothing failed")),
    (error: CommError) => error,
  );

describe("an error of NCCL or CUDA", () => {
  const planned = ncclError("ncclAllReduce", 3, "ncclInternalError");

  test("is each rank's own: its call, its place, and its cause", async () => {
    const gpus = cleanGpus();
    const errors: CommError[] = [];
    await inWorld(
      gpus,
      2,
      (world) =>
        world.run(async (comm) => {
          await comm.barrier();
          if (comm.rank === 0) gpus.machine.failNext("allReduce", planned, 1);
          const op = comm.allReduce({ send: comm.alloc("int8", 4), op: "sum" });
          errors[comm.rank] = await thrown(op);
        }),
      [3, 5],
    );
    const facts = { size: 2, comm: "world", collective: "allReduce", call: 1 };
    expect(errors).toEqual([
      seen(planned, { rank: 0, ...facts, device: "cuda:3" }),
      seen(planned, { rank: 1, ...facts, device: "cuda:5" }),
    ]);
    expect(errors[0]).toBeInstanceOf(NcclError);
    expect(errors[0]).not.toBe(errors[1]);
    expect(errors[1]?.message.split("\n")).toEqual([
      "ncclAllReduce: ncclInternalError (3): as planned",
      '  rank 1 of 2  cuda:5  allReduce: call 1 on "world"',
      `hint: ${errors[1]?.hint}`,
    ]);
    expect(errors[1]?.toJSON()).toMatchObject({ rank: 1, call: 1, device: "cuda:5" });
  });

  test("names the communicator of a split, a split and a message", async () => {
    const gpus = cleanGpus();
    const failing = async (comm: Communicator, name: string, call: () => PromiseLike<unknown>) => {
      await comm.barrier();
      if (comm.rank === 0) gpus.machine.failNext(name, planned);
      return thrown(call());
    };
    await inWorld(gpus, 4, (world) =>
      world.run(async (comm) => {
        const high = comm.rank > 1;
        const half = await comm.split({ color: high ? 1 : 0 });
        const whose = { device: `cuda:${comm.rank}`, size: 2, rank: half.rank };
        if (high) {
          const data = half.alloc("int8", 2);
          const peer = 1 - half.rank;
          const collective = await failing(half, "allReduce", () =>
            half.allReduce({ send: data, op: "sum" }),
          );
          const facts = { ...whose, comm: "world/1", collective: "allReduce", call: 1 };
          expect(collective).toEqual(seen(planned, facts));
          const sent = await failing(half, "groupEnd", () =>
            half.rank === 0 ? half.send({ send: data, peer }) : half.recv({ recv: data, peer }),
          );
          expect(sent).toEqual(
            seen(planned, {
              ...whose,
              comm: "world/1",
              collective: ["send", "recv"][half.rank],
              call: 0,
            }),
          );
        }
        await comm.barrier();
        const error = await failing(comm, "split", () => comm.split({ color: 0 }));
        const { rank } = comm;
        expect(error).toEqual(
          seen(planned, { rank, size: 4, comm: "world", collective: "split", call: 3 }),
        );
      }),
    );
  });

  test("names the rank where an allocation fails for another reason than its size", async () => {
    const gpus = cleanGpus();
    const lost = cudaError("cudaMalloc", 700, "cudaErrorIllegalAddress");
    await inWorld(gpus, 2, (world) =>
      world.run(async (comm) => {
        if (comm.rank === 0) return;
        gpus.machine.failNext("malloc", lost);
        const error = await thrown(Promise.resolve().then(() => comm.alloc("int8", 4)));
        expect(error).toEqual(seen(lost, { rank: 1, device: "cuda:1" }));
      }),
    );
  });

  test.each([
    ["copyFrom", "copy", (buffer: DeviceBuffer<"int8">) => buffer.copyFrom(new Int8Array(4))],
    ["toHost", "copy", (buffer: DeviceBuffer<"int8">) => buffer.toHost()],
    ["fill", "set", (buffer: DeviceBuffer<"int8">) => buffer.fill(0)],
  ])("names the rank that copies or fills memory: %s", async (_, name, work) => {
    const gpus = cleanGpus();
    const lost = cudaError("cudaMemcpyAsync", 700, "cudaErrorIllegalAddress");
    await inWorld(gpus, 2, (world) =>
      world.run(async (comm) => {
        if (comm.rank === 0) return;
        const buffer = comm.alloc("int8", 4);
        gpus.machine.failNext(name, lost);
        const error = await thrown(Promise.resolve().then<unknown>(() => work(buffer)));
        expect(error).toEqual(seen(lost, { rank: 1, device: "cuda:1" }));
      }),
    );
  });

  test.each(["set", "setDevice"])(
    "names the rank with new memory that fails in %s, and keeps none",
    async (name) => {
      const gpus = cleanGpus();
      const failure = cudaError("cudaSetDevice", 719, "cudaErrorLaunchFailure");
      await inWorld(gpus, 2, (world) =>
        world.run(async (comm) => {
          if (comm.rank !== 1) return;
          const before = gpus.machine.memory.live.length;
          gpus.machine.failNext(name, failure);
          const facts = { rank: 1, device: "cuda:1" };
          expect(() => comm.alloc("float32", 8)).toThrow(expect.objectContaining(facts));
          await turns(20);
          expect(gpus.machine.memory.live.length).toBe(before);
        }),
      );
    },
  );

  test("names the rank with a communicator that has ended, and the cause", async () => {
    const gpus = cleanGpus();
    const errors: CommError[] = [];
    const planned = ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");
    await inWorld(gpus, 2, (world) =>
      world.run(async (comm) => {
        await comm.barrier();
        gpus.machine.hold();
        const end = [...gpus.nccl.ends.values()].at(-1);
        if (end !== undefined) end.failure = planned;
        const data = comm.alloc("int8", 4);
        await thrown(comm.allReduce({ send: data, op: "sum" }));
        errors[comm.rank] = await thrown(comm.allReduce({ send: data, op: "sum" }));
        gpus.machine.release();
      }),
    );
    const place = { rank: 1, size: 2, comm: "world", device: "cuda:1" };
    for (const [rank, error] of errors.entries()) {
      expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", rank, size: 2, comm: "world" });
      expect(error.cause).toEqual(seen(planned, place));
    }
  });

  test.each([
    ["ncclUnhandledCudaError", /NCCL_DEBUG=WARN/],
    ["ncclSystemError", /NCCL_DEBUG=WARN/],
    ["ncclInternalError", /other ranks' errors/],
    ["ncclInvalidArgument", /NCCL_DEBUG=WARN/],
    ["ncclInvalidUsage", /NCCL_DEBUG=WARN/],
    ["ncclRemoteError", /rebuild\(\)/],
    ["ncclInProgress", /NCCL_COMM_BLOCKING/],
    ["ncclTimeout", /rebuild\(\)/],
    ["status 41", /NCCL_DEBUG=WARN/],
  ])("says what to do: %s", (statusName, hint) => {
    const error = new NcclError({ cCall: "ncclAllReduce", status: 1, statusName, detail: "" });
    expect(error.hint).toMatch(hint);
    expect(error.message).toContain(error.hint);
  });

  test.each([NcclError, CudaError])("is plain data with the native call and status", (Failure) => {
    const failure = { cCall: "cudaMalloc", status: 2, statusName: "aStatus", detail: "no memory" };
    expect(JSON.parse(JSON.stringify(new Failure(failure, { rank: 1 })))).toMatchObject({
      ...failure,
      name: Failure.name,
      rank: 1,
    });
  });

  test.each([
    ["cudaErrorMemoryAllocation", /allocate less/],
    ["cudaErrorIllegalAddress", /start another/],
    ["cudaErrorECCUncorrectable", /Xid/],
    ["cudaErrorDevicesUnavailable", /nvidia-smi/],
    ["cudaErrorStreamCaptureImplicit", /record again/],
    ["cudaErrorThatIsNewer", /cudaError_t/],
  ])("says what to do: %s", (statusName, hint) => {
    const error = new CudaError({ cCall: "cudaMalloc", status: 1, statusName, detail: "" });
    expect(error.hint).toMatch(hint);
  });
});
