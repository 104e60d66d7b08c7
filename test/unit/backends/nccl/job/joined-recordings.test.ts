/** Recorded messages of ranks of different processes: a replay launches one CUDA graph on each, with the messages among its calls. */
import type { CommError, Communicator, DeviceBuffer } from "twinccl";
import { describe, expect, test } from "vitest";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { watchRepeats } from "../../../../support/watched-repeats.ts";
import { cleanGpus } from "../gpus.ts";
import { closeAll, closeRest, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

type Ints = DeviceBuffer<"int32">;
const firstOf = async (buffer: Ints): Promise<number> => (await buffer.toHost())[0] as number;

/** Native calls that move data or launch. */
const moving = ["send", "recv", "allReduce", "groupEnd"] as const;

describe.each(["off", "once", "always"] as const)("a recording, compareCalls %s", (compare) => {
  test("passes a value on along the ranks, in order, with one launch a rank", async () => {
    const gpus = cleanGpus();
    const ranks = await joinAll(3, compare, gpus);
    const launches = () => gpus.machine.count("graphLaunch");
    const found = await onAll(ranks, async ({ comm }) => {
      const { rank, size } = comm;
      const data = comm.alloc("int32", 1);
      const graph = await comm.capture(() => {
        if (rank > 0) void comm.recv({ recv: data, peer: rank - 1 });
        if (rank < size - 1) void comm.send({ send: data, peer: rank + 1 });
      });
      await comm.barrier();
      const before = moving.map((name) => gpus.machine.count(name));
      await comm.barrier();
      const values: number[] = [];
      for (let round = 0; round < 3; round++) {
        data.fill(rank === 0 ? 10 + round : 0);
        const op = graph.replay();
        await op;
        expect(op.call).toBe(3 + round);
        values.push(await firstOf(data));
      }
      const after = moving.map((name) => gpus.machine.count(name));
      // The barriers of the others are all-reduces as well.
      expect(after.filter((_, at) => moving[at] !== "allReduce")).toEqual(
        before.filter((_, at) => moving[at] !== "allReduce"),
      );
      expect(comm.stats().calls).toEqual({ capture: 1, barrier: 2, replay: 3 });
      expect(comm.stats().sendBytes).toBe(rank < size - 1 ? 12 : 0);
      graph.dispose();
      return values;
    });
    expect(found).toEqual(new Array(3).fill([10, 11, 12]));
    expect(launches()).toBe(9);
    await closeAll(ranks);
  });

  test("keeps groups, messages to the own rank and collective calls in their places", async () => {
    const ranks = await joinAll(3, compare);
    const outcome = async ({ comm }: Joined, isReplayed: boolean): Promise<number[]> => {
      const { rank, size } = comm;
      const [next, last] = [(rank + 1) % size, (rank + size - 1) % size];
      const buffers = Array.from({ length: 4 }, () => comm.alloc("int32", 1));
      const [a, b, c, d] = buffers as [Ints, Ints, Ints, Ints];
      const record = (): void => {
        void comm.sendRecv({ send: a, recv: b, to: next, from: last });
        void comm.allReduce({ send: b, op: "sum" });
        void comm.group(() => {
          void comm.sendRecv({ send: b, recv: c, to: rank, from: rank });
          void comm.send({ send: a, peer: last });
          void comm.barrier();
          void comm.recv({ recv: d, peer: next });
        });
        void comm.allReduce({ send: d, op: "max" });
        void comm.sendRecv({ send: d, recv: a, to: next, from: last });
      };
      const graph = isReplayed ? await comm.capture(record) : undefined;
      const values: number[] = [];
      for (let round = 0; round < 3; round++) {
        a.fill(rank + 10 * round);
        if (graph === undefined) record();
        else await graph.replay();
        for (const buffer of buffers) values.push(await firstOf(buffer));
      }
      graph?.dispose();
      for (const buffer of buffers) buffer.dispose();
      return values;
    };
    const direct = await onAll(ranks, (joined) => outcome(joined, false));
    expect(direct[0]).toEqual([2, 3, 3, 2, 12, 33, 33, 12, 22, 63, 63, 22]);
    expect(await onAll(ranks, (joined) => outcome(joined, true))).toEqual(direct);
    await closeAll(ranks);
  });
});

describe("a recording with messages", () => {
  const swapOf = (comm: Communicator) => {
    const peer = 1 - comm.rank;
    const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
    return { send, recv, to: peer, from: peer };
  };

  test("connects the ranks of its messages first, and is repeated as other calls are", async () => {
    const ranks = await joinAll(2);
    const again = ranks.map(({ session }) => watchRepeats(session));
    await onAll(ranks, async ({ comm }) => {
      const swap = swapOf(comm);
      const graph = await comm.capture(() => void comm.sendRecv(swap));
      await graph.replay();
      swap.send.fill(comm.rank + 1);
      const ops = [graph.replay(), graph.replay(), graph.replay()];
      expect(ops.map(({ status }) => status)).toEqual(new Array(3).fill("submitted"));
      await Promise.all(ops);
      expect(await firstOf(swap.recv)).toBe(2 - comm.rank);
      graph.dispose();
      await expect(graph.replay()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
    });
    for (const { met } of ranks) expect(met.length).toBeGreaterThan(0);
    for (const each of again) expect(each.count()).toEqual([1, 2]);
    await closeAll(ranks);
  });

  test("copies arrays in and out at every replay", async () => {
    const gpus = cleanGpus({ staging: "copy" });
    const ranks = await joinAll(2, undefined, gpus);
    const found = await onAll(ranks, async ({ comm }) => {
      const peer = 1 - comm.rank;
      const [send, recv] = [new Int32Array(1), new Int32Array(1)];
      const graph = await comm.capture(
        () => void comm.sendRecv({ send, recv, to: peer, from: peer }),
      );
      const values: number[] = [];
      for (let round = 0; round < 3; round++) {
        send[0] = 10 * round + comm.rank;
        await graph.replay();
        values.push(recv[0] as number);
      }
      graph.dispose();
      return values;
    });
    expect(found).toEqual([
      [1, 11, 21],
      [0, 10, 20],
    ]);
    expect(gpus.machine.count("graphLaunch")).toBe(6);
    await closeAll(ranks);
  });

  test("that a rank does not replay is late by the name of that rank", async () => {
    const ranks = await joinAll(2);
    const graphs = await onAll(ranks, ({ comm }) => {
      const swap = swapOf(comm);
      return comm.capture(() => void comm.sendRecv(swap));
    });
    await Promise.all(graphs.map((graph) => graph.replay()));
    const late = graphs[0]?.replay({ timeoutMs: 60 }).then(
      () => undefined,
      (error: CommError) => error,
    );
    expect(await within(5_000, late as Promise<unknown>)).toMatchObject({
      ...{ code: "ERR_COMM_TIMEOUT", collective: "replay", call: 2, ranks: [1] },
    });
    await closeRest(ranks);
  });

  test("that a rank does not make is late by the name of that rank", async () => {
    const ranks = await joinAll(3, "off", cleanGpus({ timeoutMs: 100 }));
    const late = ranks.slice(0, 2).map(({ comm }) => {
      const swap = swapOf(comm);
      return errorOf(comm.capture(() => void comm.sendRecv(swap)));
    });
    for (const error of await Promise.all(late)) {
      expect(error).toMatchObject({
        ...{ code: "ERR_COMM_TIMEOUT", collective: "capture", call: 0, ranks: [2] },
      });
    }
    await closeRest(ranks);
  });

  test("with a buffer that was disposed is refused on its rank alone", async () => {
    const ranks = await joinAll(2);
    await onAll(ranks, async ({ comm }) => {
      const swap = swapOf(comm);
      const graph = await comm.capture(() => void comm.sendRecv(swap));
      await graph.replay();
      swap.recv.dispose();
      await expect(graph.replay()).rejects.toMatchObject({ code: "ERR_COMM_CLOSED" });
      graph.dispose();
      await comm.barrier();
    });
    await closeAll(ranks);
  });
});
