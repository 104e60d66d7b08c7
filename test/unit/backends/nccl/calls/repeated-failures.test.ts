/** Calls that are made again and fail, are given up or are still under way when something ends. */
import type { CommError, CommOp } from "twinccl";
import { describe, expect, test } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { seen, turns } from "../gpus.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

quickTime();

const sizes = [1, 3];

/** Ways for an NCCL call to fail when it is made again: by its own status, or that of the group around it. */
const failures = [
  [1, "allReduce", 0],
  [3, "allReduce", 0],
  [3, "allReduce", 2],
  [3, "groupEnd", 0],
] as const;

describe.each(sizes)("a barrier that is submitted again, among %i", (size) => {
  test.each([[7], ["x"], [null], [{ send: 1 }]])("refuses %j", async (wrong) => {
    await watch(size, async ({ world }) => {
      await world.run(async (comm) => {
        for (let i = 0; i < 3; i++) void comm.barrier();
        const again = [comm.barrier(wrong as never), comm.barrier(wrong as never)];
        for (const each of again)
          await expect(each).rejects.toMatchObject({ code: "ERR_COMM_ARG" });
        await comm.barrier();
        expect(comm.stats()).toMatchObject({ calls: { barrier: 4 } });
      });
    });
  });
});

describe.each(failures)(
  "a repeated call that fails, among %i in %s after %i",
  (size, failing, after) => {
    const planned = ncclError(failing, 5, "ncclInvalidUsage");

    test("fails alone, on every rank, and uses up its number", async () => {
      await watch(size, async ({ gpus, world, repeatedNumbers: again }) => {
        await world.run(async (comm) => {
          const args = doubling(comm);
          for (let round = 1; round <= 3; round++) {
            await comm.allReduce(args);
            if (comm.rank === 0 && round > 1) gpus.machine.failNext(failing, planned, after);
            const [first, next] = [comm.allReduce(args), comm.allReduce(args)];
            const found = await Promise.all(
              [first.enqueued, first, next].map((each) => each.catch((error) => error)),
            );
            const fine = round === 1;
            const whose = { rank: comm.rank, size, device: `cuda:${comm.rank}` };
            const facts = { ...whose, comm: "world", collective: "allReduce", call: 3 * round - 2 };
            expect(found).toEqual(
              fine
                ? [undefined, args.send, args.send]
                : [seen(planned, facts), seen(planned, facts), args.send],
            );
            expect([first.status, next.status]).toEqual([fine ? "done" : "failed", "done"]);
            expect([first.call, next.call]).toEqual([3 * round - 2, 3 * round - 1]);
            expect(first.error).toBe(fine ? undefined : found[1]);
          }
          await comm.barrier();
          expect(comm.stats()).toMatchObject({ calls: { allReduce: 9, barrier: 1 }, failures: 2 });
          expect((await args.send.toHost())[0]).toBe(size ** 7);
        });
        expect(again()).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
        await expectHealthy(world);
      });
    });

    test("fails a reading of its buffer", async () => {
      await watch(size, async ({ gpus, world }) => {
        await world.run(async (comm) => {
          const args = doubling(comm);
          for (let i = 0; i < 2; i++) await comm.allReduce(args);
          if (comm.rank === 0) gpus.machine.failNext(failing, planned, after);
          void comm.allReduce(args);
          await expect(args.send.toHost()).rejects.toEqual(seen(planned));
          await comm.allReduce(args);
          expect((await args.send.toHost())[0]).toBe(size ** 3);
        });
      });
    });

    test("fails all later calls when it is not awaited, and the run", async () => {
      await watch(size, async ({ gpus, world }) => {
        const outcomes: unknown[] = [];
        const running = world.run(async (comm) => {
          const args = doubling(comm);
          for (let i = 0; i < 2; i++) await comm.allReduce(args);
          if (comm.rank === 0) gpus.machine.failNext(failing, planned, after);
          void comm.allReduce(args);
          await turns(2);
          outcomes[comm.rank] = await comm.allReduce(args).catch((error) => error);
          expect(comm.stats()).toMatchObject({ calls: { allReduce: 4 }, failures: 2 });
        });
        await expect(running).rejects.toMatchObject({
          code: "ERR_COMM_WORLD",
          cause: seen(planned),
        });
        for (let rank = 0; rank < size; rank++) {
          expect(outcomes[rank]).toMatchObject({
            code: "ERR_COMM_ABORTED",
            rank,
            call: 2,
            cause: seen(planned, { rank, call: 2 }),
          });
        }
        await expectHealthy(world);
      });
    });
  },
);

