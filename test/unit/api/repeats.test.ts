/** A call that is made again with the same arguments is recognised: nothing that may have changed since is overlooked. */
import {
  CollectiveMismatchError,
  CommAbortedError,
  CommClosedError,
  type Communicator,
  createWorld,
  type DeviceBuffer,
  InvalidArgumentError,
} from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import type { Operation } from "../../../src/api/op.ts";
import { inWorld } from "../../support/in-world.ts";
import { cleanGpus } from "../backends/nccl/gpus.ts";

describe.each([
  ["on the simulation", () => sim()],
  ["on fake GPUs", () => cleanGpus().backend()],
])("a repeated call %s", (_, open) => {
  test("reads the present contents of its buffers", async () => {
    const sums = await inWorld(3, async (comm) => {
      const send = comm.alloc("int32", 2);
      const recv = comm.alloc("int32", 2);
      const found: unknown[] = [];
      for (let step = 1; step <= 3; step++) {
        send.fill(step + comm.rank);
        expect(await comm.allReduce({ send, recv, op: "sum" })).toBe(recv);
        found.push((await recv.toHost())[1]);
      }
      return found;
    });
    expect(sums).toEqual(Array.from({ length: 3 }, () => [6, 9, 12]));
  });

  test("is a new call with another operator, receive buffer, root or collective", async () => {
    await inWorld(
      2,
      async (comm) => {
        const send = comm.alloc("int32", 1);
        const recv = comm.alloc("int32", 1);
        const value = async (): Promise<unknown> => (await recv.toHost())[0];
        for (let round = 0; round < 2; round++) {
          send.fill(2 + comm.rank);
          expect(await comm.allReduce({ send, recv, op: "sum" }).then(value)).toBe(5);
          expect(await comm.allReduce({ send, recv, op: "prod" }).then(value)).toBe(6);
          for (const root of [0, 1]) {
            recv.fill(0);
            const target = comm.rank === root ? { recv } : {};
            const result = await comm.reduce({ send, ...target, op: "max", root });
            expect(result).toBe(comm.rank === root ? recv : undefined);
            expect(await value()).toBe(comm.rank === root ? 3 : 0);
          }
          expect(await comm.allReduce({ send, op: "min" })).toBe(send);
          expect((await send.toHost())[0]).toBe(2);
        }
      },
      open(),
    );
  });

  test("is checked again after a change of the arguments object", async () => {
    await inWorld(
      2,
      async (comm) => {
        const args = { send: comm.alloc("float32", 4), op: "sum" as "sum" | "max" };
        const first = args.send;
        expect(await comm.allReduce(args)).toBe(first);
        args.send = comm.alloc("float32", 4);
        expect(await comm.allReduce(args)).toBe(args.send);
        expect(await comm.allReduce({ send: first, op: "sum" })).toBe(first);
        args.op = "median" as "sum";
        await expect(comm.allReduce(args)).rejects.toThrow(InvalidArgumentError);
      },
      open(),
    );
  });

  test("resolves to its own receive buffer, even if the first arguments object has changed", async () => {
    await inWorld(
      2,
      async (comm) => {
        const [send, recv, other] = [2, 2, 2].map((length) => comm.alloc("int32", length)) as [
          DeviceBuffer<"int32">,
          DeviceBuffer<"int32">,
          DeviceBuffer<"int32">,
        ];
        const [half, counts] = [comm.alloc("int32", 1), [1, 1]];
        const isRoot = comm.rank === 0;
        const calls = [
          { call: comm.allReduce, args: { send, recv, op: "sum" } },
          { call: comm.reduce, args: { send, op: "sum", root: 0, ...(isRoot && { recv }) } },
          { call: comm.broadcast, args: { recv, root: 0, ...(isRoot && { send }) } },
          { call: comm.allGather, args: { send: half, recv } },
          { call: comm.allGatherv, args: { send: half, recv, recvCounts: counts } },
          { call: comm.reduceScatter, args: { send, recv: half, op: "sum" } },
          { call: comm.reduceScatterv, args: { send, recv: half, op: "sum", sendCounts: counts } },
          { call: comm.gather, args: { send: half, root: 0, ...(isRoot && { recv }) } },
          { call: comm.scatter, args: { recv: half, root: 0, ...(isRoot && { send }) } },
          { call: comm.allToAll, args: { send, recv } },
        ] as unknown as { call: (args: object) => Promise<unknown>; args: { recv: unknown } }[];
        for (const { call, args } of calls) {
          const { recv: own } = args;
          const first = call.call(comm, args);
          const again = { ...args };
          args.recv = other;
          expect(await first).toBe(own);
          expect(await call.call(comm, again)).toBe(own);
        }
        const args = { send, recv, sendCounts: counts, recvCounts: counts };
        const first = comm.allToAllv(args);
        const again = { ...args };
        args.recv = other;
        expect((await first).recv).toBe(recv);
        expect((await comm.allToAllv(again)).recv).toBe(recv);
      },
      open(),
    );
  });

  test("is a new call with other counts or offsets, in the same lists or not", async () => {
    const arrived = await inWorld(
      2,
      async (comm) => {
        const send = comm
          .alloc("int32", 8)
          .copyFrom(Int32Array.from({ length: 8 }, (_, i) => 10 * comm.rank + i));
        const recv = comm.alloc("int32", 8);
        // Rank 0 keeps what is its own; what goes to rank 1 is as long as that.
        const counts = [1, 1];
        const offsets = [0, 1];
        const lists = { sendCounts: counts, recvCounts: counts, sendOffsets: offsets };
        const found: unknown[] = [];
        const exchange = async (given: object = lists): Promise<void> => {
          recv.fill(-1);
          const { recvCounts } = await comm.allToAllv({ send, recv, sendCounts: counts, ...given });
          expect(recvCounts).toEqual(counts);
          // What is kept for the next time is not the caller's to write; what was exchanged is.
          if ("recvCounts" in given) expect(Object.isFrozen(recvCounts)).toBe(true);
          found.push([...(await recv.toHost())].slice(0, 4));
        };
        for (let round = 0; round < 3; round++) await exchange();
        offsets[1] = 4;
        for (let round = 0; round < 2; round++) await exchange();
        counts.fill(2);
        for (let round = 0; round < 2; round++) await exchange();
        await exchange({ ...lists, recvOffsets: [0, 2] });
        await exchange({ recvCounts: [2, 2] });
        await exchange({});
        counts[0] = 9;
        await expect(exchange()).rejects.toThrow(InvalidArgumentError);
        return found;
      },
      open(),
    );
    const of = (rank: number, counts: number, from: number) => {
      const block = (source: number, at: number) =>
        Array.from({ length: counts }, (_, i) => 10 * source + at + i);
      const at = rank === 0 ? 0 : from;
      return [...block(0, at), ...block(1, at), -1, -1].slice(0, 4);
    };
    for (const rank of [0, 1]) {
      expect(arrived[rank]).toEqual([
        ...[1, 1, 1, 4, 4].map((from) => of(rank, 1, from)),
        ...[4, 4, 4, 2, 2].map((from) => of(rank, 2, from)),
      ]);
    }
  });

  test("of gather and scatter is a new call with other counts or offsets", async () => {
    const [found] = await inWorld(
      2,
      async (comm) => {
        const isRoot = comm.rank === 0;
        const all = comm.alloc("int32", 6);
        const own = comm.alloc("int32", 2);
        const results: number[][] = [];
        for (const at of [
          [0, 2],
          [2, 4],
          [4, 0],
        ]) {
          own.fill(7 + comm.rank);
          all.fill(0);
          const blocks = { recvCounts: [2, 2], recvOffsets: at };
          await comm.gather({ send: own, root: 0, ...(isRoot && { recv: all, ...blocks }) });
          results.push([...(await all.toHost())]);
        }
        all.copyFrom(Int32Array.of(1, 2, 3, 4, 5, 6));
        const mine = own.subarray(0, 1);
        for (const at of [
          [0, 1],
          [3, 5],
        ]) {
          const blocks = { sendCounts: [1, 1], sendOffsets: at };
          await comm.scatter({ recv: mine, root: 0, ...(isRoot && { send: all, ...blocks }) });
          results.push([...(await mine.toHost())]);
        }
        return results;
      },
      open(),
    );
    expect(found).toEqual([[7, 7, 8, 8, 0, 0], [0, 0, 7, 7, 8, 8], [8, 8, 0, 0, 7, 7], [1], [4]]);
  });

  test("is checked again with another list, for every list argument", async () => {
    const lists = ["sendCounts", "sendOffsets", "recvCounts", "recvOffsets"];
    const [taken] = await inWorld(
      1,
      async (comm) => {
        const [counts, reduced, rooted] = [[2], { op: "sum" }, { root: 0 }];
        const calls: Record<string, object> = {
          allReduce: reduced,
          reduce: { ...reduced, ...rooted },
          broadcast: rooted,
          allGather: {},
          allGatherv: { recvCounts: counts },
          reduceScatter: reduced,
          reduceScatterv: { ...reduced, sendCounts: counts },
          gather: rooted,
          scatter: rooted,
          allToAll: {},
          allToAllv: { sendCounts: counts, recvCounts: counts },
        };
        const made = comm as unknown as Record<string, (args: object) => Promise<unknown>>;
        const outcome = (name: string, args: object): Promise<string> | undefined =>
          made[name]?.(args).then(
            () => "done",
            (error: InvalidArgumentError) => String(error.field),
          );
        const found: string[] = [];
        for (const [name, others] of Object.entries(calls)) {
          for (const list of lists) {
            const args = () => ({
              ...{ send: comm.alloc("int32", 2), recv: comm.alloc("int32", 2) },
              ...others,
            });
            const wrong = { [list]: [-1] };
            const first = await outcome(name, { ...args(), ...wrong });
            const repeated = args();
            expect(await outcome(name, repeated)).toBe("done");
            expect(await outcome(name, repeated)).toBe("done");
            const again = await outcome(name, { ...repeated, ...wrong });
            expect(again, `${name} with other ${list}`).toBe(first);
            // A list that it does not take is refused by its name, not for what it holds.
            if (first !== list) found.push(`${name} ${list}`);
          }
        }
        return found;
      },
      open(),
    );
    expect(taken).toEqual([
      ...["allGatherv recvCounts", "allGatherv recvOffsets", "reduceScatterv sendCounts"],
      ...["gather recvCounts", "gather recvOffsets", "scatter sendCounts", "scatter sendOffsets"],
      ...lists.map((list) => `allToAllv ${list}`),
    ]);
  });

  test("may be multiplied by another scalar each time", async () => {
    await inWorld(
      2,
      async (comm) => {
        const [send, recv] = [comm.alloc("float32", 1).fill(1), comm.alloc("float32", 1)];
        const op = { preMul: 1 };
        for (op.preMul = 1; op.preMul < 4; op.preMul++) {
          await comm.allReduce({ send, recv, op });
          expect([...(await recv.toHost())]).toEqual([2 * op.preMul]);
        }
      },
      open(),
    );
  });

  test("is refused once a buffer was disposed", async () => {
    await inWorld(
      2,
      async (comm) => {
        const [send, recv] = [comm.alloc("int8", 4), comm.alloc("int8", 4)];
        await comm.allReduce({ send, recv, op: "sum" });
        recv.dispose();
        const gone = comm.allReduce({ send, recv, op: "sum" });
        await expect(gone).rejects.toThrow(CommClosedError);
        await expect(gone).rejects.toMatchObject({ field: "recv", call: undefined });
        send.dispose();
        await expect(comm.allReduce({ send, op: "sum" })).rejects.toThrow(CommClosedError);
      },
      open(),
    );
  });

  test("is refused under its own name with invalid options", async () => {
    await inWorld(
      2,
      async (comm) => {
        const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
        const none = null as never;
        for (let round = 0; round < 3; round++) {
          for (const options of [{ timeoutMs: 0 }, { signal: none }]) {
            const [field] = Object.keys(options);
            for (const [collective, call] of [
              ["allReduce", () => comm.allReduce({ send, op: "sum", ...options })],
              ["broadcast", () => comm.broadcast({ recv, root: 0, ...options })],
              ["barrier", () => comm.barrier(options)],
            ] as const) {
              await expect(call()).rejects.toMatchObject({
                message: expect.stringMatching(`^${collective}: ${field}: found`),
                collective,
                field,
              });
            }
          }
          for (const options of [none, 5 as never]) {
            await expect(comm.barrier(options)).rejects.toMatchObject({
              collective: "barrier",
              field: "arguments",
            });
          }
          await comm.allReduce({ send, op: "sum" });
          await comm.broadcast({ recv, root: 0 });
          await comm.barrier();
        }
      },
      open(),
    );
  });

  test("of a recording is refused under that name with invalid options", async () => {
    await inWorld(
      2,
      async (comm) => {
        const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
        const peer = 1 - comm.rank;
        const graphs = [
          await comm.capture(() => void comm.allReduce({ send, op: "sum" })),
          await comm.capture(() => void comm.sendRecv({ send, recv, to: peer, from: peer })),
        ];
        for (const graph of graphs) {
          await comm.barrier();
          for (const timeoutMs of [0, -1]) {
            await expect(graph.replay({ timeoutMs })).rejects.toMatchObject({
              message: expect.stringMatching(/^replay: timeoutMs: found/),
              collective: "replay",
              field: "timeoutMs",
            });
          }
          const signal = AbortSignal.abort("no more");
          await expect(graph.replay({ signal })).rejects.toMatchObject({
            message: expect.stringMatching(/^replay: cancelled/),
            collective: "replay",
          });
          await graph.replay();
        }
      },
      open(),
    );
  });

  test("is compared again when another rank makes another call", async () => {
    const fields = await inWorld(3, async (comm) => {
      const send = comm.alloc("int32", 4);
      const half = send.subarray(0, 2);
      const found: unknown[] = [];
      for (let step = 0; step < 6; step++) {
        // In two of six steps rank 2 makes a call of its own, which it has made before in the second of them.
        const odd = comm.rank === 2 && step % 3 === 2;
        const outcome = comm.allReduce({ send: odd ? half : send, op: "sum" });
        found.push(
          await outcome.then(
            () => "fine",
            (error: unknown) => error,
          ),
        );
      }
      return found.map((each) =>
        each instanceof CollectiveMismatchError ? [each.field, each.ranks, each.call] : each,
      );
    });
    const expected = ["fine", "fine", ["count", [2], 2], "fine", "fine", ["count", [2], 5]];
    expect(fields).toEqual([expected, expected, expected]);
  });

  test("stays on its communicator", async () => {
    await inWorld(
      4,
      async (comm) => {
        const send = comm.alloc("int32", 1);
        const recv = comm.alloc("int32", 1);
        const half = await comm.split({ color: comm.rank % 2 });
        for (let round = 0; round < 3; round++) {
          send.fill(1);
          await comm.allReduce({ send, recv, op: "sum" });
          expect((await recv.toHost())[0]).toBe(4);
          await half.allReduce({ send, recv, op: "sum" });
          expect((await recv.toHost())[0]).toBe(2);
        }
        // The same ranks the other way round: another one is the root.
        const turned = await comm.split({ color: 0, key: -comm.rank });
        for (const each of [comm, turned, comm, turned]) {
          send.fill(comm.rank);
          const root = each.rank === 0;
          expect(await each.reduce({ send, op: "sum", root: 0 })).toBe(root ? send : undefined);
          expect((await send.toHost())[0]).toBe(root ? 6 : comm.rank);
        }
      },
      open(),
    );
  });
});

