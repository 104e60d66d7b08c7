/** Memory that the library takes for a call beside its buffers: it is there again after the call, however that ended. */
import { describe, expect, test } from "vitest";
import { type FakeGpus, ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { outcome } from "../calls/watched-world.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";
import { closeAll, joinAll, onAll } from "../job/joined.ts";

quickTime();

const live = ({ machine }: FakeGpus): number => machine.memory.live.length;

describe("messages between ranks reuse the memory of finished ones", () => {
  test("by the bytes that an all-to-allv sends", async () => {
    const gpus = cleanGpus();
    await inWorld(gpus, 2, async (world) => {
      await world.run(async (comm) => {
        const send = comm.alloc("int32", 3).fill(comm.rank);
        const exchange = async (): Promise<number> => {
          const { recv, recvCounts } = await comm.allToAllv({ send, sendCounts: [1, 2] });
          recv.dispose();
          await comm.barrier();
          await turns(20);
          return recvCounts.length;
        };
        await exchange();
        await comm.barrier();
        const before = live(gpus);
        for (let i = 0; i < 5; i++) expect(await exchange()).toBe(2);
        await comm.barrier();
        expect(live(gpus)).toBe(before);
        await comm.barrier();
      });
    });
  });

  test("by the blocks that ranks take in a split", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(2, "off", gpus);
    const split = () =>
      onAll(ranks, async ({ comm }) => {
        const child = await comm.split({ color: 0 });
        await child.close();
        await turns(20);
      });
    await split();
    const before = live(gpus);
    for (let i = 0; i < 5; i++) await split();
    expect(live(gpus)).toBe(before);
    await closeAll(ranks);
  });
});

test("memory of arrays is free again after calls that NCCL refuses", async () => {
  const gpus = cleanGpus({ staging: "copy" });
  await inWorld(gpus, 1, async (world) => {
    await world.run(async (comm) => {
      const send = Int32Array.of(1, 2, 3);
      const call = () => outcome(comm.allReduce({ send, recv: new Int32Array(3), op: "sum" }));
      expect(await call()).toBe("done");
      const before = live(gpus);
      for (let i = 0; i < 5; i++) {
        gpus.machine.failNext("allReduce", ncclError("ncclAllReduce", 5, "ncclInvalidUsage"));
        expect(await call()).toBe("ERR_COMM_NCCL");
      }
      expect(await call()).toBe("done");
      expect(live(gpus)).toBe(before);
    });
  });
});

test("memory of recorded arrays is free again when their recording was disposed", async () => {
  const gpus = cleanGpus({ staging: "copy" });
  await inWorld(gpus, 2, async (world) => {
    await world.run(async (comm) => {
      const send = Int32Array.of(1, 2, 3);
      const record = () =>
        comm.capture(() => void comm.allReduce({ send, recv: new Int32Array(3), op: "sum" }));
      const cycle = async (): Promise<void> => {
        (await record()).dispose();
        await comm.barrier();
      };
      await cycle();
      const before = live(gpus);
      for (let i = 0; i < 5; i++) await cycle();
      expect(live(gpus)).toBe(before);
      await comm.barrier();
    });
  });
});
