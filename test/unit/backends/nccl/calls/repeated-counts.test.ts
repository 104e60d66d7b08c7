/** A repeated all-to-allv without receive counts: they are exchanged each time, and each result is its own memory. */
import { expect, test } from "vitest";
import { cleanGpus, inWorld } from "../gpus.ts";

test("results of earlier calls stay, and later ones hold what was sent to them", async () => {
  const gpus = cleanGpus();
  await inWorld(gpus, 2, async (world) => {
    const seen = await world.run(async (comm) => {
      const send = comm.alloc("int32", 3);
      const results: (readonly number[])[] = [];
      const buffers = [];
      for (const round of [0, 1, 2]) {
        send.copyFrom(Int32Array.of(10, 11, 12).map((value) => value + 100 * round + comm.rank));
        const { recv, recvCounts } = await comm.allToAllv({ send, sendCounts: [1, 2] });
        expect(recvCounts).toEqual(comm.rank === 0 ? [1, 1] : [2, 2]);
        buffers.push(recv);
      }
      for (const each of buffers) results.push([...(await each.toHost())]);
      return results;
    });
    const expectedValues = (rank: number, round: number): number[] =>
      (rank === 0 ? [10, 11] : [11, 12, 12, 13]).map((value) => value + 100 * round);
    expect(seen).toEqual(
      [0, 1].map((rank) => [0, 1, 2].map((round) => expectedValues(rank, round))),
    );
  });
});
