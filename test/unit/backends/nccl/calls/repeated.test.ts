/**
 * Calls that a rank repeats with the same arguments, which go to NCCL by a shorter path: observers, cancellation and
 * failures see them as any other call. One rank alone takes the shortest path, several wait in a queue.
 */
import { tracingChannel } from "node:diagnostics_channel";
import type { CommOp, Communicator, OpInfo } from "twinccl";
import { describe, expect, test } from "vitest";
import { expectHealthy } from "../../../../support/planted.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

const sizes = [1, 3];

describe.each(sizes)("a repeated call, among %i", (size) => {
  test("is submitted at once, numbered, counted and done like the first", async () => {
    await watch(size, async ({ world, repeatedNumbers: again }) => {
      for (let run = 0; run < 2; run++) {
        const sums = await world.run(async (comm) => {
          const args = doubling(comm);
          const ops: CommOp[] = [];
          for (let i = 0; i < 4; i++) ops.push(comm.allReduce(args));
          expect(ops.map(({ call }) => call)).toEqual([0, 1, 2, 3]);
          if (comm.rank === size - 1) {
            expect(ops.map(({ status }) => status)).toEqual(new Array(4).fill("submitted"));
          }
          await ops[2]?.enqueued;
          expect(await ops[3]).toBe(args.send);
          expect(ops.map(({ status }) => status)).toEqual(new Array(4).fill("done"));
          const calls = 4 * (run + 1);
          expect(comm.stats()).toEqual({
            calls: { allReduce: calls },
            sendBytes: 4 * calls,
            failures: 0,
          });
          return (await args.send.toHost())[0];
        });
        expect(sums).toEqual(new Array(size).fill(size ** 4));
        expect(again()).toEqual([1, 2, 3, 1, 2, 3].slice(0, 3 * (run + 1)));
      }
    });
  });

  test("is recognised in a later run of the world, which counts its calls from 0", async () => {
    await watch(size, async ({ world, repeatedNumbers: again }) => {
      const kept: ReturnType<typeof doubling>[] = [];
      for (let run = 0; run < 3; run++) {
        await world.run(async (comm) => {
          kept[comm.rank] ??= doubling(comm);
          const args = kept[comm.rank] as ReturnType<typeof doubling>;
          const ops = [comm.allReduce(args), comm.allReduce(args)];
          await Promise.all(ops);
          expect(ops.map(({ call }) => call)).toEqual([0, 1]);
          expect((await args.send.toHost())[0]).toBe(size ** (2 * run + 2));
        });
      }
      expect(again()).toEqual([1, 0, 1, 0, 1]);
    });
  });

  test("runs hooks that were added since, and no longer the removed ones", async () => {
    await watch(size, async ({ world, repeatedNumbers: again }) => {
      const events = await world.run(async (comm) => {
        const seen: string[] = [];
        const args = doubling(comm);
        const note = (when: string, { collective, dtype, count, call }: OpInfo) =>
          void seen.push(`${when} ${collective} ${dtype} ${count} ${call}`);
        const call = () => comm.allReduce(args);
        await call();
        await call();
        const before = comm.hooks.before((info) => note("before", info));
        await call();
        before();
        const after = comm.hooks.after((info) => note("after", info));
        await call();
        after();
        await call();
        return seen;
      });
      const seen = ["before allReduce int32 1 2", "after allReduce int32 1 3"];
      expect(events).toEqual(new Array(size).fill(seen));
      expect(again()).toEqual([1, 2, 3, 4]);
    });
  });

  test("is published on a channel that was subscribed to since", async () => {
    await watch(size, async ({ world }) => {
      const seen: string[] = [];
      const channel = tracingChannel("twinccl:allReduce");
      const note = (when: string) => (message: unknown) => {
        const { rank, call } = message as OpInfo;
        seen.push(`${when} ${rank} ${call}`);
      };
      const subscribers = {
        start: note("start"),
        end: () => undefined,
        asyncStart: () => undefined,
        asyncEnd: note("asyncEnd"),
        error: note("error"),
      };
      const args: ReturnType<typeof doubling>[] = [];
      const call = (comm: Communicator) => {
        args[comm.rank] ??= doubling(comm);
        return comm.allReduce(args[comm.rank] as ReturnType<typeof doubling>);
      };
      await world.run(async (comm) => {
        await call(comm);
        await call(comm);
        if (comm.rank === 0) channel.subscribe(subscribers);
        await comm.barrier();
        await call(comm);
        await comm.barrier();
        if (comm.rank === 0) channel.unsubscribe(subscribers);
        await comm.barrier();
        await call(comm);
      });
      const ranks = Array.from({ length: size }, (_, rank) => rank);
      const expectedEvents = ranks.flatMap((rank) => [`asyncEnd ${rank} 3`, `start ${rank} 3`]);
      expect(seen.sort()).toEqual(expectedEvents.sort());
    });
  });

  test("fails with what a hook throws after it, on that rank alone", async () => {
    await watch(size, async ({ world }) => {
      const outcomes = await world.run(async (comm) => {
        const args = doubling(comm);
        await comm.allReduce(args);
        await comm.allReduce(args);
        const fault = new Error("too late");
        const off = comm.hooks.after(() => {
          if (comm.rank === 0) throw fault;
        });
        const found = await comm.allReduce(args).catch((error) => error);
        off();
        await comm.allReduce(args);
        return found === fault;
      });
      expect(outcomes).toEqual(outcomes.map((_, rank) => rank === 0));
    });
  });

  test("keeps its own deadline and signal", async () => {
    await watch(size, async ({ gpus, world }) => {
      const codes = await world.run(async (comm) => {
        const late = await comm.split({ color: 0 });
        const cancelled = await comm.split({ color: 0 });
        const [ofLate, ofCancelled] = [doubling(late), doubling(cancelled)];
        for (let i = 0; i < 2; i++) {
          await late.allReduce(ofLate);
          await cancelled.allReduce(ofCancelled);
        }
        await expect(
          cancelled.allReduce({ ...ofCancelled, signal: null as unknown as AbortSignal }),
        ).rejects.toMatchObject({ code: "ERR_COMM_ARG", field: "signal" });
        await comm.barrier();
        gpus.machine.hold();
        const controller = new AbortController();
        const ops = [
          cancelled.allReduce({ ...ofCancelled, signal: controller.signal }),
          late.allReduce({ ...ofLate, timeoutMs: 30 }),
        ];
        const settled = Promise.all(ops.map(outcome));
        await Promise.all(ops.map(({ enqueued }) => enqueued));
        if (comm.rank === 0) controller.abort();
        const codes = await settled;
        gpus.machine.release();
        return codes;
      });
      // The deadline that passes first aborts the others.
      for (const [rank, [aborted, late]] of codes.entries()) {
        expect(aborted).toBe("ERR_COMM_ABORTED");
        expect(late).toMatch(rank === 0 ? /TIMEOUT/ : /TIMEOUT|ABORTED/);
      }
      await expectHealthy(world);
    });
  });

  test("has the deadline that the backend gives to every call", async () => {
    await watch(
      size,
      async ({ gpus, world, repeatedNumbers: again }) => {
        const ops: CommOp[] = [];
        const running = world.run(async (comm) => {
          const args = doubling(comm);
          for (let i = 0; i < 3; i++) await comm.allReduce(args);
          gpus.machine.hold();
          const op = comm.allReduce(args);
          ops.push(op);
          await op;
        });
        await expect(running).rejects.toMatchObject({ cause: { code: "ERR_COMM_TIMEOUT" } });
        expect(ops.map(({ call }) => call)).toEqual(new Array(size).fill(3));
        expect(again()).toEqual([1, 2, 3]);
        gpus.machine.release();
      },
      { timeoutMs: 60 },
    );
  });
});
