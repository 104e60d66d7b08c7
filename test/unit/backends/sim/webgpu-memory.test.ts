/** Memory of a device that has none left, on a device that only says so. */
import { expect, test } from "vitest";
import { OpenDevice } from "../../../../src/backends/sim/executors/webgpu/device.ts";
import { Slabs } from "../../../../src/backends/sim/executors/webgpu/slabs.ts";

/** A device without memory for buffers of more than `most` bytes. */
function device(most: number): { device: OpenDevice; cleared: [number, number][] } {
  const cleared: [number, number][] = [];
  let requestedBytes = 0;
  const gpu = {
    pushErrorScope: () => {},
    popErrorScope: async () => (requestedBytes > most ? { message: "no room" } : null),
    createBuffer: ({ size }: { size: number }) => {
      requestedBytes = size;
      return { size, destroy: () => {} };
    },
    createCommandEncoder: () => ({
      clearBuffer: (_: unknown, at: number, bytes: number) => cleared.push([at, bytes]),
      finish: () => ({}),
    }),
  };
  const limits = { maxBufferSize: 2 ** 20, maxStorageBufferBindingSize: 2 ** 20 };
  const lost = new Promise<never>(() => {});
  const adapterInfo = { isFallbackAdapter: false };
  const queue = { submit: () => {} };
  const whole = { ...gpu, limits, lost, adapterInfo, queue } as unknown as GPUDevice;
  return { device: new OpenDevice(whole, "a test", false, {}), cleared };
}

test("memory that the device did not have fails by name, and is not given out again", async () => {
  const slabs = new Slabs(device(1_000).device, 512);
  const small = slabs.allocate(100, true);
  const large = slabs.allocate(2_000, true);
  await new Promise((resolve) => setImmediate(resolve));
  expect(small.slab.failure).toBeUndefined();
  expect(large.slab.failure).toMatchObject({
    name: "WebgpuError",
    fault: "out-of-memory",
    adapter: "a test",
    message: expect.stringMatching(/2048 bytes: no room\nhint: dispose buffers/),
  });
  slabs.free(large);
  expect(slabs.allocate(200, true).slab).toBe(small.slab);
});

test("ranges are apart, join when freed, and are cleared when given out again", () => {
  const { device: open, cleared } = device(2 ** 20);
  const slabs = new Slabs(open, 1_024);
  const [a, b, c] = [slabs.allocate(1, true), slabs.allocate(257, true), slabs.allocate(256, true)];
  expect([a, b, c].map(({ offset, bytes }) => [offset, bytes])).toEqual([
    [0, 256],
    [256, 512],
    [768, 256],
  ]);
  expect(cleared).toEqual([]);
  slabs.free(a);
  slabs.free(b);
  expect(slabs.allocate(768, false).offset).toBe(0);
  expect(cleared).toEqual([]);
  slabs.free(c);
  expect(slabs.allocate(100, true).offset).toBe(768);
  expect(cleared).toEqual([[768, 256]]);
});
