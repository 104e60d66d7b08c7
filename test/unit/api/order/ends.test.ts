/** Calls that end before they are done: cancelled, timed out, aborted. None of them keeps calls of other communicators waiting. */
import { type CommOp, type Communicator, createWorld } from "twinccl";
import { cpu, type Executor, sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { backends, codesOf, heldIn, inWorld, outcomesOf, turns, wholes } from "./orders.ts";

const sum = (comm: Communicator, send: Parameters<typeof heldIn>[1]): CommOp<unknown> =>
  comm.allReduce({ send: send!, op: "sum" });

/** Executes after so many turns of the event loop. */
function late(count: number): Executor {
  const inner = cpu();
  return {
    ...inner,
    name: "late",
    execute: async (...work) => {
      await turns(count);
      await inner.execute(...work);
    },
  };
}

describe.each(Object.entries(backends))("on %s", (_, backendOf) => {
  test("a cancelled call keeps no call of another communicator waiting", async () => {
    const seen = await inWorld(
      3,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const control = new AbortController();
        const held = comm.alloc("float32", 1).fill(1);
        const cancelled = comm.rank === 0 ? [p.barrier({ signal: control.signal })] : [];
        for (const op of cancelled) op.catch(() => undefined);
        await turns();
        control.abort();
        const done = await outcomesOf([sum(q, held), sum(q, held)]);
        // The others come to the call later, and fail: the communicator is in step.
        const joined = comm.rank === 0 ? cancelled : [p.barrier()];
        const codes = await codesOf([...joined, p.barrier(), q.barrier()]);
        return { done, codes, held: await heldIn(comm, held) };
      },
      { backend: backendOf() },
    );
    for (const { done, codes, held } of seen) {
      expect(done).toEqual(["done", "done"]);
      expect(codes).toEqual(["ERR_COMM_ABORTED", "done", "done"]);
      expect(held).toEqual([[9]]);
    }
  });

  test("a cancelled call is in no inversion", async () => {
    const seen = await inWorld(
      2,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const control = new AbortController();
        if (comm.rank === 0) {
          const ops = [p.barrier({ signal: control.signal })];
          for (const op of ops) op.catch(() => undefined);
          control.abort();
          await turns();
          return codesOf([...ops, q.barrier(), p.barrier()]);
        }
        await turns(1);
        return codesOf([q.barrier(), p.barrier(), p.barrier()]);
      },
      { backend: backendOf() },
    );
    expect(seen).toEqual([
      ["ERR_COMM_ABORTED", "done", "done"],
      ["done", "ERR_COMM_ABORTED", "done"],
    ]);
  });

  test("ranks that have not cancelled a call are in an inversion with it all the same", async () => {
    const seen = await inWorld(
      3,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const control = new AbortController();
        const { signal } = control;
        const ops: CommOp<unknown>[] = [];
        const make = (...made: readonly CommOp<unknown>[]): void => {
          for (const op of made) op.catch(() => undefined);
          ops.push(...made);
        };
        if (comm.rank === 2) make(p.barrier());
        await turns(1);
        if (comm.rank === 0) make(p.barrier({ signal }));
        if (comm.rank === 1) make(q.barrier(), p.barrier());
        await turns(1);
        control.abort();
        await turns(1);
        if (comm.rank === 2) make(q.barrier());
        return codesOf(ops);
      },
      { backend: backendOf() },
    );
    const order = "ERR_COMM_ORDER";
    expect(seen).toEqual([["ERR_COMM_ABORTED"], [order, order], [order, order]]);
  });

  test("a cancelled send leaves its receive to the next one, in the order of the streams", async () => {
    for (const isInverted of [false, true]) {
      const seen = await inWorld(
        3,
        async (comm) => {
          const [p, q, gate] = (await wholes(comm, 3)) as Communicator[];
          const data = comm.alloc("float32", 1).fill(comm.rank);
          const control = new AbortController();
          if (comm.rank === 2) {
            await turns(8);
            return codesOf([gate!.barrier(), q!.barrier()]);
          }
          if (comm.rank === 1) {
            await turns();
            const ops: CommOp<unknown>[] = [gate!.barrier()];
            // Its receive matches the send behind the cancelled one: that comes behind the barrier.
            const receive = () => p!.recv({ recv: data, peer: 0 });
            const barrier = () => q!.barrier();
            ops.push(
              ...(isInverted ? [receive, barrier] : [barrier, receive]).map((call) => call()),
            );
            return codesOf(ops);
          }
          const ops = [
            gate!.barrier(),
            p!.send({ send: data, peer: 1, signal: control.signal }),
            q!.barrier(),
            p!.send({ send: data, peer: 1 }),
          ];
          for (const op of ops) op.catch(() => undefined);
          await turns(1);
          control.abort();
          return codesOf(ops);
        },
        { backend: backendOf() },
      );
      const last = isInverted ? "ERR_COMM_ORDER" : "done";
      expect(seen).toEqual([
        ["done", "ERR_COMM_ABORTED", last, last],
        ["done", last, last],
        ["done", last],
      ]);
    }
  });

  test("the abort of one communicator frees the calls behind its own, in their order", async () => {
    const seen = await inWorld(
      2,
      async (comm) => {
        const [p, q, r] = (await wholes(comm, 3)) as Communicator[];
        const held = comm.alloc("float32", 1).fill(comm.rank + 1);
        const never = comm.rank === 0 ? [p!.barrier()] : [];
        const behind = [sum(q!, held), r!.broadcast({ recv: held, root: 1 }), sum(q!, held)];
        const codes = codesOf([...never, ...behind]);
        await turns();
        const isOpen = behind.every(({ status }) => status === "waiting" || comm.rank === 1);
        if (comm.rank === 1) p!.abort("enough");
        return { isOpen, codes: await codes, held: await heldIn(comm, held) };
      },
      { backend: backendOf() },
    );
    expect(seen).toEqual([
      { isOpen: true, codes: ["ERR_COMM_ABORTED", "done", "done", "done"], held: [[6]] },
      { isOpen: true, codes: ["done", "done", "done"], held: [[6]] },
    ]);
  });

  test("the abort of the world ends all of them with its own reason", async () => {
    const seen: string[][] = [];
    const run = inWorld(
      2,
      async (comm, world) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const never = comm.rank === 0 ? [p.barrier()] : [];
        const ops = [...never, q.barrier()];
        for (const op of ops) op.catch(() => undefined);
        await turns();
        if (comm.rank === 1) world.abort("enough");
        seen[comm.rank] = await codesOf(ops);
      },
      { backend: backendOf() },
    );
    await run.catch(() => undefined);
    const aborted = "ERR_COMM_ABORTED";
    expect(seen).toEqual([[aborted, aborted], [aborted]]);
  });
});

