/** A split of one world of a process during another one's start, which sets variables that the split would see. */
import { describe, expect, test } from "vitest";
import { startWithVariables } from "../../../../../src/backends/nccl/process/start-variables.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";
import { outcome } from "./watched-world.ts";

quickTime();

/** A start on another thread, under way until it is let go. */
async function startUnderWay(): Promise<() => Promise<void>> {
  let letGo = (): void => undefined;
  const open = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const start = startWithVariables({ NCCL_ALGO: "Ring" }, () => open);
  await turns();
  expect(process.env["NCCL_ALGO"]).toBe("Ring");
  return () => {
    letGo();
    return start;
  };
}

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
