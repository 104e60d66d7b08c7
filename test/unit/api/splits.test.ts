/** Subgroups: their members, their order, and their work beside each other and beside the world. */

import { type Communicator, createWorld } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { inWorld } from "../../support/in-world.ts";

const part = (comm: Communicator, color: number, key?: number): PromiseLike<Communicator> =>
  comm.split({ color, key });

const ints = (...values: number[]): Int32Array => Int32Array.from(values);

/** The ranks of a communicator by their numbers in the world. */
async function membersOf(sub: Communicator, worldRank: number): Promise<number[]> {
  const recv = new Int32Array(sub.size);
  await sub.allGather({ send: ints(worldRank), recv });
  return [...recv];
}

describe("split", () => {
  test("groups by color, in the order of the parent", async () => {
    const results = await inWorld(5, async (comm) => {
      const sub = await part(comm, comm.rank % 2);
      return [sub.rank, sub.size, sub.name, await membersOf(sub, comm.rank)];
    });
    const even = [0, 2, 4];
    expect(results).toEqual([
      [0, 3, "world/0", even],
      [0, 2, "world/1", [1, 3]],
      [1, 3, "world/0", even],
      [1, 2, "world/1", [1, 3]],
      [2, 3, "world/0", even],
    ]);
  });

  test("names a communicator by its parent, its color and, from the second split on, the number of the split", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const named = () =>
      world.run(async (comm) => {
        const row = await part(comm, 0);
        const column = await part(comm, 5);
        await comm.split({ color: undefined });
        return [row, column, await part(row, 0), await part(row, 0), await part(comm, 0)].map(
          ({ name }) => name,
        );
      });
    const first = ["world/0", "world/5#2", "world/0/0", "world/0/0#2", "world/0#4"];
    expect(await named()).toEqual([first, first]);
    // Communicators may outlive the run in which they were made.
    const again = ["world/0#5", "world/5#6", "world/0#5/0", "world/0#5/0#2", "world/0#8"];
    expect(await named()).toEqual([again, again]);
    await world.close();
  });

  test("orders by key, then by rank, also with negative and huge keys", async () => {
    const keys = [0, Number.MAX_SAFE_INTEGER, -5, 0, Number.MIN_SAFE_INTEGER];
    const results = await inWorld(5, async (comm) => {
      const sub = await part(comm, 7, keys[comm.rank]);
      return [sub.rank, await membersOf(sub, comm.rank)];
    });
    const order = [4, 2, 0, 3, 1];
    expect(results).toEqual([0, 1, 2, 3, 4].map((rank) => [order.indexOf(rank), order]));
  });

  test("gives no communicator to ranks without a color, and a group of one to a single color", async () => {
    const results = await inWorld(3, async (comm) => {
      const color = [undefined, 2 ** 40, 3][comm.rank];
      const sub = await comm.split({ color });
      if (sub === undefined) return "none";
      const data = ints(5);
      await sub.allReduce({ send: data, op: "avg" });
      await sub.barrier();
      return [sub.rank, sub.size, data[0]];
    });
    expect(results).toEqual(["none", [0, 1, 5], [0, 1, 5]]);
  });

  test("accepts that no rank joins", async () => {
    const results = await inWorld(3, (comm) => comm.split({ color: undefined }));
    expect(results).toEqual([undefined, undefined, undefined]);
  });

  test("of a subgroup uses ranks of the subgroup", async () => {
    const results = await inWorld(8, async (comm) => {
      const half = await part(comm, comm.rank < 4 ? 0 : 1);
      const pair = await part(half, half.rank < 2 ? 0 : 1, -half.rank);
      const data = ints(comm.rank);
      await pair.broadcast({ recv: data, root: 0 });
      return [pair.name, pair.rank, data[0]];
    });
    const pairs = ["world/0/0", "world/0/1", "world/1/0", "world/1/1"];
    expect(results).toEqual(
      Array.from({ length: 8 }, (_, rank) => [
        pairs[rank >> 1],
        1 - (rank % 2),
        rank - (rank % 2) + 1,
      ]),
    );
  });

  test("rows and columns of a grid hold the right sums, many calls in a row", async () => {
    const results = await inWorld(6, async (comm) => {
      const row = await part(comm, Math.floor(comm.rank / 3));
      const column = await part(comm, comm.rank % 3);
      const sums: number[] = [];
      for (let round = 0; round < 4; round++) {
        const a = ints(comm.rank + round);
        const b = ints(comm.rank + round);
        await Promise.all([
          row.allReduce({ send: a, op: "sum" }),
          column.allReduce({ send: b, op: "sum" }),
        ]);
        sums.push(a[0] as number, b[0] as number);
      }
      return sums;
    });
    results.forEach((sums, rank) => {
      const [row, column] = [Math.floor(rank / 3), rank % 3];
      const expected = [0, 1, 2, 3].flatMap((round) => [
        9 * row + 3 + 3 * round,
        2 * column + 3 + 2 * round,
      ]);
      expect(sums).toEqual(expected);
    });
  });

  test("subgroups are independent: one calls often, another never", async () => {
    const results = await inWorld(4, async (comm) => {
      const sub = await part(comm, comm.rank < 2 ? 0 : 1);
      const data = ints(1);
      const rounds = comm.rank < 2 ? 10 : 0;
      for (let round = 0; round < rounds; round++) await sub.allReduce({ send: data, op: "sum" });
      await comm.allReduce({ send: data, op: "max" });
      return [data[0], sub.stats().calls["allReduce"] ?? 0];
    });
    expect(results).toEqual([
      [1024, 10],
      [1024, 10],
      [1024, 0],
      [1024, 0],
    ]);
  });

  test("a buffer of the world works in a subgroup, and one of the subgroup in the world", async () => {
    const results = await inWorld(2, async (comm) => {
      const sub = await part(comm, 0, -comm.rank);
      const a = comm.alloc("int32", 1).fill(comm.rank + 1);
      const b = sub.alloc("int32", 1).fill(comm.rank + 1);
      await sub.allReduce({ send: a, op: "sum" });
      await comm.allReduce({ send: b, op: "sum" });
      expect([sub.device, b.device]).toEqual([`sim:${comm.rank}`, `sim:${comm.rank}`]);
      return [(await a.toHost())[0], (await b.toHost())[0]];
    });
    expect(results).toEqual([
      [3, 3],
      [3, 3],
    ]);
  });
});