describe("a repeated call", () => {
  test("has separate signals and deadlines", async () => {
    await inWorld(2, async (comm) => {
      const send = comm.alloc("int32", 1);
      await comm.allReduce({ send, op: "sum", timeoutMs: 5 });
      const over = AbortSignal.abort("no more");
      const cancelled = comm.allReduce({ send, op: "sum", signal: over });
      await expect(cancelled).rejects.toThrow(CommAbortedError);
      await expect(comm.allReduce({ send, op: "sum", timeoutMs: -1 })).rejects.toMatchObject({
        field: "timeoutMs",
      });
      await comm.allReduce({ send, op: "sum" });
      expect(comm.stats().calls).toEqual({ allReduce: 2 });
    });
  });

  test.each([
    ["on the simulation", () => sim()],
    ["on fake GPUs", () => cleanGpus({ staging: "copy" }).backend()],
  ])("checks its receive array every time, %s", async (_, open) => {
    await inWorld(
      2,
      async (comm) => {
        const send = comm.alloc("int32", 1).fill(4);
        const recv = new Int32Array(1);
        for (let round = 1; round < 4; round++) {
          recv.fill(0);
          await comm.allReduce({ send, recv, op: "sum" });
          expect(recv[0]).toBe(8);
        }
        structuredClone(recv.buffer, { transfer: [recv.buffer] });
        await expect(comm.allReduce({ send, recv, op: "sum" })).rejects.toMatchObject({
          code: "ERR_COMM_ARG",
          collective: "allReduce",
          field: "recv",
        });
      },
      open(),
    );
  });

  test("takes its virtual time for any clocks of its ranks", async () => {
    const trace = new Trace();
    const program = async (comm: Communicator): Promise<number[]> => {
      const send = comm.alloc("float32", 1000);
      const ends: number[] = [];
      for (let step = 0; step < 12; step++) {
        // Ranks start apart, together, and apart in another way.
        comm.work(step % 4 === 0 ? 0 : 700 * ((comm.rank + step) % 3), "work");
        const op = comm.allReduce({ send, op: "sum" });
        await op;
        ends.push((op as Operation).finishedAtPs);
      }
      return ends;
    };
    const ends: number[][][] = [];
    // With a trace every call is evaluated step by step.
    for (const backend of [sim(), sim({ trace })]) {
      const world = await createWorld({ backend, size: 4 });
      ends.push(await world.run(program));
      await world.close();
    }
    expect(trace.length).toBeGreaterThan(0);
    expect(ends[0]).toEqual(ends[1]);
    expect(new Set(ends[0]?.[0]).size).toBe(12);
  });
});
