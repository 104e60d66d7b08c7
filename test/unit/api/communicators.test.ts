/** The communicators that a world keeps: those that may still be used, however many there were. */

import { type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import type { LocalWorld } from "../../../src/api/world/local-world.ts";
import { expectHealthy } from "../../support/planted.ts";
import { isAll } from "../../support/seed.ts";

async function openWorld(size: number): Promise<LocalWorld> {
  return (await createWorld({ backend: sim(), size })) as LocalWorld;
}

async function half(comm: Communicator): Promise<Communicator> {
  return await comm.split({ color: comm.rank % 2 });
}

const splits = isAll ? 10_000 : 300;

describe("a world keeps", () => {
  test("only open communicators in memory, also after thousands of splits", async () => {
    const world = await openWorld(3);
    let most = 0;
    await world.run(async (comm) => {
      for (let split = 0; split < splits; split++) {
        const sub = await half(comm);
        const op = sub.allReduce({ send: Int32Array.of(1), op: "sum" });
        if (split % 3 === 0) await op;
        await sub.close();
        if (comm.rank === 0) most = Math.max(most, world.openCommunicators);
      }
    });
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(5);
    expect(world.openCommunicators).toBe(1);
    await expectHealthy(world);
    await world.close();
  });

  test("an aborted communicator only while its calls run", async () => {
    const world = await openWorld(2);
    await world.run(async (comm) => {
      for (let split = 0; split < 50; split++) {
        const sub = await comm.split({ color: 0 });
        const op = sub.barrier();
        if (comm.rank === split % 2) sub.abort("enough");
        await op.catch(() => undefined);
        await comm.barrier();
      }
    });
    expect(world.openCommunicators).toBe(1);
    await world.close();
  });

  test("a communicator that one rank has not closed, usable in the next run", async () => {
    const world = await openWorld(4);
    const kept: Communicator[] = [];
    await world.run(async (comm) => {
      const sub = await half(comm);
      kept[comm.rank] = sub;
      if (comm.rank === 1) await sub.close();
    });
    expect(world.openCommunicators).toBe(3);
    const sums = await world.run(async (comm) => {
      const data = Int32Array.of(comm.rank);
      if (comm.rank % 2 === 1) return -1;
      await (kept[comm.rank] as Communicator).allReduce({ send: data, op: "sum" });
      return data[0];
    });
    expect(sums).toEqual([2, -1, 2, -1]);
    await world.close();
  });

  test.each([
    ["a split", true],
    ["the world", false],
  ])("the failure of a call of %s that is closed in the turn of the call", async (_, isSplit) => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const closes: string[] = [];
    const running = world.run(async (comm) => {
      const closed = isSplit ? await comm.split({ color: 0 }) : comm;
      const send = comm.alloc("float32", comm.rank === 1 ? 3 : 4);
      void closed.allReduce({ send, op: "sum" });
      await closed.close().catch((error: Error) => closes.push(error.message));
    });
    await expect(running).rejects.toThrow("rank 1 differs in count");
    expect(closes).toHaveLength(3);
    for (const message of closes) expect(message).toContain("rank 1 differs in count");
    await world.close();
  });

  test("failures of a closed communicator, which the run reports", async () => {
    const world = await openWorld(2);
    const run = world.run(async (comm) => {
      const sub = await comm.split({ color: 0 });
      await sub.close();
      await comm.barrier();
      if (comm.rank === 1) void sub.barrier();
    });
    await expect(run).rejects.toMatchObject({
      ranks: [1],
      cause: { code: "ERR_COMM_CLOSED", comm: "world/0" },
    });
    expect(world.openCommunicators).toBe(1);
    await expectHealthy(world);
    await world.close();
  });
});