describe("while an executor works", () => {
  test("calls of an aborted communicator that are behind the executed one are in no inversion", async () => {
    const seen = await inWorld(
      2,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const [a, b] = [1, 2].map((value) => comm.alloc("float32", 1).fill(value));
        const [x, y] = [() => sum(p, a!), () => sum(q, b!)];
        // The second calls of both communicators are in different orders, but one of them ends first.
        const first = [x(), ...(comm.rank === 0 ? [y(), x()] : [x()])];
        for (const op of first) op.catch(() => undefined);
        await turns(2);
        if (comm.rank === 0) p.abort("enough");
        await turns(1);
        const codes = await codesOf([...first, ...(comm.rank === 0 ? [] : [y()])]);
        return { codes, held: await heldIn(comm, b!) };
      },
      { backend: sim({ executor: late(12) }) },
    );
    expect(seen.map(({ codes }) => codes.slice(1))).toEqual([
      ["done", "ERR_COMM_ABORTED"],
      ["ERR_COMM_ABORTED", "done"],
    ]);
    for (const { held } of seen) expect(held).toEqual([[4]]);
  });

  test.each([0, 1, 5])(
    "of %i turns, calls take effect in their order over communicators",
    async (count) => {
      const seen = await inWorld(
        3,
        async (comm) => {
          const [p, q, r] = (await wholes(comm, 3)) as Communicator[];
          const held = comm.alloc("float32", 1).fill(comm.rank + 1);
          if (comm.rank === 1) await turns(2);
          const recv = comm.alloc("float32", 1);
          const ops = [
            sum(p!, held),
            q!.broadcast({ recv: held, root: 2 }),
            r!.sendRecv({ send: held, recv, to: (comm.rank + 1) % 3, from: (comm.rank + 2) % 3 }),
            sum(q!, held),
            sum(p!, recv),
          ];
          const codes = await codesOf(ops);
          return { codes, held: await heldIn(comm, held, recv) };
        },
        { backend: sim({ executor: late(count) }) },
      );
      for (const { codes, held } of seen) {
        expect(codes).toEqual(new Array(5).fill("done"));
        expect(held).toEqual([[18], [18]]);
      }
    },
  );

  test("closing waits for a chain of calls of several communicators", async () => {
    const order: string[] = [];
    await inWorld(
      2,
      async (comm) => {
        const [p, q, r] = (await wholes(comm, 3)) as Communicator[];
        const held = comm.alloc("float32", 1).fill(1);
        const ops = [sum(p!, held), sum(q!, held), sum(r!, held), sum(p!, held), sum(r!, held)];
        const all = codesOf(ops).then((codes) => order.push(...codes));
        await r!.close();
        order.push("closed");
        await all;
      },
      { backend: sim({ executor: late(3) }) },
    );
    expect(order.filter((each) => each === "done")).toHaveLength(10);
    expect(order.filter((each) => each.startsWith("ERR"))).toEqual([]);
  });
});

test.each([1, 2])("a run of %i ranks ends with calls on communicators in turn", async (size) => {
  const world = await createWorld({ backend: sim({ executor: late(1) }), size });
  try {
    for (let run = 0; run < 2; run++) {
      const held = await world.run(async (comm) => {
        const other = await comm.split({ color: 0 });
        const send = comm.alloc("float32", 1).fill(1);
        for (const on of [comm, other!, comm, other!]) void sum(on, send);
        return send;
      });
      const contents = await Promise.all(held.map((send) => send.toHost()));
      expect(contents).toEqual(held.map(() => Float32Array.of(size ** 4)));
    }
  } finally {
    await world.close();
  }
});
