/** Failures half-way through: what was made before is released, and the errors say where they happened. */
import { type CommError, connect, createWorld } from "twinccl";
import { expect, test } from "vitest";
import { placesFor } from "../../../../src/backends/nccl/devices.ts";
import { openJoined, openLocal, type Setup } from "../../../../src/backends/nccl/open.ts";
import type { Membership } from "../../../../src/job/rendezvous.ts";
import { cudaError, ncclError } from "../../../support/fake-gpus/index.ts";
import { place } from "../../job/stores.ts";
import { cleanGpus, inWorld, seen } from "./gpus.ts";

test("a world without a readable log of plans ends its communicator", async () => {
  const { setup } = cleanGpus();
  const fault = new Error("EIO: the log cannot be read");
  const readPlans = (): void => {
    throw fault;
  };
  const open = createWorld({
    backend: {
      name: "nccl",
      probe: () => ({ ok: true, reason: "fake GPUs" }),
      open: async (request) => openLocal({ ...setup, readPlans }, placesFor({}, request), "half"),
    },
    size: 2,
  });
  await expect(open).rejects.toThrow(fault.message);
});

/** Opens a job with a rank for each setup, as processes of their own do. */
async function openJob(setups: readonly Setup[]) {
  const members = await (await place(setups.length)).joinAll();
  const opened = setups.map((setup, rank) =>
    connect({
      backend: {
        name: "nccl",
        probe: () => ({ ok: true, reason: "fake GPUs" }),
        open: () => Promise.reject(new Error("this backend only joins")),
        join: (request) =>
          openJoined(setup, { device: rank }, members[rank] as Membership, request),
      },
      timeoutMs: 5_000,
    }),
  );
  return Promise.allSettled(opened);
}

test("a job with a rank without a readable log opens on no rank, and ends its communicators", async () => {
  const { setup } = cleanGpus();
  const readPlans = (): void => {
    throw new Error("EIO: the log cannot be read");
  };
  const [first, second] = await openJob([setup, { ...setup, readPlans }]);
  expect(first).toMatchObject({ status: "rejected", reason: { ranks: [1] } });
  expect(second).toMatchObject({
    status: "rejected",
    reason: { message: expect.stringContaining("EIO") },
  });
});

test("a GPU without a known place is named with its rank, in a job and with pinned rings", async () => {
  const fault = cudaError("cudaDeviceGetPCIBusId", 999, "cudaErrorUnknown");
  const { setup, machine } = cleanGpus();
  machine.failNext("pciBusId", fault, 1);
  const [first, second] = await openJob([setup, setup]);
  expect(first).toMatchObject({ status: "rejected", reason: { ranks: [1] } });
  const facts = { rank: 1, size: 2, comm: "world", device: "cuda:1" };
  expect(second).toEqual({ status: "rejected", reason: seen(fault, facts) });
  machine.failNext("pciBusId", fault, 1);
  const pinned = () =>
    openLocal({ ...setup, pin: { rings: [0, 1] } }, [{ device: 0 }, { device: 1 }], "world");
  await expect(pinned()).rejects.toEqual(seen(fault, facts));
});

test("a failed estimate destroys the operators of earlier ranks", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 3, async (world) => {
    const fault = ncclError("ncclRedOpCreatePreMulSum", 1, "ncclUnhandledCudaError");
    gpus.machine.failNext("preMulSum", fault, 2);
    const op = { preMul: 2 };
    const estimate = world.estimate({ collective: "allReduce", dtype: "float32", op, count: 8 });
    await expect(estimate).rejects.toEqual(seen(fault, { rank: 2, size: 3, comm: "world" }));
  });
});

test("an address that CUDA cannot look up is an error of its rank and device", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 2, async (world) => {
    const fault = cudaError("cudaPointerGetAttributes", 700, "cudaErrorIllegalAddress");
    gpus.machine.failNext("pointerInfo", fault);
    const errors = await world.run((comm) => {
      try {
        comm.adopt(0x4000n, "float32", 1);
      } catch (error) {
        return error as CommError;
      }
      return undefined;
    });
    expect(errors[0]).toEqual(seen(fault, { rank: 0, device: "cuda:0" }));
  });
});

test("page-locked memory without a view is freed", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 1, async (world) => {
    gpus.machine.failNext("hostView", new Error("no view of that memory"));
    await world.run((comm) => {
      const data = comm.alloc("int8", 4);
      expect(() => data.copyFrom(Int8Array.of(1, 2, 3, 4))).toThrow("no view");
    });
  });
});
