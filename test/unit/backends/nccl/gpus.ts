/** Fake GPUs for one test at a time, with the check that nothing was left behind or done wrongly. */
import { type CommErrorFacts, createWorld, type World } from "twinccl";
import type { CudaError, NcclError } from "twinccl/nccl";
import { expect, onTestFinished, vi } from "vitest";
import { type FakeGpus, fakeGpus } from "../../../support/fake-gpus/index.ts";

/** A machine with complaints and leaks that fail the test that made it; its worlds must be closed by then. */
export function cleanGpus(options: Parameters<typeof fakeGpus>[0] = {}): FakeGpus {
  const gpus = fakeGpus(options);
  onTestFinished(() => expectClean(gpus));
  return gpus;
}

/** Nothing was done that real GPUs would not forgive, nothing waits for ever, everything was given back. */
export function expectClean({ machine }: FakeGpus): void {
  expect(machine.complaints).toEqual([]);
  expect(machine.stuck()).toEqual([]);
  expect(machine.leaks()).toEqual([]);
}

/** Opens a world on fake GPUs, uses it and closes it. */
export async function inWorld<T>(
  gpus: FakeGpus,
  size: number,
  use: (world: World) => Promise<T>,
  devices?: readonly number[],
  streams?: readonly bigint[],
): Promise<T> {
  const world = await createWorld({ backend: gpus.backend(devices, streams), size });
  try {
    return await use(world);
  } finally {
    gpus.machine.release();
    await world.close();
  }
}

/** The error of a rank for a fault that was planned for a call of several: one of its own, with these facts. */
export function seen(planned: CudaError | NcclError, facts: CommErrorFacts = {}): unknown {
  const { code, cCall, status, statusName, detail } = planned;
  return expect.objectContaining({
    ...{ code, cCall, status, statusName, detail, cause: planned },
    ...facts,
  });
}

/**
 * Turns of the event loop, so that whatever is about to happen has happened. Waits for GPUs query in each turn only for some
 * time, and then by timers. On a busy machine a few turns take that long, so the clock must follow the turns.
 */
export async function turns(count = 10): Promise<void> {
  if (!vi.isFakeTimers()) throw new Error("turns: call quickTime() at the top of the file");
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
}
