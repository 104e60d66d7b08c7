/** Streams that are queried at once for completion: the choice of streams, the duration, and the waiters' results. */
import { describe, expect, test, vi } from "vitest";
import type { Completion } from "../../../../../src/api/backend-entry.ts";
import { Device } from "../../../../../src/backends/nccl/device/device.ts";
import { Progress } from "../../../../../src/backends/nccl/device/progress.ts";
import { fakeCuda } from "../../../../support/fake-gpus/cuda.ts";
import { cudaError, Machine } from "../../../../support/fake-gpus/machine.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { turns } from "../gpus.ts";

quickTime();

const lost = cudaError("cudaStreamQuery", 700, "cudaErrorIllegalAddress");

/** Two idle devices, progress on them, and a list of the settled waits. */
function setUp() {
  const machine = new Machine();
  const cuda = fakeCuda(machine);
  const devices = [0, 1].map((index) => new Device(cuda, index)) as [Device, Device];
  const notified: unknown[][] = [];
  const waiting = (name: string, then?: () => void): Completion => ({
    acceptsMore: false,
    settled(error) {
      notified.push(error === undefined ? [name] : [name, error]);
      then?.();
    },
  });
  /** Work that is done at the nth query of the machine. */
  const put = ({ stream }: Device, looks: number): void => {
    let left = looks;
    machine.stream(stream).put(() => ({ what: "work", step: () => --left <= 0 }));
  };
  const queryCount = () => machine.count("streamDone");
  const progress = new Progress(() => undefined);
  return { machine, devices, progress, notified: notified, waiting, put, queryCount: queryCount };
}

/** A clock that advances a few microseconds with each reading. */
function clock(stepUs: number) {
  let readings = 0;
  const spy = vi.spyOn(performance, "now").mockImplementation(() => (readings++ * stepUs) / 1000);
  return () => spy.mockRestore();
}

describe("streams are queried", () => {
  test("for 50 µs, all together, and then marked with an event", async () => {
    const { machine, devices, progress, notified, waiting, put, queryCount } = setUp();
    put(devices[0], 2);
    put(devices[1], Number.POSITIVE_INFINITY);
    const restore = clock(20);
    try {
      progress.whenDone(devices, undefined, waiting("both"));
      await Promise.resolve();
    } finally {
      restore();
    }
    // The first one twice, within 20 µs, and the second one twice, until it was 60.
    expect(queryCount()).toBe(4);
    expect(machine.count("eventRecord")).toBe(2);
    expect(notified).toEqual([]);
    progress.release();
    expect(machine.events.size).toBe(0);
  });

  test.each([
    ["first", 0],
    ["last", 1],
  ])("each of them, also where only the %s one has work", async (_, busy) => {
    const { machine, devices, progress, notified, waiting, put } = setUp();
    machine.hold();
    put(devices[busy] as Device, 1);
    progress.whenDone(devices, undefined, waiting("both"));
    await turns(3);
    expect(notified).toEqual([]);
    machine.release();
    await turns(3);
    expect(notified).toEqual([["both"]]);
    progress.release();
  });

  test("on their own devices, when no further work is queued", async () => {
    const { machine, devices, progress, notified, waiting } = setUp();
    const [{ cuda }] = devices;
    devices[0].share();
    const one = waiting("one");
    const acceptsMore: boolean[] = [];
    const { streamDone } = cuda;
    vi.spyOn(cuda, "streamDone").mockImplementation((stream) => {
      acceptsMore.push(one.acceptsMore);
      return streamDone(stream);
    });
    progress.whenDone(devices, undefined, one);
    expect(one.acceptsMore).toBe(true);
    machine.current = 5;
    await Promise.resolve();
    expect(notified).toEqual([["one"]]);
    expect(acceptsMore).toEqual([false, false]);
    expect(machine.complaints).toEqual([]);
  });

  test("no more while a call waits for others: a later wait settles later", async () => {
    const { machine, devices, progress, notified, waiting, put, queryCount } = setUp();
    machine.hold();
    put(devices[0], 1);
    progress.whenDone([devices[0]], {}, waiting("first"));
    await turns(2);
    const before = queryCount();
    progress.whenDone([devices[1]], {}, waiting("second"));
    await turns(2);
    expect(queryCount()).toBe(before);
    expect(notified).toEqual([]);
    machine.release();
    await turns(2);
    expect(notified).toEqual([["first"], ["second"]]);
    progress.whenDone(devices, {}, waiting("third"));
    await Promise.resolve();
    expect(notified).toHaveLength(3);
    expect(queryCount()).toBe(before + 2);
    progress.release();
  });

  test("again by callbacks that queue more work", async () => {
    const { machine, devices, progress, notified, waiting } = setUp();
    const repeatSecond = () => progress.whenDone(devices, {}, waiting("second"));
    // A long turn of the event loop would move the second one to the next turn.
    const restore = clock(0);
    try {
      progress.whenDone(devices, {}, waiting("first", repeatSecond));
      expect(notified).toEqual([]);
      await turns(1);
    } finally {
      restore();
    }
    expect(notified).toEqual([["first"], ["second"]]);
    expect(machine.count("eventCreate")).toBe(0);
  });
});

