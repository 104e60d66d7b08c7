/** Calls that are made again between calls of other kinds: none overtakes another, and each is what it was meant to be. */
import type { CommError, CommOp, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { turns } from "../gpus.ts";
import { doubling, watch } from "./watched-world.ts";

quickTime();

/** A communicator with no other rank in it. */
async function alone(comm: Communicator): Promise<Communicator> {
  return await comm.split({ color: comm.rank });
}

describe("a repeated call on a single rank", () => {
  test("settles when its own streams are done", async () => {
    await watch(2, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const single = await alone(comm);
        const [mine, ours] = [doubling(single), doubling(comm)];
        for (let i = 0; i < 2; i++) {
          await single.allReduce(mine);
          await comm.allReduce(ours);
        }
        const order: string[] = [];
        const note = (name: string) => () => void order.push(name);
        if (comm.rank === 1) {
          const early = single.allReduce(mine).then(note("mine"));
          await early;
          await turns(5);
        }
        const both = comm.allReduce(ours).then(note("ours"));
        const late = single.allReduce(mine).then(note("mine"));
        await Promise.all([both, late]);
        expect(order.sort()).toEqual(comm.rank === 1 ? ["mine", "mine", "ours"] : ["mine", "ours"]);
        expect((await ours.send.toHost())[0]).toBe(8);
      });
      expect(gpus.machine.complaints).toEqual([]);
    });
  });

  test("opens no group where it moves nothing", async () => {
    await watch(1, async ({ gpus, world, repeatedNumbers: again }) => {
      await world.run(async (comm) => {
        const [send, recv] = [comm.alloc("int32", 0), comm.alloc("int32", 0)];
        const calls = () => ["groupEnd", "reduce", "send"].map((name) => gpus.machine.count(name));
        const before = calls();
        for (let i = 0; i < 3; i++) {
          await comm.reduceScatterv({ send, recv, op: "sum", sendCounts: [0] });
        }
        for (let i = 0; i < 3; i++) await comm.allGatherv({ send, recv, recvCounts: [0] });
        for (let i = 0; i < 3; i++) await comm.allToAll({ send, recv });
        expect(calls()).toEqual(before);
      });
      expect(again()).toEqual([1, 2, 4, 5, 7, 8]);
    });
  });
});

test("a call that is repeated waits for a message that is ahead of it", async () => {
  await watch(2, async ({ world, repeatedNumbers: again }) => {
    await world.run(async (comm) => {
      const args = doubling(comm);
      for (let i = 0; i < 2; i++) await comm.allReduce(args);
      const ops: CommOp[] = [];
      if (comm.rank === 0) {
        ops.push(comm.send({ send: args.send, peer: 1 }));
        for (let i = 0; i < 2; i++) ops.push(comm.allReduce(args));
        await turns(5);
        expect(ops.map(({ status }) => status)).toEqual(["waiting", "waiting", "waiting"]);
        await Promise.all(ops);
      } else {
        await turns(10);
        const recv = comm.alloc("int32", 1);
        ops.push(comm.recv({ recv, peer: 0 }));
        for (let i = 0; i < 2; i++) ops.push(comm.allReduce(args));
        await Promise.all(ops);
        expect((await recv.toHost())[0]).toBe(4);
      }
      expect(ops.map(({ call }) => call)).toEqual([0, 2, 3]);
      expect((await args.send.toHost())[0]).toBe(16);
    });
    expect(again()).toEqual([1, 2, 3]);
  });
});

