/** Reports on repeated groups: their submission, their call number, and their entries in the counts. */
import type { CallOptions, CommOp, Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import type { Operation } from "../../../../../src/api/op.ts";
import { expectHealthy } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { turns } from "../gpus.ts";
import { doubling, outcome, watch } from "./watched-world.ts";

quickTime();

type Args = ReturnType<typeof doubling>;

/** Two calls that were made before, so that they take the short way. */
async function known(comm: Communicator, alsoGrouped = true): Promise<[Args, Args]> {
  const args: [Args, Args] = [doubling(comm), doubling(comm)];
  for (let i = 0; i < 2; i++) for (const each of args) await comm.allReduce(each);
  for (let i = 0; i < 2 && alsoGrouped; i++) {
    await comm.group(() => {
      for (const each of args) void comm.allReduce(each);
    });
  }
  await comm.barrier();
  return args;
}

/** True for a promise that settles within a few turns. */
async function isSettled(promise: PromiseLike<unknown>): Promise<boolean> {
  let settled = false;
  void promise.then(
    () => {
      settled = true;
    },
    () => undefined,
  );
  await turns(3);
  return settled;
}

describe.each([1, 3])("groups that %i ranks of one process repeat", (size) => {
  test("report that they are submitted, and each of their calls, before they are done", async () => {
    await watch(size, async ({ gpus, world, repeatedNumbers: again }) => {
      await world.run(async (comm) => {
        const [a, b] = await known(comm);
        gpus.machine.hold();
        const parts: CommOp[] = [];
        const reports: Promise<void>[] = [];
        // Something to go on with.
        const before = comm.allReduce(a);
        const whole = comm.group(() => {
          parts.push(comm.allReduce(a), comm.allReduce(b));
          reports.push(...parts.map(({ enqueued }) => enqueued));
        });
        expect(await isSettled(Promise.all([...reports, whole.enqueued]))).toBe(true);
        expect([before, whole, ...parts].map(({ status }) => status)).toEqual(
          new Array(4).fill("submitted"),
        );
        expect(parts.map(({ call }) => call)).toEqual([10, 11]);
        expect(whole.call).toBe(10);
        expect(await isSettled(whole)).toBe(false);
        gpus.machine.release();
        await Promise.all([before, whole]);
      });
      expect(again()).toEqual(expect.arrayContaining([9, 10, 11]));
      await expectHealthy(world);
    });
  });

  test("also report it when nested, and without an earlier call", async () => {
    await watch(size, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const [a, b] = await known(comm);
        gpus.machine.hold();
        let inner: CommOp | undefined;
        const whole = comm.group(() => {
          void comm.allReduce(a);
          inner = comm.group(() => void comm.allReduce(b));
        });
        expect(await isSettled(Promise.all([inner!.enqueued, whole.enqueued]))).toBe(true);
        expect([whole.call, inner?.call]).toEqual([9, 10]);
        gpus.machine.release();
        await whole;
      });
    });
  });

  test("submit nothing before their callback returns", async () => {
    await watch(size, async ({ world, repeatedNumbers: again }) => {
      await world.run(async (comm) => {
        const [a, b] = await known(comm);
        const before = comm.allReduce(a);
        // Where all ranks are here, the last one's call is the one that hands the row over.
        const handed = again().length;
        const whole = comm.group(() => {
          void comm.allReduce(a);
          void comm.allReduce(b);
          expect(again()).toHaveLength(handed);
        });
        await Promise.all([before, whole]);
        expect(again().slice(-3)).toEqual([9, 10, 11]);
      });
    });
  });

  test("count their calls in the statistics", async () => {
    await watch(size, async ({ world }) => {
      await world.run(async (comm) => {
        const [a, b] = await known(comm);
        const { calls, sendBytes, failures } = comm.stats();
        await Promise.all([
          comm.allReduce(a),
          comm.group(() => {
            void comm.allReduce(a);
            void comm.allReduce(b);
          }),
        ]);
        expect(comm.stats()).toEqual({
          calls: { ...calls, allReduce: calls["allReduce"]! + 3 },
          sendBytes: sendBytes + 3 * 4,
          failures,
        });
      });
    });
  });

  test("are made with the options that were checked", async () => {
    await watch(size, async ({ gpus, world }) => {
      await world.run(async (comm) => {
        const [a, b] = await known(comm);
        let reads = 0;
        const options: CallOptions = {
          get timeoutMs() {
            if (++reads > 1) b.send.dispose();
            return 5000;
          },
        };
        const args = Object.defineProperties({ ...b }, Object.getOwnPropertyDescriptors(options));
        const whole = comm.group(() => {
          void comm.allReduce(a);
          void comm.allReduce(args);
        });
        expect(await outcome(whole)).toBe("done");
        expect([reads, b.send.disposed]).toEqual([1, false]);
      });
      expect(gpus.machine.complaints).toEqual([]);
    });
  });
});

