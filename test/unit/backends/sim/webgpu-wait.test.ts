/** The turns of the event loop while a device works: a GPU needs no core, an adapter in software needs all of them. */
import { expect, test, vi } from "vitest";
import { OpenDevice } from "../../../../src/backends/sim/executors/webgpu/device.ts";

/** Number of sleeps of the thread while a device works for 200 turns of the event loop. */
async function sleepsOn(isFallbackAdapter: boolean): Promise<number> {
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 200; turn++) await new Promise((resolve) => setImmediate(resolve));
  };
  const device = {
    limits: { maxBufferSize: 2 ** 20, maxStorageBufferBindingSize: 2 ** 20 },
    lost: new Promise<never>(() => {}),
    adapterInfo: { isFallbackAdapter },
    queue: { onSubmittedWorkDone: turns },
  } as unknown as GPUDevice;
  const wait = vi.spyOn(Atomics, "wait");
  try {
    await new OpenDevice(device, "a test", false, {}).done();
    return wait.mock.calls.length;
  } finally {
    wait.mockRestore();
  }
}

test("a wait for a GPU sleeps in no turn of the event loop", async () => {
  expect(await sleepsOn(false)).toBe(0);
});

test("a wait for an adapter in software leaves the processor to it", async () => {
  expect(await sleepsOn(true)).toBeGreaterThan(100);
});
