/** Work beside back-to-back repeated calls: readers, getters, and the garbage collector. */
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { CommOp, Communicator, World } from "twinccl";
import { describe, expect, test } from "vitest";
import type { Operation } from "../../../../../src/api/op.ts";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, inWorld, turns } from "../gpus.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

quickTime();

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** A call that was made before by all ranks, which begin the turn together. */
async function known(comm: Communicator) {
  const args = doubling(comm);
  for (let i = 0; i < 2; i++) await comm.allReduce(args);
  await comm.barrier();
  return args;
}

/** The result of a reading, or its absence after a while. */
const soon = (read: Promise<Int32Array>): Promise<unknown> =>
  Promise.race([
    read.then((array) => [...array]),
    new Promise((resolve) => setTimeout(resolve, 400, "is stuck")),
  ]);

/** Collects all unreachable objects, also those of frames that are over. */
async function collected(refs: readonly WeakRef<object>[]): Promise<boolean[]> {
  await turns(5);
  await sleep(20);
  collectGarbage();
  await turns(3);
  collectGarbage();
  return refs.map((ref) => ref.deref() === undefined);
}

/** A world without spies on its session: spies keep their arguments. */
const unwatched = (size: number, use: (world: World) => Promise<void>): Promise<void> =>
  inWorld(cleanGpus(), size, use);

describe.each([1, 2])("with %i ranks in the process", (size) => {
  test("an argument with a getter that makes a call comes after that call", async () => {
    await watch(size, async ({ world }) => {
      await world.run(async (comm) => {
        const [a, b] = [await known(comm), doubling(comm)];
        const ops: PromiseLike<unknown>[] = [comm.allReduce(a)];
        let isFirst = true;
        const calling = {
          get send() {
            if (isFirst) {
              isFirst = false;
              ops.push(comm.allReduce(b));
            }
            return a.send;
          },
          op: "sum" as const,
        };
        ops.push(comm.allReduce(calling));
        ops.push(comm.allReduce(a));
        expect(ops.map((op) => (op as CommOp).call)).toEqual([3, 4, 5, 6]);
        expect(await Promise.all(ops.map(outcome))).toEqual(new Array(4).fill("done"));
      });
    });
  });

  test("a null deadline means no deadline", async () => {
    await watch(size, async ({ world }) => {
      await world.run(async (comm) => {
        const args = await known(comm);
        const before = comm.allReduce(args);
        const refused = comm.allReduce({ ...args, timeoutMs: null as unknown as number });
        expect(await outcome(refused)).toBe("ERR_COMM_ARG");
        expect(await outcome(before)).toBe("done");
      });
    });
  });

  test("a read reports failures of earlier calls, and hides none of later ones", async () => {
    const planned = ncclError("allReduce", 5, "ncclInvalidUsage");
    await watch(size, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const args = await known(comm);
        if (comm.rank === 0) gpus.machine.failNext("allReduce", planned, 3 * size - 1);
        const before = [comm.allReduce(args), comm.allReduce(args)];
        const read = args.send.toHost();
        const failing = comm.allReduce(args) as Operation;
        expect(await soon(read)).toEqual([2 ** (4 * (size - 1))]);
        await Promise.all(before);
        await turns(5);
        expect(failing.isObserved).toBe(false);
        expect(await outcome(comm.allReduce(args))).toBe("ERR_COMM_ABORTED");
        await outcome(failing);
      });
    });
  });

  test("operations of a past turn are not referenced", async () => {
    await unwatched(size, async (world) => {
      await world.run(async (comm) => {
        const args = await known(comm);
        const refs: WeakRef<object>[] = [];
        const make = async (): Promise<void> => {
          const ops = [1, 2, 3, 4, 5].map(() => comm.allReduce(args));
          for (const op of ops) refs.push(new WeakRef(op));
          await Promise.all(ops);
        };
        await make();
        // The memory points to the last one.
        expect((await collected(refs)).slice(0, 4)).toEqual(new Array(4).fill(true));
      });
    });
  });
});

test("a read waits for the calls before it, not for those after it", async () => {
  await watch(2, async ({ world }) => {
    let release!: () => void;
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    await world.run(async (comm) => {
      const args = await known(comm);
      const first = [comm.allReduce(args), comm.allReduce(args)];
      if (comm.rank === 1) {
        await Promise.all(first);
        await released;
        await comm.allReduce(args);
        return;
      }
      const read = args.send.toHost();
      const last = comm.allReduce(args);
      expect(await soon(read)).toEqual([2 ** 4]);
      release();
      await Promise.all([...first, last]);
    });
  });
});

test("a matched call does not reference buffers of later calls", async () => {
  await unwatched(2, async (world) => {
    const refs: WeakRef<object>[] = [];
    await world.run(async (comm) => {
      const first = doubling(comm);
      /** The ranks take turns in taking a new buffer for the old one. */
      const change = async (): Promise<void> => {
        let current = first;
        for (let i = 0; i < 20; i++) {
          if (i > 0 && i % 2 === comm.rank) {
            if (current !== first) current.send.dispose();
            current = doubling(comm);
            if (i === 8 || i === 9) refs.push(new WeakRef(current.send));
          }
          await comm.allReduce(current);
        }
      };
      await change();
      await known(comm);
      const found = await collected(refs);
      if (comm.rank === 0) expect(found).toEqual([true, true]);
      expect(first.send.disposed).toBe(false);
    });
  });
});
