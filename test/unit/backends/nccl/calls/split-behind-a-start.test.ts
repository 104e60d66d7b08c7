/** Starts on JavaScript's thread, such as splits, during another one's start on another thread: variables that either sets. */
import { connect, createWorld } from "twinccl";
import { describe, expect, test, vi } from "vitest";
import { join } from "../../../../../src/backends/nccl/join.ts";
import { openLocal } from "../../../../../src/backends/nccl/open.ts";
import { startWithVariables } from "../../../../../src/backends/nccl/process/start-variables.ts";
import { ProcessDevice } from "../../../../../src/backends/nccl/process/visible-devices.ts";
import type { FakeGpus } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";
import { outcome } from "./watched-world.ts";

quickTime();

/** A start on another thread, under way until it is let go. */
async function startUnderWay(
  variables: Readonly<Record<string, string>> = { NCCL_ALGO: "Ring" },
): Promise<() => Promise<void>> {
  let letGo = (): void => undefined;
  const open = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const start = startWithVariables(variables, () => open);
  await turns();
  expect(process.env["NCCL_ALGO"]).toBe(variables["NCCL_ALGO"]);
  return () => {
    letGo();
    return start;
  };
}

/** Opens a world of two ranks with a plan that NCCL reads from a variable. */
const pinned = ({ setup }: FakeGpus) =>
  createWorld({
    backend: {
      name: "nccl",
      probe: () => ({ ok: true, reason: "fake GPUs" }),
      open: async ({ name }) =>
        openLocal({ ...setup, pin: { variables: { NCCL_ALGO: "Tree" } } }, places, name),
    },
    size: 2,
  });
const places = [{ device: 0 }, { device: 1 }];

test("a split with a pinned plan waits for a start without one, which would see it", async () => {
  const gpus = cleanGpus();
  const world = await pinned(gpus);
  const end = await startUnderWay({});
  const running = world.run(async (comm) => (await comm.split({ color: 0 })).size);
  await turns();
  expect(gpus.machine.count("split")).toBe(0);
  await end();
  expect(await running).toEqual([2, 2]);
  expect(process.env["NCCL_ALGO"]).toBeUndefined();
  await world.close();
});

/** Connects a process by itself. */
const alone = ({ setup }: FakeGpus) => {
  const { libraries } = setup;
  const access = {
    own: new ProcessDevice({}),
    findDevices: async () => ({ libraries, visible: 8 }),
  };
  return connect({
    backend: {
      name: "nccl",
      probe: () => ({ ok: true, reason: "fake GPUs" }),
      open: () => Promise.reject(new Error("this backend only joins")),
      join: (request) => join({}, request, () => setup, access),
    },
  });
};

test("connect of a process by itself waits for another start with a pinned plan", async () => {
  const gpus = cleanGpus();
  const end = await startUnderWay();
  const connecting = alone(gpus);
  await turns();
  expect(gpus.machine.count("initRank")).toBe(0);
  await end();
  await (await connecting).close();
  expect(gpus.machine.count("initRank")).toBe(1);
});

test("connect of a process by itself sees no variable of a start that begins at the end of another", async () => {
  const gpus = cleanGpus();
  const end = await startUnderWay();
  const seen: unknown[] = [];
  const { nccl } = gpus.setup.libraries;
  const { initRank } = nccl;
  vi.spyOn(nccl, "initRank").mockImplementation((...args) => {
    seen.push(process.env["NCCL_ALGO"]);
    initRank(...args);
  });
  const connecting = alone(gpus);
  await turns();
  const next = startWithVariables({ NCCL_ALGO: "Tree" }, () => turns());
  await end();
  await next;
  await (await connecting).close();
  expect(seen).toEqual([undefined]);
});

describe("a split during another communicator's start", () => {
  test("waits for that start, and does not see its variables", async () => {
    const gpus = cleanGpus();
    const { split } = gpus.nccl.calls;
    const seen: unknown[] = [];
    gpus.nccl.calls.split = (...args) => {
      seen.push(process.env["NCCL_ALGO"]);
      split(...args);
    };
    await inWorld(gpus, 2, async (world) => {
      const end = await startUnderWay();
      const running = world.run(async (comm) => {
        const child = await comm.split({ color: 0 });
        await child.barrier();
        await child.close();
        return child.size;
      });
      await turns();
      expect(seen).toEqual([]);
      await end();
      expect(await running).toEqual([2, 2]);
      expect(seen).toEqual([undefined, undefined]);
    });
  });

  test("is not made on a communicator that was aborted meanwhile", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      const end = await startUnderWay();
      const running = world.run(async (comm) => {
        const splitting = outcome(comm.split({ color: 0 }));
        await turns();
        if (comm.rank === 0) comm.abort(new Error("enough"));
        await turns();
        if (comm.rank === 0) await end();
        return splitting;
      });
      expect(await running).toEqual(["ERR_COMM_ABORTED", "ERR_COMM_ABORTED"]);
      await turns();
      expect(gpus.machine.count("split")).toBe(0);
    });
  });
});