describe("everything in a subgroup", () => {
  /** Every collective call on a communicator, blocks of `count` elements, from one root; what each rank ends with. */
  async function everything(sub: Communicator, own: number, root: number, count: number) {
    const { rank, size } = sub;
    const block = (length: number, value: number): Int32Array => new Int32Array(length).fill(value);
    const at = (data: Int32Array): object => (rank === root ? { recv: data } : {});
    const counts = Array.from({ length: size }, (_, r) => (r === root ? 0 : count));
    const mine = counts[rank] as number;
    const sums = {
      allReduce: block(count, own),
      reduce: block(count, own),
      broadcast: block(count, own),
      allGather: block(size * count, -1),
      allGatherv: block((size - 1) * count, -1),
      reduceScatter: block(count, -1),
      reduceScatterv: block(mine, -1),
      allToAll: block(size * count, -1),
      gather: block(size * count, -1),
      scatter: block(count, -1),
      shifted: block(count, -1),
    };
    const send = block(count, own);
    const wide = block(size * count, own);
    await sub.allReduce({ send: sums.allReduce, op: "sum" });
    await sub.reduce({ send, op: "max", root, ...at(sums.reduce) });
    await sub.broadcast({ recv: sums.broadcast, root });
    await sub.allGather({ send, recv: sums.allGather });
    const part = { send: block(mine, own), recv: sums.allGatherv, recvCounts: counts };
    await sub.allGatherv(part);
    await sub.reduceScatter({ send: wide, recv: sums.reduceScatter, op: "sum" });
    const narrow = wide.subarray(count);
    await sub.reduceScatterv({
      send: narrow,
      recv: sums.reduceScatterv,
      op: "min",
      sendCounts: counts,
    });
    await sub.allToAll({ send: wide, recv: sums.allToAll });
    const { recv, recvCounts } = await sub.allToAllv({ send: narrow, sendCounts: counts });
    expect(recv.length).toBe(recvCounts.reduce((a, b) => a + b, 0));
    await sub.gather({ send, root, ...at(sums.gather) });
    await sub.scatter({ recv: sums.scatter, root, ...(rank === root ? { send: wide } : {}) });
    const ring = { to: (rank + 1) % size, from: (rank + size - 1) % size };
    await sub.sendRecv({ send, recv: sums.shifted, ...ring });
    await sub.barrier();
    return Object.fromEntries(Object.entries(sums).map(([name, data]) => [name, [...data]]));
  }

  const cases = [1, 2, 3].flatMap((size) =>
    Array.from({ length: size }, (_, root) =>
      [0, 1, 3].map((count) => [size, root, count] as const),
    ).flat(),
  );

  test.each(cases)("of %i ranks, root %i, blocks of %i", async (size, root, count) => {
    const owns = Array.from({ length: size }, (_, rank) => 10 + 2 * rank);
    const results = await inWorld(2 * size, async (comm) => {
      const sub = await part(comm, comm.rank % 2);
      return everything(sub, 10 + 2 * sub.rank, root, count);
    });
    const repeat = (values: readonly number[]) =>
      values.flatMap((value) => new Array<number>(count).fill(value));
    const sum = owns.reduce((a, b) => a + b, 0);
    const others = owns.filter((_, rank) => rank !== root);
    results.forEach((result, worldRank) => {
      const rank = worldRank >> 1;
      const own = owns[rank] as number;
      const first = owns[root] as number;
      const isRoot = rank === root;
      expect(result).toEqual({
        allReduce: repeat([sum]),
        reduce: repeat([isRoot ? Math.max(...owns) : own]),
        broadcast: repeat([first]),
        allGather: repeat(owns),
        allGatherv: repeat(others),
        reduceScatter: repeat([sum]),
        reduceScatterv: isRoot ? [] : repeat([Math.min(...owns)]),
        allToAll: repeat(owns),
        gather: repeat(isRoot ? owns : owns.map(() => -1)),
        scatter: repeat([first]),
        shifted: repeat([owns[(rank + size - 1) % size] as number]),
      });
    });
  });
});

