/** Calls that are repeated often enough to become lists: they are the calls that they were, also when one fails. */
import type { DeviceBuffer } from "twinccl";
import { describe, expect, test } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { seen } from "../gpus.ts";
import { watch } from "./watched-world.ts";

/** The number of repetitions of the first call before its list is written. */
const alone = 63;

/** Ones after repeated sums among so many ranks, modulo 2^32. */
const summed = (size: number, times: number): number =>
  Number(BigInt.asUintN(32, BigInt(size) ** BigInt(times)));

describe.each([1, 3])("a call that is often repeated, among %i", (size) => {
  test("becomes one call list, which replaces its calls", async () => {
    await watch(size, async ({ world, gpus, repeatedNumbers: again }) => {
      const { lists } = gpus.nccl;
      const kept: DeviceBuffer<"uint32">[] = [];
      const repeat = (times: number) =>
        world.run(async (comm) => {
          kept[comm.rank] ??= comm.alloc("uint32", 1).fill(1);
          const send = kept[comm.rank] as DeviceBuffer<"uint32">;
          const ops = Array.from({ length: times }, () => comm.allReduce({ send, op: "sum" }));
          await Promise.all(ops);
          return (await send.toHost())[0];
        });
      expect(await repeat(1 + alone)).toEqual(new Array(size).fill(summed(size, 1 + alone)));
      expect(lists).toEqual({ written: 0, made: 0 });
      expect(await repeat(5)).toEqual(new Array(size).fill(summed(size, 6 + alone)));
      expect(lists).toEqual({ written: 1, made: 5 });
      expect(again().length).toBe(alone + 5);
    });
  });
});

test("is made call by call where call lists are unavailable", async () => {
  const options = { lists: false };
  await watch(
    3,
    async ({ world, gpus }) => {
      const sums = await world.run(async (comm) => {
        const args = { send: comm.alloc("uint32", 1).fill(1), op: "sum" } as const;
        const ops = Array.from({ length: alone + 8 }, () => comm.allReduce(args));
        await Promise.all(ops);
        return (await args.send.toHost())[0];
      });
      expect(sums).toEqual(new Array(3).fill(summed(3, alone + 8)));
      expect(gpus.nccl.lists).toEqual({ written: 0, made: 0 });
    },
    options,
  );
});

describe.each([
  [1, "allReduce", 0],
  [3, "allReduce", 2],
  [3, "groupEnd", 0],
] as const)("a list among %i that fails in %s after %i", (size, failing, after) => {
  test("fails its call alone, and can be repeated", async () => {
    const planned = ncclError(failing, 5, "ncclInvalidUsage");
    await watch(size, async ({ world, gpus: { machine, nccl } }) => {
      await world.run(async (comm) => {
        const args = { send: comm.alloc("uint32", 1).fill(1), op: "sum" } as const;
        for (let i = 0; i <= alone + 1; i++) await comm.allReduce(args);
        if (comm.rank === 0) machine.failNext(failing, planned, after);
        const [failed, next] = [comm.allReduce(args), comm.allReduce(args)];
        const facts = { rank: comm.rank, size, comm: "world", collective: "allReduce" };
        expect(await failed.catch((error) => error)).toEqual(
          seen(planned, { ...facts, call: alone + 2, device: `cuda:${comm.rank}` }),
        );
        await next;
        expect((await args.send.toHost())[0]).toBe(summed(size, alone + 3));
      });
      expect(nccl.lists).toEqual({ written: 1, made: 3 });
      await expectHealthy(world);
    });
  });
});
