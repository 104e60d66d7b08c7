/** Programs over several communicators that are wrong in another way than by their order: each keeps its own error. */
import { type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { longTest } from "../../../support/long-test.ts";
import { within } from "../../../support/planted.ts";
import {
  backends,
  codesOf,
  heldIn,
  inWorld,
  type Outcome,
  outcomesOf,
  turns,
  wholes,
} from "./orders.ts";

const late = { timeoutMs: 20 };

describe.each(Object.entries(backends))("on %s", (name, backendOf) => {
  const isReal = name !== "the simulation";

  test("calls of other worlds have no order with those of one", async () => {
    const worlds = await Promise.all(
      [0, 1].map(() => createWorld({ backend: backendOf(), size: 2, name: "same" })),
    );
    const comms: Communicator[][] = [[], []];
    let resolve = () => {};
    const ready = new Promise<void>((done) => {
      resolve = done;
    });
    const program = (at: number) => async (comm: Communicator) => {
      (comms[at] as Communicator[])[comm.rank] = comm;
      if (comms.flat().length === 4) resolve();
      await ready;
      const both = [0, 1].map((world) => comms[world]?.[comm.rank] as Communicator);
      const mine = comm.rank === 1 ? both : [...both].reverse();
      return at === 0 ? codesOf(mine.map((each) => each.barrier())) : [];
    };
    const runs = worlds.map((world, at) => world.run(program(at)));
    const [seen] = await within(5_000, Promise.all(runs.map((run) => run.catch((error) => error))));
    expect(seen).toEqual(new Array(2).fill(["done", "done"]));
    for (const world of worlds) await world.close();
  });

  test("a rank that ends between the two calls is missing, and nothing else", async () => {
    const seen: Outcome[][] = [];
    const run = inWorld(
      2,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        if (comm.rank === 1) {
          q.barrier().catch(() => undefined);
          return;
        }
        seen.push(await outcomesOf([p.barrier(late), q.barrier({ timeoutMs: 5_000 })]));
      },
      { backend: backendOf() },
    );
    await run.catch(() => undefined);
    // The end of the first communicator lets the call on the second one go on.
    expect(seen).toMatchObject([[{ code: "ERR_COMM_TIMEOUT", ranks: [1] }, "done"]]);
  });

  test("a communicator that a rank never uses keeps its calls waiting, with the missing rank in the error", async () => {
    const seen = await inWorld(
      3,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const calls = [() => p.barrier(late), () => q.barrier()];
        const mine = comm.rank === 2 ? calls.slice(1) : calls;
        return outcomesOf(mine.map((call) => call()));
      },
      { backend: backendOf() },
    );
    expect(seen[0]?.[0]).toMatchObject({ collective: "barrier", comm: "world/0" });
    const codes = seen.map((each) => each.map((one) => (one === "done" ? one : one.code)));
    expect(codes[2]).toEqual(["done"]);
    expect(codes[0]?.[1]).toBe("done");
    const timedOut = seen
      .flat()
      .find((each) => each !== "done" && each.code === ("ERR_COMM_TIMEOUT" as string));
    expect(timedOut).toMatchObject({ ranks: [2] });
  });

  test("a call that misses its deadline behind a call of another communicator names that as the cause", async () => {
    const seen = await inWorld(
      2,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        if (comm.rank === 1) {
          const codes = await codesOf([q.barrier()]);
          await turns(1);
          return [codes, await codesOf([p.barrier()])];
        }
        const behind = outcomesOf([p.barrier(), q.barrier(late)]);
        return behind;
      },
      { backend: backendOf() },
    );
    const [first, second] = seen[0] as Outcome[];
    expect(first).toBe("done");
    expect(second).toMatchObject({ code: "ERR_COMM_TIMEOUT", comm: "world/0#2", ranks: [] });
    expect(String(second)).toMatch(/an earlier call of this rank kept it waiting/);
    if (isReal) expect(String(second)).toMatch(/give that one a deadline of its own/);
    expect(seen[1]).toEqual([["ERR_COMM_ABORTED"], ["done"]]);
  });

  test("calls on a closed and on an aborted communicator keep their errors among calls of others", async () => {
    const seen = await inWorld(
      2,
      async (comm) => {
        const [p, q, r] = (await wholes(comm, 3)) as Communicator[];
        await q!.close();
        await comm.barrier();
        if (comm.rank === 0) r!.abort("enough");
        await comm.barrier();
        const calls = [p!, q!, r!, p!].map((each) => () => each.barrier());
        if (comm.rank === 1) calls.reverse();
        const codes = await codesOf(calls.map((call) => call()));
        return comm.rank === 1 ? codes.reverse() : codes;
      },
      { backend: backendOf() },
    );
    expect(seen).toEqual(
      new Array(2).fill(["done", "ERR_COMM_CLOSED", "ERR_COMM_ABORTED", "done"]),
    );
  });

  test("a mismatch behind a call of another communicator stays a mismatch", async () => {
    const seen = await inWorld(
      2,
      async (comm) => {
        const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
        const held = comm.alloc("float32", 2).fill(1);
        const wrong = () =>
          comm.rank === 0
            ? p.allReduce({ send: held, op: "sum" })
            : p.broadcast({ recv: held, root: 0 });
        const codes = await codesOf([q.barrier(), wrong(), q.barrier()]);
        return { codes, held: await heldIn(comm, held) };
      },
      { backend: backendOf() },
    );
    for (const { codes, held } of seen) {
      expect(codes).toEqual(["done", "ERR_COMM_MISMATCH", "done"]);
      expect(held).toEqual([[1, 1]]);
    }
  });
});

