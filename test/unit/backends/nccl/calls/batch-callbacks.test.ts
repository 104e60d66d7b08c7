/** Callbacks that act in the middle of a turn, or at its end, on the report that a batch was submitted. */
import type { Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import type { Operation } from "../../../../../src/api/op.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { turns } from "../gpus.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

quickTime();

type Args = ReturnType<typeof doubling>;

/** The objects of both ranks' programs. */
interface Ends {
  readonly comms: Communicator[];
  readonly args: Args[];
}

/** Runs programs of two ranks which have made a call before; gives the numbers of the calls in the order of the session. */
async function order(
  program: (comm: Communicator, args: Args, ends: Ends) => Promise<void>,
): Promise<number[]> {
  let numbers: number[] = [];
  await watch(2, async ({ world, repeatedNumbers: again }) => {
    const ends: Ends = { comms: [], args: [] };
    await world.run(async (comm) => {
      const args = doubling(comm);
      ends.comms[comm.rank] = comm;
      ends.args[comm.rank] = args;
      for (let i = 0; i < 2; i++) await comm.allReduce(args);
      await comm.barrier();
      await program(comm, args, ends);
    });
    numbers = again().slice(1);
    await expectHealthy(world);
  });
  return numbers;
}

const startAll = (comm: Communicator, args: Args, times: number): Operation[] =>
  Array.from({ length: times }, () => comm.allReduce(args) as Operation);

const outcomes = (ops: readonly Operation[]): Promise<string[]> => Promise.all(ops.map(outcome));
const done = (times: number): string[] => new Array(times).fill("done");

describe("a callback of a batched call", () => {
  test("may make a call, numbered after the calls that wait for another rank", async () => {
    const numbers = await order(async (comm, args) => {
      const ops = startAll(comm, args, comm.rank === 0 ? 5 : 3);
      if (comm.rank === 0) {
        const more: Operation[] = [];
        ops[1]?.whenSubmitted(() => void more.push(...startAll(comm, args, 1)));
        expect(await outcomes(ops)).toEqual(done(5));
        expect(more.map(({ call }) => call)).toEqual([8]);
        expect(await outcomes(more)).toEqual(done(1));
      } else {
        await turns(3);
        expect(await outcomes([...ops, ...startAll(comm, args, 3)])).toEqual(done(6));
      }
    });
    expect(numbers).toEqual([3, 4, 5, 6, 7, 8]);
  });

  test("may make another rank's call, submitted after the batch in front of it", async () => {
    const numbers = await order(async (comm, args, { comms, args: all }) => {
      const idle = comm.alloc("int32", 1);
      const ops = startAll(comm, args, comm.rank === 0 ? 4 : 2);
      if (comm.rank === 0) {
        const more = new Promise<string>((resolve) => {
          const make = () => comms[1]!.allReduce(all[1]!) as Operation;
          ops[1]?.whenSubmitted(() => resolve(outcome(make())));
        });
        expect(await outcomes(ops)).toEqual(done(4));
        expect(await more).toBe("done");
      } else {
        // What is given back on a stream ends what goes on behind it.
        idle.dispose();
        expect(await outcomes([...ops, ...startAll(comm, args, 1)])).toEqual(done(3));
      }
    });
    expect(numbers).toEqual([3, 4, 5, 6]);
  });

  test("may throw: only its operation fails", async () => {
    await order(async (comm, args) => {
      const ops = startAll(comm, args, comm.rank === 0 ? 4 : 3);
      if (comm.rank === 0) {
        const fault = new Error("mine");
        ops[1]?.whenSubmitted(() => {
          throw fault;
        });
        await expect(ops[1]).rejects.toBe(fault);
        expect(await outcomes([0, 2, 3].map((at) => ops[at] as Operation))).toEqual(done(3));
      } else {
        await turns(3);
        expect(await outcomes([...ops, ...startAll(comm, args, 1)])).toEqual(done(4));
      }
    });
  });

  test("may end the communicator: every call settles", async () => {
    await order(async (comm) => {
      const child = await comm.split({ color: 0 });
      const args = doubling(child);
      for (let i = 0; i < 2; i++) await child.allReduce(args);
      await comm.barrier();
      const ops = startAll(child, args, comm.rank === 0 ? 5 : 3);
      if (comm.rank === 0) ops[1]?.whenSubmitted(() => child.abort(new Error("enough")));
      const found = await outcomes(ops);
      expect(found).toEqual(new Array(ops.length).fill("ERR_COMM_ABORTED"));
    });
  });
});
