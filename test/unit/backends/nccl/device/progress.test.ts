/** Waits for work on streams: each settles once, and only with its own outcome. */
import { describe, expect, test } from "vitest";
import type { Completion } from "../../../../../src/api/backend-entry.ts";
import { Device } from "../../../../../src/backends/nccl/device/device.ts";
import { Progress } from "../../../../../src/backends/nccl/device/progress.ts";
import { fakeCuda } from "../../../../support/fake-gpus/cuda.ts";
import { Machine } from "../../../../support/fake-gpus/machine.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { turns } from "../gpus.ts";

quickTime();

/** Two devices with held work on their streams, progress on them, and a list of settled waits. */
function setUp() {
  const machine = new Machine();
  const cuda = fakeCuda(machine);
  const devices = [0, 1].map((index) => new Device(cuda, index)) as [Device, Device];
  machine.hold();
  for (const { stream } of devices) {
    machine.stream(stream).put(() => ({ what: "work", step: () => true }));
  }
  const notified: unknown[][] = [];
  const waiting = (name: string): Completion => ({
    acceptsMore: false,
    settled: (error) => void notified.push(error === undefined ? [name] : [name, error]),
  });
  return { machine, devices, progress: new Progress(() => undefined), notified: notified, waiting };
}

describe("waits", () => {
  test("settle when the streams of all their devices have reached them", async () => {
    const { machine, devices, progress, notified, waiting } = setUp();
    const [first, second] = devices;
    progress.whenDone([first], undefined, waiting("first"));
    progress.whenDone([second], undefined, waiting("second"));
    progress.whenDone(devices, undefined, waiting("both"));
    await turns(2);
    expect(notified).toEqual([]);
    machine.release();
    await turns(3);
    expect(notified).toEqual([["first"], ["second"], ["both"]]);
    // One event for each device.
    expect(machine.count("eventRecord")).toBe(2);
  });

  test("are recorded once no communicator is being freed, and accept no more work until then", async () => {
    const { machine, devices, progress, notified, waiting } = setUp();
    let free = (): void => undefined;
    const freeing = progress.hold.during(() => new Promise<void>((resolve) => (free = resolve)));
    await turns(3);
    const first = waiting("first");
    progress.whenDone(devices, undefined, first);
    await turns(3);
    expect([machine.count("eventRecord"), first.acceptsMore]).toEqual([0, false]);
    free();
    await freeing;
    await turns(2);
    expect(machine.count("eventRecord")).toBe(2);
    machine.release();
    await turns(3);
    expect(notified).toEqual([["first"]]);
  });

  test("of work that was submitted right before a free are recorded before it begins", async () => {
    const { machine, devices, progress, waiting } = setUp();
    progress.whenDone(devices, undefined, waiting("first"));
    let recorded: number | undefined;
    await progress.hold.during(async () => {
      recorded = machine.count("eventRecord");
    });
    expect(recorded).toBe(2);
    machine.release();
    await turns(3);
  });

  test.each([
    ["before their work is marked", 0],
    ["while their work is under way", 2],
  ])("of one abandoned owner %s settle", async (_, before) => {
    const { machine, devices, progress, notified, waiting } = setUp();
    const [one, other, last] = [{}, {}, {}];
    progress.whenDone(devices, one, waiting("one"));
    progress.whenDone(devices, other, waiting("other"));
    progress.whenDone(devices, undefined, waiting("unowned"));
    progress.whenDone(devices, last, waiting("last"));
    progress.whenDone(devices, one, waiting("one again"));
    if (before > 0) await turns(before);
    progress.rejectOwner(one, "lost");
    expect(notified.splice(0)).toEqual([
      ["one", "lost"],
      ["one again", "lost"],
    ]);
    progress.rejectOwner(one, "twice");
    progress.rejectOwner(last, "late");
    expect(notified.splice(0)).toEqual([["last", "late"]]);
    machine.release();
    await turns(3);
    expect(notified).toEqual([["other"], ["unowned"]]);
  });

  test("all fail when the devices are lost, once", async () => {
    const { machine, devices, progress, notified, waiting } = setUp();
    progress.whenDone(devices, {}, waiting("one"));
    await turns(2);
    progress.whenDone(devices, {}, waiting("other"));
    await turns(2);
    progress.abandon("gone");
    machine.release();
    await turns(3);
    expect(notified).toEqual([
      ["one", "gone"],
      ["other", "gone"],
    ]);
    progress.release();
    expect(machine.events.size).toBe(0);
  });

  test("fail when the devices are closed before that", async () => {
    const { machine, devices, progress, notified, waiting } = setUp();
    progress.whenDone(devices, undefined, waiting("one"));
    await turns(2);
    progress.release();
    const closed = expect.objectContaining({ code: "ERR_COMM_CLOSED" });
    expect(notified).toEqual([["one", closed]]);
    expect(machine.events.size).toBe(0);
    machine.release();
    await turns(3);
    expect(notified).toHaveLength(1);
  });
});