test("calls of one communicator that wait for each other are a deadlock, not an inversion", async () => {
  const seen = await inWorld(2, async (comm) => {
    const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
    const data = comm.alloc("float32", 1);
    const message = () =>
      comm.rank === 0 ? p.send({ send: data, peer: 1 }) : p.recv({ recv: data, peer: 0 });
    const calls = [message, () => p.barrier()];
    if (comm.rank === 1) calls.reverse();
    return codesOf([q.barrier(), ...calls.map((call) => call() as PromiseLike<unknown>)]);
  });
  expect(seen).toEqual(new Array(2).fill(["done", "ERR_COMM_DEADLOCK", "ERR_COMM_DEADLOCK"]));
});

test("a deadlock ends calls of all communicators together: none is done in between", async () => {
  const seen = await inWorld(3, async (comm) => {
    const [p, q] = (await wholes(comm, 2)) as [Communicator, Communicator];
    const held = comm.alloc("float32", 1).fill(1);
    // A rank awaits the first call, so that it never makes the second: no order differs.
    if (comm.rank === 2) return { codes: await codesOf([q.allReduce({ send: held, op: "sum" })]) };
    return { codes: await codesOf([p.barrier(), q.allReduce({ send: held, op: "sum" })]) };
  });
  const dead = "ERR_COMM_DEADLOCK";
  expect(seen).toEqual([{ codes: [dead, dead] }, { codes: [dead, dead] }, { codes: [dead] }]);
});

longTest("thousands of communicators and calls leave nothing behind", async () => {
  const world = await createWorld({ backend: sim(), size: 2 });
  const used: number[] = [];
  await world.run(async (comm) => {
    for (let round = 0; round < 1_000; round++) {
      const p = await comm.split({ color: 0, ...(round % 2 ? { stream: "own" as const } : {}) });
      const q = await comm.split({ color: 0 });
      await Promise.all([p.barrier(), q.barrier(), p.barrier()]);
      await Promise.all([p.close(), q.close()]);
    }
    used[comm.rank] = (world as unknown as { openCommunicators: number }).openCommunicators;
  });
  await turns();
  expect((world as unknown as { openCommunicators: number }).openCommunicators).toBe(1);
  await world.close();
});