describe.each([1, 2])("a call that is repeated, among %i", (size) => {
  test("may be first made, or repeated, in a group or a recording", async () => {
    await watch(size, async ({ world }) => {
      const numbers = await world.run(async (comm) => {
        const args = doubling(comm);
        const seen: number[] = [];
        const direct = async () => {
          const op = comm.allReduce(args);
          await op;
          seen.push(op.call);
        };
        const grouped = async () => {
          const inside: CommOp[] = [];
          await comm.group(() => {
            for (let i = 0; i < 2; i++) inside.push(comm.allReduce(args));
          });
          seen.push(...inside.map(({ call }) => call));
        };
        const graph = await comm.capture(() => void comm.allReduce(args));
        for (let round = 0; round < 2; round++) {
          await grouped();
          await direct();
          await graph.replay();
          await direct();
          await comm.capture(() => void comm.allReduce(args));
          await direct();
        }
        expect((await args.send.toHost())[0]).toBe(size ** 12);
        expect(comm.stats()).toMatchObject({ calls: { allReduce: 10, replay: 2 }, failures: 0 });
        return seen;
      });
      const round = (first: number) => [0, 1, 2, 4, 6].map((at) => first + at);
      expect(numbers).toEqual(new Array(size).fill([...round(1), ...round(8)]));
    });
  });

  test("is a new call with other counts, and not repeated with its own scalar", async () => {
    await watch(size, async ({ gpus, world, repeatedNumbers: again }) => {
      await world.run(async (comm) => {
        const send = comm.alloc("int32", 2 * size).fill(comm.rank + 1);
        const recv = comm.alloc("int32", 2 * size);
        const counts = new Array<number>(size).fill(1);
        const moved = async (): Promise<number> => {
          recv.fill(0);
          await comm.allToAllv({ send, recv, sendCounts: counts, recvCounts: counts });
          return (await recv.toHost()).filter((each) => each !== 0).length;
        };
        for (let i = 0; i < 3; i++) expect(await moved()).toBe(size);
        await comm.barrier();
        if (comm.rank === 0) expect(again()).toEqual([1, 2]);
        counts.fill(2);
        for (let i = 0; i < 2; i++) expect(await moved()).toBe(2 * size);
        await comm.barrier();
        if (comm.rank === 0) expect(again()).toEqual([1, 2, 5, 6]);
        const made = gpus.machine.count("preMulSum");
        await comm.barrier();
        const op = { preMul: 3 };
        for (let i = 0; i < 3; i++) await comm.allReduce({ send, recv, op });
        await comm.barrier();
        expect(gpus.machine.count("preMulSum") - made).toBe(3 * size);
        expect(gpus.machine.count("destroyOp")).toBe(gpus.machine.count("preMulSum"));
      });
    });
  });

  test("is refused when its buffer was disposed, by its own rank at once, by others in step", async () => {
    await watch(size, async ({ world }) => {
      await world.run(async (comm) => {
        const args = doubling(comm);
        for (let i = 0; i < 2; i++) await comm.allReduce(args);
        const op = comm.allReduce(args);
        // It is lent from here on; among several ranks the last one has not come yet.
        if (comm.rank === 0 && size > 1) args.send.dispose();
        const found = await op.then(
          () => "done",
          (error: unknown) => {
            const { code, ranks, call } = error as CommError;
            return [code, ranks, call];
          },
        );
        expect(found).toEqual(size > 1 ? ["ERR_COMM_CLOSED", [0], 2] : "done");
        args.send.dispose();
        await expect(comm.allReduce(args)).rejects.toMatchObject({
          code: "ERR_COMM_CLOSED",
          field: "send",
        });
        const next = doubling(comm);
        const ops = [comm.allReduce(next), comm.allReduce(next)];
        await Promise.all(ops);
        expect(ops.map(({ call }) => call)).toEqual([3, 4]);
      });
      await expectHealthy(world);
    });
  });
});

test("repeated calls on shared streams record events on their own devices", async () => {
  await watch(2, async ({ gpus, world }) => {
    await world.run(async (comm) => {
      const args = doubling(comm);
      expect(typeof comm.stream).toBe("bigint");
      for (let i = 0; i < 4; i++) {
        // Code of the caller has a device of its own.
        gpus.machine.current = 5;
        gpus.machine.hold();
        setTimeout(() => gpus.machine.release(), 1);
        await comm.allReduce(args);
      }
      expect((await args.send.toHost())[0]).toBe(16);
    });
    expect([...gpus.machine.events.values()].map(({ device }) => device).sort()).toEqual([0, 1]);
  });
});

test("arrays are copied for every call", async () => {
  await watch(
    2,
    async ({ world, repeatedNumbers: again }) => {
      await world.run(async (comm) => {
        const array = Int32Array.of(1);
        for (let i = 0; i < 4; i++) await comm.allReduce({ send: array, op: "sum" });
        expect(array[0]).toBe(16);
        const buffers = doubling(comm);
        for (let i = 0; i < 4; i++) await comm.allReduce(buffers);
        expect((await buffers.send.toHost())[0]).toBe(16);
      });
      expect(again()).toEqual([5, 6, 7]);
    },
    { staging: "copy" },
  );
});

test("a recording with messages makes operators and copies arrays again at every replay", async () => {
  await watch(
    2,
    async ({ gpus, world, repeatedNumbers: again }) => {
      await world.run(async (comm) => {
        const [array, op] = [Int32Array.of(1), { preMul: 3 }];
        const { send } = doubling(comm);
        const [out, into] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
        const peer = 1 - comm.rank;
        const graph = await comm.capture(() => {
          void comm.allReduce({ send: array, op: "sum" });
          void comm.allReduce({ send, op });
          void comm.sendRecv({ send: out, recv: into, to: peer, from: peer });
        });
        for (let replay = 1; replay <= 3; replay++) {
          array[0] = replay;
          out.fill(10 * replay + comm.rank);
          await graph.replay();
          expect(array[0]).toBe(2 * replay);
          expect((await send.toHost())[0]).toBe(6 ** replay);
          expect((await into.toHost())[0]).toBe(10 * replay + peer);
        }
      });
      expect(again()).toEqual([]);
      expect(gpus.machine.count("destroyOp")).toBe(6);
    },
    { staging: "copy" },
  );
});