test("a call behind a group that was refused half way has a deadline of its own", async () => {
  await watch(
    1,
    async ({ gpus, world }) => {
      const code = await world.run(async (comm) => {
        const [a, b] = await known(comm);
        gpus.machine.hold();
        let unhook = (): void => undefined;
        const whole = comm.group(() => {
          (comm.allReduce(a) as Operation).whenSubmitted(() => {
            unhook = comm.hooks.before(() => {
              throw new Error("not this one");
            });
          });
          void comm.allReduce(b);
        });
        unhook();
        // Looked at at once: the call behind it would fail otherwise.
        const refused = whole.catch((error) => (error as Error).message);
        const next = outcome(comm.allReduce(a));
        expect(await refused).toBe("not this one");
        return next;
      });
      expect(code).toEqual(["ERR_COMM_TIMEOUT"]);
      gpus.machine.release();
    },
    { timeoutMs: 60 },
  );
});

test("a hook of a group's call may make another call, which comes behind it", async () => {
  await watch(1, async ({ world, repeatedNumbers: again }) => {
    await world.run(async (comm) => {
      const [a, b] = await known(comm);
      const more: CommOp[] = [];
      const before = comm.allReduce(a);
      const whole = comm.group(() => {
        (comm.allReduce(a) as Operation).whenSubmitted(() => void more.push(comm.allReduce(b)));
        void comm.allReduce(b);
      });
      await Promise.all([before, whole]);
      expect(await outcome(more[0]!)).toBe("done");
      expect([whole.call, more[0]?.call]).toEqual([10, 11]);
      expect((await b.send.toHost())[0]).toBe(1);
    });
    expect(again().slice(-4)).toEqual([9, 10, 11, 12]);
  });
});

describe.each([1, 3])("calls of %i ranks with a signal that fires", (size) => {
  test("before the submission of their group are not made", async () => {
    await watch(size, async ({ world, repeatedNumbers: again }) => {
      await world.run(async (comm) => {
        const [a, b] = await known(comm);
        const handed = again().length;
        const whole = comm.group(() => {
          const controller = new AbortController();
          void comm.allReduce(a);
          void comm.allReduce({ ...b, signal: controller.signal });
          controller.abort(new Error("enough"));
        });
        expect(await outcome(whole)).toBe("ERR_COMM_ABORTED");
        expect(again()).toHaveLength(handed);
        await comm.allReduce(a);
      });
      await expectHealthy(world);
    });
  });

  test("during their hooks fail with an abort", async () => {
    await watch(size, async ({ gpus, world }) => {
      const codes = await world.run(async (comm) => {
        const [a] = await known(comm);
        gpus.machine.hold();
        const controller = new AbortController();
        comm.hooks.before(() => controller.abort(new Error("enough")));
        return outcome(comm.allReduce({ ...a, signal: controller.signal }));
      });
      expect(codes).toEqual(codes.map(() => "ERR_COMM_ABORTED"));
      gpus.machine.release();
    });
  });
});

describe.each([1, 2])(
  "calls of %i ranks of one process during the reading of their options",
  (size) => {
    test.each(["signal", "timeoutMs"] as const)(
      "and with a %s that gives memory back fail",
      async (which) => {
        await watch(size, async ({ gpus, world }) => {
          const codes = await world.run(async (comm) => {
            const [a, b] = await known(comm, false);
            const args = Object.defineProperty({ ...b }, which, {
              enumerable: true,
              get: () => void b.send.dispose(),
            });
            const found = await outcome(comm.allReduce(args));
            await comm.allReduce(a);
            return found;
          });
          expect(codes).toEqual(codes.map(() => "ERR_COMM_CLOSED"));
          expect(gpus.machine.complaints).toEqual([]);
        });
      },
    );
  },
);

test("an error of an option that another call was made to read names its own call", async () => {
  await watch(1, async ({ world }) => {
    await world.run(async (comm) => {
      const args = Object.defineProperty({ ...doubling(comm) }, "timeoutMs", {
        enumerable: true,
        get: () => {
          void comm.barrier();
          return -1;
        },
      });
      await expect(comm.allReduce(args)).rejects.toThrow(/^allReduce: timeoutMs: found -1/);
    });
  });
});