describe.each(sizes)("repeated calls that are under way, among %i", (size) => {
  test("are aborted with their communicator, and those of others are not", async () => {
    await watch(size, async ({ gpus, world }) => {
      const codes = await world.run(async (comm) => {
        const child = await comm.split({ color: 0 });
        const [mine, others] = [doubling(child), doubling(comm)];
        for (let i = 0; i < 2; i++) {
          await child.allReduce(mine);
          await comm.allReduce(others);
        }
        if (comm.rank === 0) gpus.machine.hold();
        await turns(2);
        // All of them are in one turn, so that one event stands for all.
        const ops = [
          child.allReduce(mine),
          comm.allReduce(others),
          child.allReduce(mine),
          comm.allReduce(others),
        ];
        const settled = Promise.all(ops.map(outcome));
        await Promise.all(ops.map(({ enqueued }) => enqueued));
        if (comm.rank === size - 1) child.abort(new Error("enough"));
        await turns(5);
        expect(ops.map(({ status }) => status)).toEqual([
          "failed",
          "submitted",
          "failed",
          "submitted",
        ]);
        gpus.machine.release();
        const codes = await settled;
        expect(await outcome(child.allReduce(mine))).toBe("ERR_COMM_ABORTED");
        expect((await others.send.toHost())[0]).toBe(size ** 4);
        return codes;
      });
      const expected = ["ERR_COMM_ABORTED", "done", "ERR_COMM_ABORTED", "done"];
      expect(codes).toEqual(new Array(size).fill(expected));
      expect(gpus.machine.count("abortInBackground")).toBe(size);
      await expectHealthy(world);
    });
  });

  test("end when a rank throws, and the world continues", async () => {
    await watch(size, async ({ gpus, world, repeatedNumbers: again }) => {
      const ops: CommOp[] = [];
      const fault = new Error("of the program");
      const running = world.run(async (comm) => {
        const args = doubling(comm);
        for (let i = 0; i < 2; i++) await comm.allReduce(args);
        if (comm.rank === 0) gpus.machine.hold();
        const op = comm.allReduce(args);
        ops.push(op);
        await op.enqueued;
        if (comm.rank === 0) {
          setTimeout(() => gpus.machine.release(), 20);
          throw fault;
        }
        await op;
      });
      await expect(running).rejects.toMatchObject({ code: "ERR_COMM_WORLD", cause: fault });
      expect(ops.map(({ status }) => status)).toEqual(new Array(size).fill("done"));
      expect(again()).toEqual([1, 2]);
      await expectHealthy(world);
    });
  });

  test("are waited for by close", async () => {
    await watch(size, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const child = await comm.split({ color: 0 });
        const args = doubling(child);
        for (let i = 0; i < 2; i++) await child.allReduce(args);
        await comm.barrier();
        if (comm.rank === 0) gpus.machine.hold();
        await turns(2);
        const op = child.allReduce(args);
        await op.enqueued;
        let closed = false;
        const closing = child.close().finally(() => {
          closed = true;
        });
        await turns(5);
        expect([closed, op.status]).toEqual([false, "submitted"]);
        expect(await outcome(child.allReduce(args))).toBe("ERR_COMM_CLOSED");
        if (comm.rank === 0) gpus.machine.release();
        await closing.catch(() => undefined);
        expect(op.status).toBe("done");
      });
      await expectHealthy(world);
    });
  });

  test("fail with the background fault, and so do later calls", async () => {
    await watch(size, async ({ gpus, world }) => {
      const failure = ncclError("ncclCommGetAsyncError", 6, "ncclRemoteError");
      const found = await world.run(async (comm) => {
        const child = await comm.split({ color: 0 });
        const args = doubling(child);
        for (let i = 0; i < 2; i++) await child.allReduce(args);
        await comm.barrier();
        if (comm.rank === 0) {
          gpus.machine.hold();
          const end = [...gpus.nccl.ends.values()].at(-1);
          if (end !== undefined) end.failure = failure;
        }
        await turns(2);
        const ops = [child.allReduce(args), child.allReduce(args)];
        const errors = await Promise.all(ops.map((op) => op.catch((error) => error)));
        gpus.machine.release();
        return [
          ...errors.map((error) => ((error as CommError).cause as CommError).cause === failure),
          await outcome(child.allReduce(args)),
        ];
      });
      expect(found).toEqual(new Array(size).fill([true, true, "ERR_COMM_ABORTED"]));
      await expectHealthy(world);
    });
  });

  test.each(["streamDone", "eventRecord"])(
    "fail when %s of the end of their work fails, and leave nothing behind",
    async (failing) => {
      await watch(size, async ({ gpus, world }) => {
        const planned = ncclError(failing, 1, "ncclUnhandledCudaError");
        await world.run(async (comm) => {
          const args = doubling(comm);
          for (let i = 0; i < 2; i++) await comm.allReduce(args);
          const isMarked = failing === "eventRecord";
          if (comm.rank === 0) {
            if (isMarked) gpus.machine.hold();
            gpus.machine.failNext(failing, planned, isMarked ? size - 1 : 0);
          }
          const ops = [comm.allReduce(args), comm.allReduce(args)];
          for (const op of ops) {
            expect(await op.catch((error) => error)).toEqual(
              seen(planned, { rank: comm.rank, call: op.call }),
            );
          }
          gpus.machine.release();
          await comm.allReduce(args);
          expect((await args.send.toHost())[0]).toBe(size ** 5);
        });
        await expectHealthy(world);
      });
    },
  );

  test("are refused in a world that was rebuilt, with buffers of the one before", async () => {
    await watch(size, async ({ world }) => {
      const kept: ReturnType<typeof doubling>[] = [];
      await world.run(async (comm) => {
        kept[comm.rank] = doubling(comm);
        for (let i = 0; i < 2; i++) await comm.allReduce(kept[comm.rank] as (typeof kept)[0]);
      });
      const next = await world.rebuild();
      await next.run(async (comm) => {
        const stale = kept[comm.rank] as (typeof kept)[0];
        await expect(comm.allReduce(stale)).rejects.toMatchObject({
          code: "ERR_COMM_ARG",
          field: "send",
        });
        const args = doubling(comm);
        const ops = [comm.allReduce(args), comm.allReduce(args)];
        await Promise.all(ops);
        expect(ops.map(({ call }) => call)).toEqual([0, 1]);
      });
      await next.close();
    });
  });
});
