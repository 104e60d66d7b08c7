/** Schedules: the choice of the next rank among those with settled operations. */
import { type Communicator, createWorld } from "twinccl";
import { cpu, type Executor, type ScheduleName, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { type Mark, marks, pipeline, threeSteps } from "../../../support/marks.ts";

const schedules = ["fair", "random", "virtual-time"] as const satisfies readonly ScheduleName[];

describe("the schedule virtual-time", () => {
  test("resumes the rank with the least time on its clock, so that a slow rank is late", async () => {
    for (let seed = 0; seed < 8; seed++) {
      const order = await marks({ schedule: "virtual-time", seed, size: 3 }, async (comm, mark) => {
        const own = await comm.split({ color: comm.rank });
        const pauseNs = [5_000_000, 1_000_000_000, 1_000_000][comm.rank] as number;
        for (let step = 0; step < 3; step++) {
          comm.work(pauseNs);
          await own?.barrier();
          mark(comm.rank);
        }
      });
      expect(order).toBe("222000111");
    }
  });

  test("interleaves ranks that compute for different times as their clocks do", async () => {
    const order = await marks({ schedule: "virtual-time", size: 2 }, async (comm, mark) => {
      const own = await comm.split({ color: comm.rank });
      for (let step = 0; step < (comm.rank === 0 ? 2 : 4); step++) {
        comm.work(comm.rank === 0 ? 1_000_000 : 400_000);
        await own?.barrier();
        mark(comm.rank);
      }
    });
    // Rank 0 is back after 1 and 2 ms, rank 1 after 0.4, 0.8, 1.2 and 1.6 ms.
    expect(order).toBe("110110");
  });

  test("resumes ranks at equal times in an order by seed", async () => {
    const found = new Set<string>();
    for (let seed = 0; seed < 64; seed++) {
      found.add(await marks({ schedule: "virtual-time", seed, size: 2 }, threeSteps));
    }
    expect(found.size).toBeGreaterThan(1);
  });
});

describe("every schedule", () => {
  test.each(schedules)("%s gives the same order for a seed", async (schedule) => {
    for (let seed = 0; seed < 20; seed++) {
      for (const program of [threeSteps, pipeline]) {
        const order = await marks({ schedule, seed, size: 3 }, program);
        expect(await marks({ schedule, seed, size: 3 }, program)).toBe(order);
      }
    }
  });

  test("random differs between two runs of a world", async () => {
    const world = await createWorld({ backend: sim({ schedule: "random" }), size: 4 });
    const orders = new Set<string>();
    for (let run = 0; run < 6; run++) {
      const order: number[] = [];
      await world.run(async (comm) => {
        await comm.barrier();
        order.push(comm.rank);
      });
      orders.add(order.join(""));
    }
    await world.close();
    expect(orders.size).toBeGreaterThan(2);
  });

  test.each(["random", "virtual-time"] as const)(
    "%s does not depend on how long an executor takes",
    async (schedule) => {
      const program = async (comm: Communicator, mark: Mark): Promise<void> => {
        const own = await comm.split({ color: comm.rank % 2 });
        for (let step = 0; step < 3; step++) {
          await own?.allReduce({ send: new Float32Array(3), op: "sum" });
          mark(comm.rank);
        }
      };
      for (const seed of [1, 2, 3]) {
        const order = await marks({ schedule, seed, size: 4, executor: cpu() }, program);
        for (const delaysMs of [
          [0, 3],
          [3, 0],
          [1, 0, 4],
        ]) {
          const executor = delayed(delaysMs);
          expect(await marks({ schedule, seed, size: 4, executor }, program)).toBe(order);
        }
      }
    },
  );

  test.each(["", "Random", "pct", 7, null, ["random"]])(
    "is refused by name when it is %j",
    (schedule) => {
      expect(() => sim({ schedule: schedule as ScheduleName })).toThrowError(
        expect.objectContaining({ code: "ERR_COMM_ARG", field: "schedule" }),
      );
    },
  );
});

/** The data is moved after these delays, in turn. */
function delayed(delaysMs: readonly number[]): Executor {
  const inner = cpu();
  let calls = 0;
  return {
    ...inner,
    execute: async (call) => {
      const delayMs = delaysMs[calls++ % delaysMs.length] as number;
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      await inner.execute(call);
    },
  };
}

describe("a deadlock", () => {
  test.each(schedules)("is decided with the schedule %s", async (schedule) => {
    const world = await createWorld({ backend: sim({ schedule }), size: 3 });
    const failed = await world
      .run(async (comm) => {
        await comm.barrier();
        if (comm.rank !== 1) await comm.barrier();
      })
      .catch((error: unknown) => error);
    await world.close();
    expect(failed).toMatchObject({
      failures: [{ error: { code: "ERR_COMM_DEADLOCK", ranks: [1] } }, { error: { ranks: [1] } }],
    });
  });

  test.each(schedules)("passes the earliest deadline with the schedule %s", async (schedule) => {
    const world = await createWorld({ backend: sim({ schedule }), size: 2 });
    const failed = await world
      .run(async (comm) => {
        if (comm.rank === 0) await comm.barrier({ timeoutMs: 5 });
      })
      .catch((error: unknown) => error);
    await world.close();
    expect(failed).toMatchObject({ failures: [{ rank: 0, error: { code: "ERR_COMM_TIMEOUT" } }] });
  });

  test.each(schedules)(
    "is not decided with the schedule %s while a waiting rank is also ready",
    async (schedule) => {
      for (let seed = 0; seed < 10; seed++) {
        const order = await marks({ schedule, seed, size: 8 }, async (comm, mark) => {
          const own = { color: 0, stream: "own" } as const;
          const [one, two] = [await comm.split(own), await comm.split(own)];
          const [now, late] = comm.rank % 2 === 0 ? [one, two] : [two, one];
          const barriers = Array.from({ length: 6 }, () => comm.barrier());
          // Every rank waits for calls that others make in the last of their continuations.
          const steps = barriers.map((barrier, nth) =>
            barrier.then(() => (nth === 5 ? late?.barrier() : undefined)),
          );
          await Promise.all([now?.barrier(), ...steps]);
          mark(comm.rank);
        });
        expect([...order].sort().join("")).toBe("01234567");
      }
    },
  );
});
