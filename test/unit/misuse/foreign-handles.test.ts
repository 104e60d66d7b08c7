/** A communicator in the hands of another rank's program: found when it hangs, and no alarm where it does not. */

import { pbkdf2 } from "node:crypto";
import { type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

const codeOf = (op: PromiseLike<unknown>): PromiseLike<unknown> =>
  op.then(
    () => "ok",
    (error: Thrown) => error.code ?? String(error),
  );

describe("a handle of another rank", () => {
  test("of a subgroup without this rank fails a call once its owner is done", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const handles: Communicator[] = [];
    const results = await world.run(async (comm) => {
      const sub = await comm.split({ color: comm.rank === 2 ? undefined : 0 });
      if (sub !== undefined) {
        handles[comm.rank] = sub;
        await sub.barrier();
        return sub.size;
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
      return codeOf((handles[0] as Communicator).barrier());
    });
    expect(results).toEqual([2, 2, "ERR_COMM_CLOSED"]);
    await expectHealthy(world);
    await world.close();
  });

  test("split gives a rank without a color nothing to call", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const run = world.run(async (comm) => {
      const sub = await comm.split({ color: comm.rank === 1 ? undefined : 0 });
      await (sub as Communicator).barrier();
    });
    await expect(run).rejects.toMatchObject({ code: "ERR_COMM_WORLD", ranks: [1] });
    await expect(run).rejects.toThrow(/undefined/);
    await expectHealthy(world);
    await world.close();
  });

  test("used while its owner runs is reported as a deadlock", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const handles: Communicator[] = [];
    const run = world.run(async (comm) => {
      const sub = await comm.split({ color: comm.rank === 2 ? undefined : 0 });
      if (sub !== undefined) handles[comm.rank] = sub;
      await comm.barrier();
      return comm.rank === 2
        ? codeOf((handles[0] as Communicator).barrier())
        : codeOf(comm.barrier());
    });
    const code = "ERR_COMM_DEADLOCK";
    expect(await within(10_000, run)).toEqual([code, code, code]);
  });

  test("names the waiting ranks, their peers, and the owner of the called communicator", async () => {
    const world = await createWorld({ backend: sim(), size: 3, name: "job" });
    const handles: Communicator[] = [];
    const errors = await within(
      10_000,
      world.run(async (comm) => {
        const sub = await comm.split({ color: comm.rank === 2 ? undefined : 0 });
        if (sub !== undefined) handles[comm.rank] = sub;
        await comm.barrier();
        const use = comm.rank === 2 ? (handles[0] as Communicator) : comm;
        return use.barrier().catch((error: Thrown) => error);
      }),
    );
    // The call on rank 0's end was made first: rank 0's own call is behind it.
    const own = { state: "waits", comm: "job", collective: "barrier", call: 2 };
    const waits = [
      { rank: 0, ...own, missing: [1] },
      { rank: 1, ...own, missing: [0, 2] },
      { ...own, rank: 2, comm: "job/0", call: 0, missing: [1], owner: 0 },
    ];
    expect(errors.map(({ rank }: Thrown) => rank)).toEqual([0, 1, 2]);
    for (const error of errors) expect(error).toMatchObject({ ranks: [0, 1, 2], waits });
    expect(String(errors[2])).toMatch(/rank 2 {2}waits in barrier as rank 0 {2}call 0 on "job\/0"/);
    expect(String(errors[2])).toMatch(/rank 2 called the communicator of rank 0; every rank/);
    await expectHealthy(world);
    await world.close();
  });

  test("of the world is found too, behind helpers, groups and several calls at once", async () => {
    const ways: ((comm: Communicator) => PromiseLike<unknown>)[] = [
      (comm) => comm.barrier(),
      async (comm) => {
        await undefined;
        await new Promise((resolve) => setTimeout(resolve, 1));
        await comm.barrier();
      },
      (comm) => comm.group(() => void comm.barrier()),
      (comm) => Promise.all([comm.barrier(), comm.barrier()]),
      (comm) => comm.send({ send: new Int8Array(1), peer: 2 }),
    ];
    for (const way of ways) {
      const world = await createWorld({ backend: sim(), size: 3 });
      let first: Communicator | undefined;
      const run = world.run(async (comm) => {
        if (comm.rank === 0) first = comm;
        await comm.barrier();
        if (comm.rank === 2) return codeOf(way(first as Communicator));
        const sub = comm.split({ color: 0 });
        return codeOf(sub);
      });
      const codes = await within(10_000, run);
      expect(codes[2]).toMatch(/ERR_COMM_(DEADLOCK|MISMATCH)/);
      await expectHealthy(world);
      await world.close();
    }
  });
});

describe("a rank's own handle is accepted", () => {
  test("when another rank's code calls and awaits it, for all ranks", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const waiting: (() => void)[] = [];
    const sums = await within(
      10_000,
      world.run(async (comm) => {
        const data = Int32Array.of(comm.rank + 1);
        // The last rank to come makes the calls of all.
        await new Promise<void>((resolve) => {
          waiting.push(() => void comm.allReduce({ send: data, op: "sum" }).then(() => resolve()));
          if (waiting.length === comm.size) for (const call of waiting) call();
        });
        return data[0];
      }),
    );
    expect(sums).toEqual([6, 6, 6]);
    await expectHealthy(world);
    await world.close();
  });

  test("while a rank waits for work that the runtime does not list", async () => {
    const onStall = (): never => {
      throw new Error("a stall was reported");
    };
    const world = await createWorld({ backend: sim(), size: 3, onStall });
    const results = await world.run(async (comm) => {
      await comm.barrier();
      if (comm.rank === 1) {
        await new Promise((resolve) => pbkdf2("a", "b", 300_000, 32, "sha512", resolve));
      }
      return codeOf(comm.barrier());
    });
    expect(results).toEqual(["ok", "ok", "ok"]);
    await world.close();
  });

  test("when it was woken by another rank's callback", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    let open: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    const results = await world.run(async (comm) => {
      await comm.barrier();
      if (comm.rank === 1) {
        await gate;
        return codeOf(comm.recv({ recv: new Int8Array(1), peer: 0 }));
      }
      await new Promise((resolve) => setTimeout(resolve, 2));
      open();
      return codeOf(comm.send({ send: new Int8Array(1), peer: 1 }));
    });
    expect(results).toEqual(["ok", "ok"]);
    await world.close();
  });
});
