/**
 * Recordings that are replayed again and again, which go to the devices by a shorter way: in the order of the rank's calls,
 * numbered and counted as others, and refused as the first replay would be.
 */
import type { CallOptions, CommOp, Communicator, DeviceBuffer, Graph, OpInfo } from "twinccl";
import { describe, expect, test } from "vitest";
import { cudaError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeRest, errorOf, joinAll, onAll } from "../job/joined.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

quickTime();

/** A recording that doubles a buffer of ones as often as there are ranks. */
async function recorded(
  comm: Communicator,
): Promise<{ graph: Graph; data: DeviceBuffer<"int32"> }> {
  const args = doubling(comm);
  const graph = await comm.capture(() => void comm.allReduce(args));
  return { graph, data: args.send };
}

const first = async (data: DeviceBuffer<"int32">) => (await data.toHost())[0];

describe.each([1, 3])("replays among %i", (size) => {
  test("are numbered, counted and done in order", async () => {
    await watch(size, async ({ gpus, world, repeatedNumbers: again }) => {
      const sums = await world.run(async (comm) => {
        const { graph, data } = await recorded(comm);
        await graph.replay();
        const ops: CommOp[] = [];
        for (let i = 0; i < 3; i++) ops.push(graph.replay());
        expect(ops.map(({ call }) => call)).toEqual([2, 3, 4]);
        await Promise.all(ops);
        expect(comm.stats()).toEqual({
          calls: { capture: 1, replay: 4 },
          sendBytes: 16,
          failures: 0,
        });
        return first(data);
      });
      expect(sums).toEqual(new Array(size).fill(size ** 4));
      expect(again()).toEqual([2, 3, 4]);
      expect(gpus.machine.count("graphLaunch")).toBe(4 * size);
    });
  });

  test("keep their place among other calls and other recordings", async () => {
    await watch(size, async ({ world, repeatedNumbers: again }) => {
      const sums = await world.run(async (comm) => {
        const { graph, data } = await recorded(comm);
        const scaled = { send: data, op: { preMul: 3 } };
        const other = await comm.capture(() => void comm.allReduce(scaled));
        const args = { send: data, op: "sum" } as const;
        for (let round = 0; round < 2; round++) {
          void graph.replay();
          void comm.allReduce(args);
          void other.replay();
          await graph.replay();
        }
        return first(data);
      });
      expect(sums).toEqual(new Array(size).fill((3 * size ** 4) ** 2));
      expect(again()).toContain(9);
    });
  });

  test("run hooks that were added since", async () => {
    await watch(size, async ({ world }) => {
      const seen = await world.run(async (comm) => {
        const { graph } = await recorded(comm);
        for (let i = 0; i < 3; i++) await graph.replay();
        const found: (readonly unknown[])[] = [];
        const off = comm.hooks.after(({ collective, count, call }: OpInfo) => {
          found.push([collective, count, call]);
        });
        await graph.replay();
        off();
        await graph.replay();
        return found;
      });
      expect(seen).toEqual(new Array(size).fill([["replay", 1, 4]]));
    });
  });

  test("are refused once the recording, or a buffer of it, was disposed", async () => {
    await watch(size, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const kept = await recorded(comm);
        const spent = await recorded(comm);
        for (const { graph } of [kept, spent]) {
          for (let i = 0; i < 3; i++) await graph.replay();
        }
        await comm.barrier();
        const before = gpus.machine.count("graphLaunch");
        kept.data.dispose();
        spent.graph.dispose();
        await expect(kept.graph.replay()).rejects.toMatchObject({
          code: "ERR_COMM_CLOSED",
          message: expect.stringMatching(/a buffer of the recorded allReduce was disposed/),
        });
        await expect(spent.graph.replay()).rejects.toMatchObject({
          code: "ERR_COMM_CLOSED",
          message: expect.stringMatching(/the recording was disposed/),
        });
        await comm.barrier();
        expect(gpus.machine.count("graphLaunch")).toBe(before);
      });
      await expectHealthy(world);
    });
  });

  test("copy arrays in and back every time", async () => {
    await watch(
      size,
      async ({ world, repeatedNumbers: again }) => {
        const sums = await world.run(async (comm) => {
          const send = new Int32Array([1]);
          const graph = await comm.capture(() => void comm.allReduce({ send, op: "sum" }));
          const seen: number[] = [];
          for (let i = 1; i <= 3; i++) {
            send[0] = i;
            await graph.replay();
            seen.push(send[0] as number);
          }
          return seen;
        });
        expect(sums).toEqual(new Array(size).fill([size, 2 * size, 3 * size]));
        expect(again()).toEqual([]);
      },
      { staging: "copy" },
    );
  });

  test("fail on all ranks with a launch that fails, and the world continues", async () => {
    await watch(size, async ({ gpus, world }) => {
      const codes = await world.run(async (comm) => {
        const { graph } = await recorded(comm);
        for (let i = 0; i < 3; i++) await graph.replay();
        if (comm.rank === 0) {
          gpus.machine.failNext(
            "graphLaunch",
            cudaError("cudaGraphLaunch", 719, "cudaErrorLaunchFailure"),
          );
        }
        await comm.barrier();
        return outcome(graph.replay());
      });
      expect(codes).toEqual(new Array(size).fill("ERR_COMM_CUDA"));
      await expectHealthy(world);
    });
  });

  test("continue after one that fails", async () => {
    await watch(size, async ({ gpus, world }) => {
      const found = await world.run(async (comm) => {
        const { graph, data } = await recorded(comm);
        for (let i = 0; i < 12; i++) await graph.replay();
        await comm.barrier();
        if (comm.rank === 0) {
          const planned = cudaError("cudaGraphLaunch", 719, "cudaErrorLaunchFailure");
          gpus.machine.failNext("graphLaunch", planned);
        }
        await comm.barrier();
        const failed = await outcome(graph.replay());
        for (let i = 0; i < 3; i++) await graph.replay();
        const seen = await first(data);
        graph.dispose();
        return [failed, await outcome(graph.replay()), seen];
      });
      const all = ["ERR_COMM_CUDA", "ERR_COMM_CLOSED", size ** 15];
      expect(found).toEqual(new Array(size).fill(all));
      expect(gpus.machine.count("graphLaunch")).toBe(15 * size + 1);
      await expectHealthy(world);
    });
  });

  test("check their options as the first one does", async () => {
    await watch(size, async ({ world }) => {
      const codes = await world.run(async (comm) => {
        const { graph } = await recorded(comm);
        const fault = new Error("not to be read");
        const throwing = (name: "signal" | "timeoutMs") =>
          Object.defineProperty({}, name, {
            enumerable: true,
            get: () => {
              throw fault;
            },
          });
        const wrong = [null, 5, { timeoutMs: null }, throwing("signal"), throwing("timeoutMs")];
        const found: unknown[] = [];
        for (let round = 0; round < 3; round++) {
          for (const options of wrong as CallOptions[]) {
            const before = graph.replay();
            const error = await errorOf(graph.replay(options));
            await before;
            found.push((error as unknown) === fault ? "thrown" : error?.code);
          }
        }
        return found;
      });
      const once = ["ERR_COMM_ARG", "ERR_COMM_ARG", "ERR_COMM_ARG", "thrown", "thrown"];
      expect(codes).toEqual(new Array(size).fill([...once, ...once, ...once]));
    });
  });

  test("keep their own deadlines and signals", async () => {
    await watch(size, async ({ gpus, world }) => {
      const codes = await world.run(async (comm) => {
        const part = await comm.split({ color: 0 });
        const { graph } = await recorded(part);
        for (let i = 0; i < 3; i++) await graph.replay();
        const options = { signal: 7 as unknown as AbortSignal };
        await expect(graph.replay(options)).rejects.toMatchObject({ code: "ERR_COMM_ARG" });
        await comm.barrier();
        gpus.machine.hold();
        const code = await outcome(graph.replay({ timeoutMs: 40 }));
        gpus.machine.release();
        return code;
      });
      for (const code of codes) expect(code).toMatch(/TIMEOUT|ABORTED/);
      await expectHealthy(world);
    });
  });
});

test("replays of ranks in processes of their own continue behind each other, and end with the communicator", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "off", gpus);
  const graphs = await onAll(ranks, ({ comm }) => recorded(comm));
  const sums = await Promise.all(
    graphs.map(async ({ graph, data }) => {
      await graph.replay();
      const ops = [graph.replay(), graph.replay(), graph.replay()];
      expect(ops.map(({ call }) => call)).toEqual([2, 3, 4]);
      await Promise.all(ops);
      return first(data);
    }),
  );
  expect(sums).toEqual([16, 16]);
  // A query also counts the repeated ones.
  gpus.machine.hold();
  const [mine, other] = graphs.map(({ graph }) => graph) as [Graph, Graph];
  const open = errorOf(other.replay({ timeoutMs: 400 }));
  const late = await errorOf(mine.replay({ timeoutMs: 60 }));
  expect(late).toMatchObject({ code: "ERR_COMM_TIMEOUT", collective: "replay", ranks: [] });
  const over = await errorOf(mine.replay());
  expect(over).toMatchObject({ code: "ERR_COMM_ABORTED" });
  gpus.machine.release();
  await open;
  // Its kernels leave the device.
  await turns();
  await closeRest(ranks);
});
