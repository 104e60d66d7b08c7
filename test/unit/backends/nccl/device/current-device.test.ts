/** CUDA's current device, one for each thread: work runs on its own device, whatever other code sets. */
import { expect, test, vi } from "vitest";
import { Device } from "../../../../../src/backends/nccl/device/device.ts";
import { Progress } from "../../../../../src/backends/nccl/device/progress.ts";
import { fakeCuda } from "../../../../support/fake-gpus/cuda.ts";
import { Machine } from "../../../../support/fake-gpus/machine.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { turns } from "../gpus.ts";

quickTime();

// Modules keep what other files have done on this thread.
vi.hoisted(() => vi.resetModules());

/** Two devices of one machine, by libraries of their own or by one. */
function setUp(libraries: 1 | 2) {
  const machine = new Machine();
  const first = fakeCuda(machine);
  const second = libraries === 1 ? first : fakeCuda(machine);
  const devices = [first, second].map((cuda, index) => {
    return new Device(cuda, index);
  }) as [Device, Device];
  /** Where memory is that a device takes. */
  const home = (device: Device) => machine.memory.at(device.use().malloc(8))?.home;
  return { machine, devices, home };
}

test.each([1, 2] as const)("is each rank's own by %i names of the library", (libraries) => {
  const { devices, home } = setUp(libraries);
  const [zero, one] = devices;
  expect([zero, one, zero, zero, one].map(home)).toEqual([0, 1, 0, 0, 1]);
});

test("is set again by the next event of the loop, whatever code set it in between", async () => {
  const { machine, devices, home } = setUp(1);
  const [zero] = devices;
  expect(home(zero)).toBe(0);
  setImmediate(() => {
    machine.current = 5;
  });
  await turns(2);
  expect(home(zero)).toBe(0);
});

test("is set once for what follows from one event", async () => {
  const { machine, devices, home } = setUp(1);
  const [zero] = devices;
  await turns(1);
  const before = machine.count("setDevice");
  for (let i = 0; i < 3; i++) {
    home(zero);
    await undefined;
  }
  expect(machine.count("setDevice")).toBe(before + 1);
});

test.each(["release", "abandon"] as const)(
  "is not queried for its work after its %s, also as the one that was set last",
  async (end) => {
    const { machine, devices } = setUp(1);
    const [, one] = devices;
    const progress = new Progress(() => undefined);
    one.use();
    const waiting = progress.after([one]);
    one[end]();
    await expect(waiting).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    expect(machine.count("streamDone")).toBe(0);
  },
);

test("is set for each query once the caller's code sets devices too", async () => {
  const { machine, devices } = setUp(1);
  const [zero] = devices;
  const progress = new Progress(() => undefined);
  await progress.after([zero]);
  zero.share();
  for (let i = 0; i < 2; i++) {
    machine.current = 5;
    await progress.after([zero]);
  }
  expect(machine.complaints).toEqual([]);
});
