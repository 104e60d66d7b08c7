/** Faults of a device, and their errors. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { BackendUnavailableError, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { WebgpuError, webgpu } from "twinccl/webgpu";
import { expect, test } from "vitest";
import { describeWebgpu, ownDevice, sharedDevice, sharedExecutor } from "../support/webgpu.ts";

const usage = 0x80 | 4 | 8;

/** The error of an operation, below the error of the run. */
async function failureOf(run: Promise<unknown>): Promise<unknown> {
  try {
    await run;
  } catch (error) {
    return error instanceof Error && error.cause !== undefined ? error.cause : error;
  }
  return undefined;
}

/** The buffers for memory that are made on a device from now on, until they are destroyed. */
function heldBuffers(device: GPUDevice): ReadonlySet<GPUBuffer> {
  const held = new Set<GPUBuffer>();
  const create = device.createBuffer.bind(device);
  device.createBuffer = (request) => {
    const buffer = create(request);
    const destroy = buffer.destroy.bind(buffer);
    if (request.label === "twinccl memory") held.add(buffer);
    buffer.destroy = () => {
      held.delete(buffer);
      return destroy();
    };
    return buffer;
  };
  return held;
}

describeWebgpu("on a device that fails", () => {
  test("a lost device fails calls by name, and a new world opens another one", async () => {
    const executor = webgpu();
    const backend = sim({ executor });
    const world = await createWorld({ backend, size: 2 });
    const failure = await failureOf(
      world.run(async (comm) => {
        const buffer = comm.alloc("float32", 4);
        executor.place(buffer).buffer;
        await comm.allReduce({ send: buffer, op: "sum" });
        if (comm.rank === 0) executor.device?.destroy();
        await comm.allReduce({ send: buffer, op: "sum" });
      }),
    );
    expect(failure).toBeInstanceOf(WebgpuError);
    expect(failure).toMatchObject({ fault: "lost", code: "ERR_COMM_WEBGPU" });
    expect((failure as WebgpuError).adapter).not.toBe("");
    expect((failure as WebgpuError).hint).toMatch(/create another one/);
    const next = await createWorld({ backend, size: 2 });
    const sums = await next.run(async (comm) => {
      const buffer = comm.alloc("int32", 1).fill(comm.rank + 1);
      await comm.allReduce({ send: buffer, op: "sum" });
      return [...(await buffer.toHost())];
    });
    expect(sums).toEqual([[3], [3]]);
    await next.close();
    await world.close();
  });

  test("a machine without the requested adapter", async () => {
    const executor = webgpu({ dawn: ["adapter=there is no such adapter"] });
    const opened = createWorld({ backend: sim({ executor }), size: 1 });
    await expect(opened).rejects.toBeInstanceOf(BackendUnavailableError);
    await expect(opened).rejects.toThrow(/found no adapter.*\nhint: .*VK_DRIVER_FILES/s);
    expect(await sim({ executor }).probe({ size: 1, name: "w" })).toMatchObject({ ok: false });
  });

  test("a destroyed GPUBuffer as an argument is a validation error", async () => {
    const device = await ownDevice();
    const executor = webgpu({ device });
    const world = await createWorld({ backend: sim({ executor }), size: 1 });
    const buffer = device.createBuffer({ size: 64, usage });
    const failure = await failureOf(
      world.run(async (comm) => {
        const own = comm.adopt(executor.address(buffer), "float32", 16);
        buffer.destroy();
        await comm.allReduce({ send: own, op: "avg" });
        await comm.allReduce({ send: own, op: "sum" });
      }),
    );
    expect(failure).toMatchObject({ name: "WebgpuError", fault: "validation" });
    expect((failure as WebgpuError).hint).toMatch(/GPUBuffers that were handed in/);
    await world.close();
    device.destroy();
  });

  test("a lost device of the caller is named as such, also to a world that is opened later", async () => {
    const device = await ownDevice();
    const executor = webgpu({ device });
    const world = await createWorld({ backend: sim({ executor }), size: 2 });
    const failure = await failureOf(
      world.run(async (comm) => {
        const buffer = comm.alloc("float32", 4);
        const calls = [1, 2, 3].map(() => comm.allReduce({ send: buffer, op: "sum" }));
        if (comm.rank === 1) device.destroy();
        await Promise.all(calls);
      }),
    );
    expect(failure).toMatchObject({ name: "WebgpuError", fault: "lost" });
    expect((failure as WebgpuError).hint).toMatch(/pass a new device to webgpu/);
    await world.close();
    const later = createWorld({ backend: sim({ executor }), size: 2 });
    await expect(later).rejects.toMatchObject({ name: "WebgpuError", fault: "lost" });

    const idle = await ownDevice();
    const second = sim({ executor: webgpu({ device: idle }) });
    await (await createWorld({ backend: second, size: 1 })).close();
    idle.destroy();
    await expect(createWorld({ backend: second, size: 1 })).rejects.toMatchObject({
      ...{ name: "WebgpuError", fault: "lost" },
    });
  });

  test("memory beyond the device's fails its reads, by name", async () => {
    const executor = webgpu();
    const world = await createWorld({ backend: sim({ executor }), size: 1 });
    const read = world.run((comm) =>
      comm
        .alloc("uint8", 2 ** 42)
        .subarray(0, 4)
        .toHost(),
    );
    expect(await failureOf(read)).toMatchObject({ name: "WebgpuError", fault: "out-of-memory" });
    await world.close();
  });

  test.each(["own", "a caller's"])(
    "memory beyond that of %s device fails at once the calls that use it, and nothing else",
    async (whose) => {
      const device = whose === "own" ? undefined : await ownDevice();
      const executor = webgpu({ device, slabBytes: 256 });
      const world = await createWorld({ backend: sim({ executor }), size: 1 });
      const held = heldBuffers(executor.device as GPUDevice);
      await world.run(async (comm) => {
        const kept = comm.alloc("uint8", 8).fill(5);
        await kept.toHost();
        const before = held.size;
        const recv = new Uint8Array(16);
        for (let round = 0; round < 3; round++) {
          const send = comm.alloc("uint8", 2 ** 42).subarray(0, 16);
          // The last round is as late as to know of the failure.
          if (round === 2) await failureOf(Promise.resolve(send.toHost()));
          for (const data of [{ send }, { send, recv }]) {
            const failure = failureOf(Promise.resolve(comm.allReduce({ ...data, op: "sum" })));
            expect(await failure).toMatchObject({ name: "WebgpuError", fault: "out-of-memory" });
          }
          send.dispose();
          expect(held.size).toBe(before);
        }
        expect([...(await kept.toHost())]).toEqual(Array(8).fill(5));
      });
      await world.close();
      device?.destroy();
    },
  );

  test("a kept device holds no memory of closed worlds", async () => {
    const executor = webgpu({ keepDevice: true });
    const backend = sim({ executor });
    const world = await createWorld({ backend, size: 2 });
    const held = heldBuffers(executor.device as GPUDevice);
    const call = (comm: Communicator) =>
      comm.allReduce({ send: comm.alloc("float32", 100), op: "sum" });
    await world.run(call);
    expect(held.size).toBeGreaterThan(0);
    await world.close();
    expect(held.size).toBe(0);
    const next = await createWorld({ backend, size: 2 });
    await next.run(call);
    await next.close();
    executor.release();
  });

  test("a GPUBuffer of another device is a validation error that says so", async () => {
    const [device, other] = [await ownDevice(), await ownDevice()];
    const executor = webgpu({ device });
    const world = await createWorld({ backend: sim({ executor }), size: 1 });
    const buffer = other.createBuffer({ size: 64, usage });
    const failure = await failureOf(
      world.run(async (comm) => {
        const own = comm.adopt(executor.address(buffer), "float32", 16);
        await comm.allReduce({ send: own, op: "avg" });
        await comm.allReduce({ send: own, op: "sum" });
      }),
    );
    expect(failure).toMatchObject({ name: "WebgpuError", fault: "validation" });
    expect((failure as WebgpuError).message).toMatch(/cannot be used with \[Device/);
    await world.close();
    for (const each of [device, other]) each.destroy();
  });

  test("a GPUBuffer of too few usages, and an invalid address", async () => {
    const device = await sharedDevice();
    const executor = await sharedExecutor();
    const plain = device.createBuffer({ size: 16, usage: 0x80 });
    expect(() => executor.address(plain)).toThrow(/needs STORAGE, COPY_SRC and COPY_DST/);
    const odd = device.createBuffer({ size: 13, usage });
    expect(() => executor.address(odd)).toThrow(
      /found a GPUBuffer of 13 bytes, needs a multiple of 4/,
    );
    const world = await createWorld({ backend: sim({ executor }), size: 1 });
    const run = world.run((comm) => comm.adopt(4_096n, "float32", 4));
    expect(String(await failureOf(run))).toMatch(/adopt: ptr 0x1000: found no GPUBuffer/);
    await world.close();
  });

  test("GPUBuffers are read and written without a copy", async () => {
    const device = await sharedDevice();
    const executor = await sharedExecutor();
    const world = await createWorld({ backend: sim({ executor }), size: 3 });
    const sums = await world.run(async (comm) => {
      const buffer = device.createBuffer({ size: 64, usage });
      device.queue.writeBuffer(
        buffer,
        0,
        Float32Array.from({ length: 16 }, (_, i) => i + comm.rank),
      );
      const address = executor.address(buffer);
      const own = comm.adopt(address + 16n, "float32", 8);
      const place = executor.place(own);
      expect(place).toEqual({ buffer, offset: 16, size: 32 });
      await comm.allReduce({ send: own, op: "sum" });
      const whole = comm.adopt(address, "float32", 16);
      const found = [...(await whole.toHost())];
      own.dispose();
      buffer.destroy();
      return found;
    });
    const expected = (rank: number): number[] =>
      Array.from({ length: 16 }, (_, i) => (i >= 4 && i < 12 ? 3 * i + 3 : i + rank));
    expect(sums).toEqual([0, 1, 2].map(expected));
    await world.close();
  });

  test.each(["closed", "open"])("a process with a world left %s ends by itself", (left) => {
    const file = fileURLToPath(new URL("./jobs/ends.mjs", import.meta.url));
    const { status, stdout, signal } = spawnSync(process.execPath, [file, left], {
      encoding: "utf8",
      timeout: 60_000,
    });
    expect({ status, signal, stdout }).toEqual({ status: 0, signal: null, stdout: "6\n" });
  });
});
