/** Inversions: ranks of one process that make calls of several communicators in different orders get an error at once. */
import { CallOrderError, type CommOp, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { within } from "../../../support/planted.ts";
import {
  backends,
  callKinds,
  codesOf,
  heldIn,
  inWorld,
  outcomesOf,
  turns,
  wholes,
} from "./orders.ts";

/** The call of a table's row, as `orders` names it. */
const named = (comm: string, call: number, collective = "allReduce") => ({
  comm,
  collective,
  call,
});

describe.each(Object.entries(backends))("on %s", (_, backendOf) => {
  test.each([2, 4, 8])("two sums in different orders fail on all of %i ranks", async (size) => {
    const seen = await inWorld(
      size,
      async (comm) => {
        const [dp, tp] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const a = comm.alloc("float32", 3).fill(comm.rank + 1);
        const b = comm.alloc("float32", 3).fill(comm.rank + 1);
        const x = () => dp.allReduce({ send: a, op: "sum" });
        const y = () => tp.allReduce({ send: b, op: "sum" });
        // The rank with the other order comes last: that of the others is known by then.
        if (comm.rank === 1) await turns(size * 4);
        const ops = (comm.rank === 1 ? [x, y] : [y, x]).map((call) => call());
        return { errors: await outcomesOf(ops), held: await heldIn(comm, a, b) };
      },
      { backend: backendOf() },
    );
    const [first, second] = [named("world/0", 0), named("world/0#2", 0)];
    const orders = seen.map((_, rank) => ({
      rank,
      calls: rank === 1 ? [first, second] : [second, first],
    }));
    // Of two ranks neither has the order of most.
    const odd = size === 2 ? [0, 1] : [1];
    for (const [rank, { errors, held }] of seen.entries()) {
      expect(held).toEqual(new Array(2).fill(new Array(3).fill(rank + 1)));
      const comms = rank === 1 ? ["world/0", "world/0#2"] : ["world/0#2", "world/0"];
      for (const [at, error] of errors.entries()) {
        expect(error).toBeInstanceOf(CallOrderError);
        expect(error).toMatchObject({
          ...{ code: "ERR_COMM_ORDER", name: "CallOrderError", rank, size, comm: comms[at] },
          ...{ collective: "allReduce", call: 0, ranks: odd, orders },
        });
        expect(JSON.parse(JSON.stringify(error))).toMatchObject({ ranks: odd, orders });
      }
    }
  });

  test.each(Object.keys(callKinds))(
    "a %s is behind a barrier of another communicator",
    async (kind) => {
      const seen = await inWorld(
        2,
        async (comm) => {
          const [dp, tp] = (await wholes(comm, 2)) as [Communicator, Communicator];
          const held = comm.alloc("float32", 2).fill(comm.rank + 1);
          const make = await callKinds[kind]!(dp, held);
          const barrier = () => [tp.barrier()];
          const ops = (comm.rank === 1 ? [make, barrier] : [barrier, make]).flatMap((call) =>
            call(),
          );
          const codes = await codesOf(ops);
          return { codes, held: await heldIn(comm, held) };
        },
        { backend: backendOf() },
      );
      for (const [rank, { codes, held }] of seen.entries()) {
        expect(new Set(codes)).toEqual(new Set(["ERR_COMM_ORDER"]));
        expect(held).toEqual([[rank + 1, rank + 1]]);
      }
    },
  );

  test.each(Object.keys(callKinds))("a %s in one order with a barrier is done", async (kind) => {
    await inWorld(
      3,
      async (comm) => {
        const [dp, tp] = (await wholes(comm, 2)) as [Communicator, Communicator];
        for (const isFirst of [true, false]) {
          const make = await callKinds[kind]!(dp, comm.alloc("float32", 2).fill(0));
          const barrier = () => [tp.barrier()];
          const calls = isFirst ? [make, barrier] : [barrier, make];
          const ops: CommOp<unknown>[] = [];
          for (const call of calls) {
            // A third rank comes late, and one makes no turn of its own.
            if (comm.rank > 0) await turns(comm.rank);
            ops.push(...call());
          }
          await Promise.all(ops);
        }
      },
      { backend: backendOf() },
    );
  });

  test("results of earlier calls stay, and other communicators work", async () => {
    const seen = await inWorld(
      2,
      async (comm) => {
        const [dp, tp, other] = (await wholes(comm, 3)) as Communicator[];
        const [a, b, c] = [1, 2, 3].map((value) => comm.alloc("float32", 1).fill(value));
        const early = [
          dp!.allReduce({ send: a!, op: "sum" }),
          tp!.allReduce({ send: b!, op: "sum" }),
        ];
        const x = () => dp!.barrier();
        const y = () => tp!.barrier();
        const late = (comm.rank === 1 ? [x, y] : [y, x]).map((call) => call());
        const codes = await codesOf([...early, ...late]);
        await other!.allReduce({ send: c!, op: "sum" });
        await comm.barrier();
        const again = await outcomesOf([dp!.barrier(), tp!.allReduce({ send: a!, op: "sum" })]);
        return { codes, again, held: await heldIn(comm, a!, b!, c!) };
      },
      { backend: backendOf() },
    );
    for (const [rank, { codes, again, held }] of seen.entries()) {
      expect(codes).toEqual(["done", "done", "ERR_COMM_ORDER", "ERR_COMM_ORDER"]);
      expect(held).toEqual([[2], [4], [6]]);
      expect(again).toMatchObject([
        { code: "ERR_COMM_ORDER", rank, comm: "world/0", collective: "barrier", ranks: [0, 1] },
        { code: "ERR_COMM_ORDER", rank, comm: "world/0#2", collective: "allReduce", ranks: [0, 1] },
      ]);
      expect(String(again[0])).toMatch(/barrier on "world\/0": .*in different orders/);
    }
  });

  test("calls behind those of a cycle fail with them, and those before and beside them are done", async () => {
    const seen = await inWorld(
      3,
      async (comm) => {
        const [p, q, r] = (await wholes(comm, 3)) as Communicator[];
        const held = comm.alloc("float32", 1).fill(1);
        const x = () => p!.barrier();
        const y = () => q!.barrier();
        const first = r!.allReduce({ send: held, op: "sum" });
        const cycle = (comm.rank === 2 ? [x, y] : [y, x]).map((call) => call());
        const behind = [p!.barrier(), q!.barrier(), r!.allReduce({ send: held, op: "sum" })];
        const codes = await codesOf([first, ...cycle, ...behind]);
        return { codes, held: await heldIn(comm, held) };
      },
      { backend: backendOf() },
    );
    const order = "ERR_COMM_ORDER";
    for (const { codes, held } of seen) {
      expect(codes).toEqual(["done", order, order, order, order, "done"]);
      expect(held).toEqual([[9]]);
    }
  });
});

/** A ring of communicators: each rank has two of them in common with its neighbours, and makes the calls of both. */
async function ringOf(comm: Communicator): Promise<[before: Communicator, behind: Communicator]> {
  const { rank, size } = comm;
  const made = new Map<number, Communicator>();
  for (let at = 0; at < size; at++) {
    const isMember = rank === at || rank === (at + 1) % size;
    const pair = await comm.split({ color: isMember ? 0 : undefined });
    if (pair !== undefined) made.set(at, pair);
  }
  return [made.get((rank + size - 1) % size)!, made.get(rank)!];
}

describe("a cycle over several communicators", () => {
  test.each([3, 4, 6])("in a ring of %i ranks names every rank's order", async (size) => {
    const seen = await inWorld(size, async (comm) => {
      const [before, behind] = await ringOf(comm);
      await turns((comm.rank * 5) % size);
      return outcomesOf([behind.barrier(), before.barrier()]);
    });
    for (const [rank, errors] of seen.entries()) {
      for (const error of errors) {
        expect(error).toMatchObject({ code: "ERR_COMM_ORDER", size: 2, collective: "barrier" });
        const { orders } = error as CallOrderError;
        expect(orders.map((each) => each.rank)).toEqual(seen.map((_, each) => each));
        for (const { calls } of orders) expect(calls).toHaveLength(2);
        expect(new Set(orders.flatMap(({ calls }) => calls.map(({ comm }) => comm))).size).toBe(
          size,
        );
      }
      expect(rank).toBeLessThan(size);
    }
  });

  test("in a ring is absent where one rank has the other order", async () => {
    const seen = await inWorld(5, async (comm) => {
      const [before, behind] = await ringOf(comm);
      const calls = comm.rank === 3 ? [before, behind] : [behind, before];
      return codesOf(calls.map((each) => each.barrier()));
    });
    expect(seen).toEqual(new Array(5).fill(["done", "done"]));
  });

  test("of rows, columns and planes of a mesh names the three", async () => {
    const seen = await inWorld(8, async (comm) => {
      const { rank } = comm;
      const [x, y, z] = [rank & 1, (rank >> 1) & 1, (rank >> 2) & 1];
      const row = await comm.split({ color: 2 * y + z });
      const column = await comm.split({ color: 2 * x + z });
      const plane = await comm.split({ color: 2 * x + y });
      // 0 - 1 along x, 1 - 3 along y, 0 - 2 along y, 2 - 6 along z, 3 - 7 along z, 6 - 7 along x.
      const of: Record<number, Communicator[]> = {
        0: [row, column],
        1: [column, row],
        3: [plane, column],
        7: [row, plane],
        6: [plane, row],
        2: [column, plane],
      };
      return outcomesOf((of[rank] ?? []).map((each) => each.barrier()));
    });
    const concerned = [0, 1, 2, 3, 6, 7];
    for (const rank of concerned) {
      for (const error of seen[rank]!) expect(error).toMatchObject({ code: "ERR_COMM_ORDER" });
      const { orders, ranks } = seen[rank]![0] as CallOrderError;
      expect(orders.map((each) => each.rank)).toEqual(concerned);
      expect(ranks?.every((each) => concerned.includes(each))).toBe(true);
    }
    expect(seen[4]).toEqual([]);
  });

  test("is a shortest one: calls that only wait for it are not in its table", async () => {
    const seen = await inWorld(3, async (comm) => {
      const [p, q, r] = (await wholes(comm, 3)) as Communicator[];
      const x = () => p!.barrier();
      const y = () => q!.barrier();
      const z = () => r!.barrier();
      return outcomesOf((comm.rank === 1 ? [x, y, z] : [y, z, x]).map((call) => call()));
    });
    for (const errors of seen) {
      const found = errors.find((each) => each !== "done") as CallOrderError;
      const comms = new Set(found.orders.flatMap(({ calls }) => calls.map(({ comm }) => comm)));
      expect(comms).toEqual(new Set(["world/0", "world/0#2"]));
      expect(found.ranks).toContain(1);
    }
  });

  test("of messages alone, over two pairs of ranks, is found from either side", async () => {
    for (const late of [0, 1]) {
      const seen = await inWorld(2, async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const data = comm.alloc("float32", 1).fill(comm.rank);
        if (comm.rank === late) await turns();
        const ops =
          comm.rank === 0
            ? [p.send({ send: data, peer: 1 }), q.recv({ recv: data, peer: 1 })]
            : [q.send({ send: data, peer: 0 }), p.recv({ recv: data, peer: 0 })];
        const codes = await codesOf(ops);
        return { codes, held: await heldIn(comm, data) };
      });
      // As on a stream of a GPU: each send waits for a receive that is queued behind the other send.
      for (const [rank, { codes, held }] of seen.entries()) {
        expect(codes).toEqual(["ERR_COMM_ORDER", "ERR_COMM_ORDER"]);
        expect(held).toEqual([[rank]]);
      }
    }
  });

  test("through the second of two messages is found, and the first is delivered", async () => {
    const seen = await inWorld(2, async (comm) => {
      const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
      const [one, two] = [1, 2].map((value) =>
        comm.alloc("float32", 1).fill(comm.rank === 0 ? value : 0),
      );
      const barrier = () => q.barrier();
      const calls =
        comm.rank === 0
          ? [() => p.send({ send: one!, peer: 1 }), barrier, () => p.send({ send: two!, peer: 1 })]
          : [() => p.recv({ recv: one!, peer: 0 }), () => p.recv({ recv: two!, peer: 0 }), barrier];
      const codes = await codesOf(calls.map((call) => call()));
      return { codes, held: await heldIn(comm, one!, two!) };
    });
    expect(seen).toEqual([
      { codes: ["done", "ERR_COMM_ORDER", "ERR_COMM_ORDER"], held: [[1], [2]] },
      { codes: ["done", "ERR_COMM_ORDER", "ERR_COMM_ORDER"], held: [[1], [0]] },
    ]);
  });

  test("stays found where a communicator between its calls has ended", async () => {
    const seen = await inWorld(3, async (comm) => {
      const pair = { color: comm.rank < 2 ? 0 : undefined };
      const p = await comm.split(pair);
      const q = await comm.split(pair);
      const third = await comm.split({ color: 0 });
      if (comm.rank === 2) {
        await turns(3);
        third.abort("enough");
        return [];
      }
      if (comm.rank === 0) {
        await turns(1);
        return codesOf([q!, third, p!].map((each) => each.barrier()));
      }
      const first = [third.barrier(), p!.barrier()];
      for (const op of first) op.catch(() => undefined);
      await turns(8);
      return codesOf([...first, q!.barrier()]);
    });
    expect(seen).toEqual([
      ["ERR_COMM_ORDER", "ERR_COMM_ABORTED", "ERR_COMM_ORDER"],
      ["ERR_COMM_ABORTED", "ERR_COMM_ORDER", "ERR_COMM_ORDER"],
      [],
    ]);
  });
});

