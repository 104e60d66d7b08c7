/** Signals: before, while and after a call waits. What is cancelled is that call, and the ranks stay in step. */

import { type CommError, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../../support/planted.ts";

const outcome = (op: PromiseLike<unknown>): PromiseLike<unknown> =>
  op.then(
    () => "ok",
    (error: unknown) => {
      const { code, ranks, cause } = error as CommError;
      return { code, ranks: [...ranks], cause };
    },
  );

describe("a signal", () => {
  test("that fired before the call refuses it on its rank and uses up no call number", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const reason = new Error("no time");
    const results = await world.run(async (comm) => {
      const send = comm.alloc("int8", 2).fill(1);
      const op = comm.allReduce({ send, op: "sum", signal: AbortSignal.abort(reason) });
      const first = await outcome(op);
      await comm.barrier();
      return [first, op.call, Array.from(await send.toHost())];
    });
    const refused = { code: "ERR_COMM_ABORTED", ranks: [], cause: reason };
    expect(results).toEqual([
      [refused, -1, [1, 1]],
      [refused, -1, [1, 1]],
    ]);
    const hint = expect.stringMatching(/nothing was written/);
    await world.run(async (comm) => {
      const op = comm.barrier({ signal: AbortSignal.abort(reason) });
      await expect(op).rejects.toMatchObject({ hint });
    });
    await expectHealthy(world);
    await world.close();
  });

  test("that fires during a wait fails the call there, and on ranks that call later", async () => {
    const world = await createWorld({ backend: sim(), size: 3 });
    const reason = new Error("changed my mind");
    const results = await within(
      3000,
      world.run(async (comm) => {
        const send = new Int32Array(2).fill(comm.rank + 1);
        const cancel = new AbortController();
        if (comm.rank > 0) await new Promise((resolve) => setTimeout(resolve, 10));
        else setTimeout(() => cancel.abort(reason), 2);
        const first = await outcome(comm.allReduce({ send, op: "sum", signal: cancel.signal }));
        const kept = Array.from(send);
        const second = await outcome(comm.allReduce({ send, op: "sum" }));
        return [first, kept, second, Array.from(send)];
      }),
    );
    const others = { code: "ERR_COMM_ABORTED", ranks: [0], cause: undefined };
    expect(results.map(([first]) => first)).toEqual([
      { code: "ERR_COMM_ABORTED", ranks: [], cause: reason },
      others,
      others,
    ]);
    results.forEach(([, kept, second, sums], rank) => {
      expect([kept, second, sums]).toEqual([[rank + 1, rank + 1], "ok", [6, 6]]);
    });
    await expectHealthy(world);
    await world.close();
  });

  test("that fires after the call has no effect", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const results = await world.run(async (comm) => {
      const cancel = new AbortController();
      const op = comm.barrier({ signal: cancel.signal });
      await op;
      cancel.abort();
      await comm.barrier();
      return op.status;
    });
    expect(results).toEqual(["done", "done"]);
    await world.close();
  });

  test.each(["allReduce", "send"] as const)(
    "that a hook fires before the call is posted cancels it: %s",
    async (collective) => {
      await using world = await createWorld({ backend: sim(), size: 2 });
      const reason = new Error("a hook has seen enough");
      const results = await within(
        3000,
        world.run(async (comm) => {
          const send = comm.alloc("int8", 2);
          if (comm.rank > 0) await new Promise((resolve) => setTimeout(resolve, 5));
          if (comm.rank > 0)
            return collective === "send" ? "ok" : outcome(comm.allReduce({ send, op: "sum" }));
          const cancel = new AbortController();
          const { signal } = cancel;
          const unhook = comm.hooks.before(() => cancel.abort(reason));
          const op =
            collective === "send"
              ? comm.send({ send, peer: 1, signal })
              : comm.allReduce({ send, op: "sum", signal });
          unhook();
          return outcome(op);
        }),
      );
      const cancelled = { code: "ERR_COMM_ABORTED", ranks: [], cause: reason };
      const other = { code: "ERR_COMM_ABORTED", ranks: [0], cause: undefined };
      expect(results).toEqual([cancelled, collective === "send" ? "ok" : other]);
      await expectHealthy(world);
    },
  );

  test.each([[false], [true]])(
    "that a hook of the last rank fires cancels the call, and the communicator takes others: in a group %s",
    async (isGrouped) => {
      await using world = await createWorld({ backend: sim(), size: 3 });
      const reason = new Error("a hook has seen enough");
      const results = await within(
        3000,
        world.run(async (comm) => {
          const send = Int32Array.of(comm.rank + 1);
          const cancel = new AbortController();
          const { signal } = cancel;
          if (comm.rank === 2) {
            await new Promise((resolve) => setTimeout(resolve, 5));
            comm.hooks.before(({ call }) => {
              if (call === 0) cancel.abort(reason);
            });
          }
          let op: PromiseLike<unknown> | undefined;
          const make = (): void => {
            op = comm.allReduce({ send, op: "sum", signal });
          };
          if (isGrouped) comm.group(make).then(null, () => undefined);
          else make();
          const first = await outcome(op as PromiseLike<unknown>);
          const kept = send[0];
          await comm.allReduce({ send, op: "sum" });
          return [first, kept, send[0]];
        }),
      );
      const others = { code: "ERR_COMM_ABORTED", ranks: [2], cause: undefined };
      expect(results).toEqual([
        [others, 1, 6],
        [others, 2, 6],
        [{ code: "ERR_COMM_ABORTED", ranks: [], cause: reason }, 3, 6],
      ]);
      await expectHealthy(world);
    },
  );

  test("may be shared by many calls without a warning about leaked listeners", async () => {
    const warnings: string[] = [];
    const note = (warning: Error): void => void warnings.push(String(warning));
    process.on("warning", note);
    const world = await createWorld({ backend: sim(), size: 2 });
    const { signal } = new AbortController();
    await world.run(async (comm) => {
      for (let call = 0; call < 40; call++) await comm.barrier({ signal });
    });
    await world.close();
    await new Promise((resolve) => setTimeout(resolve, 5));
    process.off("warning", note);
    expect(warnings).toEqual([]);
  });

  test("that fires after submission aborts the communicator", async () => {
    let finish: () => void = () => undefined;
    const running = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const executor = { name: "slow", execute: () => running };
    const world = await createWorld({ backend: sim({ executor }), size: 2 });
    const cancel = new AbortController();
    const results = await within(
      3000,
      world.run(async (comm) => {
        const send = comm.alloc("int8", 4);
        const op = comm.allReduce({ send, op: "sum", signal: cancel.signal });
        await op.enqueued;
        if (comm.rank === 0) {
          cancel.abort();
          finish();
        }
        await outcome(op);
        return outcome(comm.barrier());
      }),
    );
    for (const result of results) expect(result).toMatchObject({ code: "ERR_COMM_ABORTED" });
    await world.close();
  });
});