describe("work that is awaited call after call, each done at once", () => {
  test("lets timers come in time", async () => {
    const { machine, devices, progress } = setUp();
    const begunMs = performance.now();
    let firedMs = 0;
    setTimeout(() => {
      firedMs = performance.now() - begunMs;
    }, 20);
    while (firedMs === 0 && performance.now() - begunMs < 2000) await progress.after(devices);
    expect(firedMs).toBeGreaterThan(0);
    expect(machine.count("eventCreate")).toBe(0);
  });

  test("is reported in the next turn after a long turn, and at once again in that one", async () => {
    const { devices, progress, notified, waiting, queryCount } = setUp();
    await turns(2);
    // The processes of a host end long turns together, at multiples of 8 ms of their common clock.
    const startMs = 8 - (performance.timeOrigin % 8);
    let nowMs = startMs;
    const spy = vi.spyOn(performance, "now").mockImplementation(() => nowMs);
    const ask = async (name: string): Promise<void> => {
      progress.whenDone(devices, undefined, waiting(name));
      await Promise.resolve();
    };
    try {
      for (const afterMs of [1, 7.9, 8.1]) {
        nowMs = startMs + afterMs;
        await ask(`after ${afterMs} ms`);
      }
      expect(notified).toEqual([["after 1 ms"], ["after 7.9 ms"]]);
      await ask("behind it");
      expect(notified).toHaveLength(2);
      await turns(2);
      expect(notified.slice(2)).toEqual([["after 8.1 ms"], ["behind it"]]);
      await ask("in the next turn");
      expect(notified).toHaveLength(5);
      expect(queryCount()).toBe(8);
    } finally {
      spy.mockRestore();
    }
    progress.release();
  });

  test("can be abandoned before it is reported", async () => {
    const { devices, progress, notified, waiting } = setUp();
    const owner = {};
    // A turn with an age that no query has read yet.
    await turns(2);
    const spy = vi.spyOn(performance, "now").mockImplementation(() => 0);
    await progress.after(devices);
    spy.mockReturnValue(11);
    progress.whenDone(devices, owner, waiting("given up"));
    progress.whenDone(devices, {}, waiting("abandoned"));
    await Promise.resolve();
    spy.mockRestore();
    expect(notified).toEqual([]);
    progress.rejectOwner(owner, lost);
    progress.abandon(lost);
    expect(notified).toEqual([
      ["given up", lost],
      ["abandoned", lost],
    ]);
    await turns(2);
    expect(notified).toHaveLength(2);
  });
});

describe("streams that cannot be queried", () => {
  test.each([0, 1])("fail all waits, once; device %i", async (which) => {
    const { machine, devices, progress, notified, waiting, queryCount } = setUp();
    machine.failNext("streamDone", lost, which);
    progress.whenDone(devices, {}, waiting("one"));
    progress.whenDone(devices, {}, waiting("other"));
    const promise = progress.after(devices);
    await expect(promise).rejects.toBe(lost);
    expect(notified).toEqual([
      ["one", lost],
      ["other", lost],
    ]);
    expect(queryCount()).toBe(which + 1);
    expect(machine.count("eventCreate")).toBe(0);
    await progress.after(devices);
  });

  test("fail no wait for work that was already found done", async () => {
    const { machine, devices, progress, notified, waiting, put } = setUp();
    machine.hold();
    put(devices[0], 1);
    progress.whenDone([devices[0]], {}, waiting("first"));
    await Promise.resolve();
    put(devices[1], Number.POSITIVE_INFINITY);
    progress.whenDone([devices[1]], {}, waiting("second"));
    await Promise.resolve();
    machine.failNext("eventDone", lost, 1);
    machine.release();
    await turns(2);
    expect(notified).toEqual([["first"], ["second", lost]]);
    progress.release();
  });

  test("are not queried when their devices were abandoned in the same turn", async () => {
    const { machine, devices, progress, notified, waiting, queryCount } = setUp();
    progress.whenDone(devices, {}, waiting("one"));
    for (const device of devices) device.release();
    await turns(1);
    expect(notified).toEqual([["one", expect.objectContaining({ code: "ERR_COMM_CLOSED" })]]);
    expect(queryCount()).toBe(0);
    expect(machine.complaints).toEqual([]);
  });
});