test("the error names the line of each call where call sites are on", async () => {
  const places = await inWorld(
    2,
    async (comm) => {
      const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
      const x = () => p.barrier();
      const y = () => q.barrier();
      const [error] = await outcomesOf((comm.rank === 1 ? [x, y] : [y, x]).map((call) => call()));
      const { orders, message } = error as CallOrderError;
      const found = orders.flatMap(({ calls }) => calls.map(({ place }) => place));
      for (const place of found) expect(message).toContain(`at ${place}`);
      return found;
    },
    { callSites: true },
  );
  for (const found of places) {
    expect(found).toHaveLength(4);
    expect(new Set(found).size).toBe(2);
    for (const place of found) expect(place).toMatch(/inversions\.test\.ts:\d+:\d+$/);
  }
});

test("the message is a table of the ranks, and a rule", async () => {
  const [error] = await inWorld(2, async (comm) => {
    const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
    const x = () => p.barrier();
    const y = () => q.barrier();
    const [first] = await outcomesOf((comm.rank === 1 ? [x, y] : [y, x]).map((call) => call()));
    return String(first);
  });
  expect(error?.split("\n")).toEqual([
    'CallOrderError: ranks made calls on "world/0" and "world/0#2" in different orders, and would wait for each other for ever',
    '  rank 0  barrier: call 0 on "world/0#2"  before barrier: call 0 on "world/0"',
    '  rank 1  barrier: call 0 on "world/0"    before barrier: call 0 on "world/0#2"',
    "hint: calls of a rank take effect in the order made, on all its communicators: make them in one order on all ranks",
  ]);
});

test("an inversion is an error although no rank awaits its calls", async () => {
  const world = await createWorld({ backend: sim(), size: 2 });
  const run = world.run(async (comm) => {
    const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
    for (const each of comm.rank === 1 ? [p, q] : [q, p]) void each.barrier();
  });
  const error = await within(
    5_000,
    run.catch((reason) => reason),
  );
  expect(error.failures).toMatchObject([
    { rank: 0, error: { code: "ERR_COMM_ORDER" } },
    { rank: 1, error: { code: "ERR_COMM_ORDER" } },
  ]);
  await world.close();
});
