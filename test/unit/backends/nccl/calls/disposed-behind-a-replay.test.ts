/** A recording that is disposed right behind a replay: it is given back once that one is done, wherever it stood by then. */
import { expect, test } from "vitest";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";
import { outcome } from "./watched-world.ts";

quickTime();

test.each([1, 2, 3])("among %i", async (size) => {
  const gpus = cleanGpus();
  await inWorld(gpus, size, async (world) => {
    const seen = await world.run(async (comm) => {
      const data = comm.alloc("int32", 1).fill(1);
      const graph = await comm.capture(() => void comm.allReduce({ send: data, op: "sum" }));
      // It is known by then, so that further replays need no place in line.
      for (let i = 0; i < 3; i++) await graph.replay();
      await comm.barrier();
      data.fill(comm.rank);
      await comm.barrier();
      const last = [outcome(graph.replay()), outcome(graph.replay())];
      graph.dispose();
      const ends = await Promise.all(last);
      return [...ends, ...(await data.toHost())];
    });
    const once = (size * (size - 1)) / 2;
    expect(seen).toEqual(Array.from({ length: size }, () => ["done", "done", once * size]));
    await turns();
    expect(gpus.machine.graphs.size).toBe(0);
  });
});