describe("virtual time of subgroups", () => {
  const link = { latencyNs: 1000, gigabytesPerSecond: 1 };

  /** When each rank is done with its first all-reduce, in nanoseconds. */
  async function doneAt(size: number, program: (comm: Communicator) => unknown): Promise<number[]> {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ link, trace }), size });
    await world.run(program);
    await world.close();
    const times: number[] = [];
    for (const [, time, rank] of trace.toText().matchAll(/^(\d+) done rank=(\d+) .* allReduce/gm)) {
      times[Number(rank)] ??= Number(time) / 1000;
    }
    return times;
  }

  const reduce = (comm: Communicator) => comm.allReduce({ send: new Uint8Array(800), op: "sum" });

  test("equals the time of a world of their size: they run in parallel", async () => {
    const alone = await doneAt(4, reduce);
    const halves = await doneAt(8, async (comm) => reduce(await part(comm, comm.rank % 2)));
    expect(halves).toEqual(halves.map((_, rank) => alone[rank >> 1]));
  });

  test("does not wait for a slow neighbour", async () => {
    const [fast] = await doneAt(2, reduce);
    const times = await doneAt(4, async (comm) => {
      const sub = await part(comm, comm.rank < 2 ? 0 : 1);
      if (comm.rank === 3) comm.work(50_000);
      return reduce(sub);
    });
    expect(times.slice(0, 2)).toEqual([fast, fast]);
    for (const time of times.slice(2)) expect(time).toBeGreaterThan(50_000);
  });

  /** When each rank goes on after a program, in nanoseconds. */
  async function timesAfter(size: number, program: (comm: Communicator) => unknown) {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ link, trace }), size });
    await world.run(async (comm) => {
      await program(comm);
      comm.work(0, "end");
    });
    await world.close();
    const times: number[] = [];
    for (const [, time, rank] of trace.toText().matchAll(/^(\d+) work rank=(\d+) .* end$/gm)) {
      times[Number(rank)] = Number(time) / 1000;
    }
    return times;
  }

  const meetings: readonly (readonly [string, (comm: Communicator) => PromiseLike<unknown>])[] = [
    ["split", (comm) => comm.split({ color: comm.rank === 0 ? undefined : comm.rank % 2 })],
    ["capture", (comm) => comm.capture(() => void comm.barrier())],
  ];

  test.each(meetings)("a %s completes when its last rank has made the call", async (_, meet) => {
    const times = await timesAfter(3, (comm) => {
      comm.work([10_000, 50_000, 0][comm.rank] as number);
      return meet(comm);
    });
    expect(times).toEqual([50_000, 50_000, 50_000]);
  });

  test.each(meetings)("a %s runs after earlier calls, and before later ones", async (_, meet) => {
    const times = await timesAfter(2, (comm) => {
      const peer = 1 - comm.rank;
      const first =
        comm.rank === 0
          ? comm.send({ send: new Uint8Array(800), peer })
          : comm.recv({ recv: new Uint8Array(800), peer });
      return Promise.all([first, meet(comm), comm.barrier()]);
    });
    expect(times).toEqual([2800, 2800]);
  });

  test("a split of a subgroup waits for its members alone", async () => {
    const times = await timesAfter(4, async (comm) => {
      const sub = await part(comm, comm.rank % 2);
      if (comm.rank === 3) comm.work(50_000);
      await sub.split({ color: 0 });
    });
    expect(times).toEqual([0, 50_000, 0, 50_000]);
  });
});
