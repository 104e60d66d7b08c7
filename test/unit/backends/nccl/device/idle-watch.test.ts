/** Background faults without a waiting call: found soon, by a timer that keeps nothing alive and ends. */
import { createWorld } from "twinccl";
import { afterEach, describe, expect, test, vi } from "vitest";
import { Progress } from "../../../../../src/backends/nccl/device/progress.ts";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { cleanGpus, seen, turns } from "../gpus.ts";
import { joinAll } from "../job/joined.ts";

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const everyMs = 1000;
const remote = () => ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");

/** A world on fake GPUs with intervals that the test triggers. */
async function open(size = 2) {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  const gpus = cleanGpus();
  const world = await createWorld({ backend: gpus.backend(), size });
  return { gpus, machine: gpus.machine, world };
}

describe("while no call waits", () => {
  test("a fault ends its communicator before the next call, which reports it, and no other", async () => {
    const { gpus, machine, world } = await open();
    const failure = remote();
    const outcomes = await world.run(async (comm) => {
      const child = await comm.split({ color: 0 });
      await turns(5);
      if (comm.rank === 0) {
        const end = [...gpus.nccl.ends.values()].at(-1);
        if (end !== undefined) end.failure = failure;
        vi.advanceTimersByTime(everyMs - 1);
        expect(machine.count("checkAsync")).toBe(0);
        vi.advanceTimersByTime(1);
      }
      await turns();
      expect(machine.count("abortInBackground")).toBe(2);
      return child.barrier().catch((error) => error);
    });
    expect(outcomes).toHaveLength(2);
    for (const error of outcomes) {
      expect(error).toMatchObject({ code: "ERR_COMM_ABORTED", cause: seen(failure) });
    }
    await expectHealthy(world);
    await world.close();
  });

  test("there is a poll every second, and none by the timer while a call waits", async () => {
    const { machine, world } = await open(1);
    vi.advanceTimersByTime(3 * everyMs);
    expect(machine.count("checkAsync")).toBe(3);
    await world.run(async (comm) => {
      machine.hold();
      const op = comm.barrier();
      await turns(2);
      const before = machine.count("checkAsync");
      vi.advanceTimersByTime(everyMs);
      expect(machine.count("checkAsync")).toBe(before);
      machine.release();
      await op;
    });
    await world.close();
  });

  test("a rank that joined alone gets the fault too", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus);
    // Each looks after its end; the ends of others are pushed.
    expect(vi.getTimerCount()).toBe(2);
    for (const end of gpus.nccl.ends.values()) end.failure = remote();
    vi.advanceTimersByTime(4 * everyMs);
    await turns();
    // What NCCL blames on another process, that one or the launcher may tell better.
    expect(gpus.machine.count("abortInBackground")).toBe(0);
    vi.advanceTimersByTime(everyMs);
    await turns();
    expect(gpus.machine.count("abortInBackground")).toBe(2);
    for (const { comm } of ranks) {
      await expect(comm.barrier()).rejects.toMatchObject({ code: "ERR_COMM_ABORTED" });
    }
    await Promise.all(ranks.map(({ comm }) => comm.close()));
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("the timer", () => {
  test("is one for each open world, and ends with it", async () => {
    const { gpus, machine, world } = await open();
    expect(vi.getTimerCount()).toBe(1);
    await world.run((comm) => comm.split({ color: comm.rank }));
    expect(vi.getTimerCount()).toBe(1);
    const other = await createWorld({ backend: gpus.backend([2]), size: 1 });
    expect(vi.getTimerCount()).toBe(2);
    await world.close();
    expect(vi.getTimerCount()).toBe(1);
    await other.close();
    expect(vi.getTimerCount()).toBe(0);
    const looks = machine.count("checkAsync");
    vi.advanceTimersByTime(10 * everyMs);
    expect(machine.count("checkAsync")).toBe(looks);
  });

  test.each(["release", "abandon"] as const)("ends with the work that it polls: %s", (end) => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    let looks = 0;
    const progress = new Progress(() => {
      looks += 1;
    });
    progress.watchIdle();
    vi.advanceTimersByTime(everyMs);
    expect([looks, vi.getTimerCount()]).toEqual([1, 1]);
    progress[end](new Error("it does not end"));
    vi.advanceTimersByTime(everyMs);
    expect([looks, vi.getTimerCount()]).toEqual([1, 0]);
  });

  test("is never set for a world that could not be opened", async () => {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
    const gpus = cleanGpus();
    gpus.machine.failNext("uniqueId", remote());
    await expect(createWorld({ backend: gpus.backend(), size: 2 })).rejects.toThrow();
    expect(vi.getTimerCount()).toBe(0);
  });

  test("keeps no process alive", async () => {
    const setting = vi.spyOn(globalThis, "setInterval");
    const gpus = cleanGpus();
    const world = await createWorld({ backend: gpus.backend(), size: 1 });
    const timers = setting.mock.results.map(({ value }) => value as NodeJS.Timeout);
    expect(timers.map((timer) => timer.hasRef())).toEqual([false]);
    await world.close();
  });
});
