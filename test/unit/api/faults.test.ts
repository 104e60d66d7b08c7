/** Injected faults: the chosen call fails, there alone; the peers see it, and the next run is healthy. */

import {
  type CommError,
  type Communicator,
  createWorld,
  firstAvailable,
  type World,
  type WorldError,
} from "twinccl";
import { type Fault, failAt, sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import { expectHealthy, within } from "../../support/planted.ts";

// biome-ignore lint/suspicious/noExplicitAny: what was thrown is judged by its facts
type Thrown = any;

/** The outcome of each rank, by code, of a program under faults; the world must be healthy afterwards. */
async function struck(
  size: number,
  faults: readonly Fault[],
  program: (comm: Communicator) => unknown,
): Promise<(readonly [string, readonly number[], string | undefined] | "fine")[]> {
  const world = await createWorld({ backend: sim({ faults }), size });
  const outcomes = new Array(size).fill("fine");
  const run = world.run(async (comm) => {
    try {
      await program(comm);
    } catch (error) {
      const { code, ranks, collective } = error as CommError;
      outcomes[comm.rank] = [code, [...ranks], collective];
      throw error;
    }
  });
  const failed = await within(
    3000,
    run.then(
      () => undefined,
      (error: WorldError) => error,
    ),
  );
  expect(failed?.code).toBe(
    outcomes.every((each) => each === "fine") ? undefined : "ERR_COMM_WORLD",
  );
  await expectHealthy(world);
  await world.close();
  return outcomes;
}

const injected = (rank: number, collective: string) => ["ERR_COMM_FAULT", [rank], collective];
const remote = (rank: number, collective: string) => ["ERR_COMM_REMOTE", [rank], collective];

const sum = (comm: Communicator, data = new Int32Array(1)) =>
  comm.allReduce({ send: data, op: "sum" });

describe("failAt", () => {
  test.each([0, 1, 4])("fails call %i of one rank; the peers' error names it", async (call) => {
    let made = 0;
    const outcomes = await struck(3, [failAt(1, call)], async (comm) => {
      for (let step = 0; step < 5; step++) {
        if (comm.rank === 1) made = step;
        await sum(comm);
      }
    });
    expect(outcomes).toEqual([
      remote(1, "allReduce"),
      injected(1, "allReduce"),
      remote(1, "allReduce"),
    ]);
    expect(made).toBe(call);
  });

  test("beyond the last call has no effect", async () => {
    const outcomes = await struck(2, [failAt(0, 40)], (comm) => sum(comm));
    expect(outcomes).toEqual(["fine", "fine"]);
  });

  test("writes nothing on any rank", async () => {
    const data = [0, 1, 2].map((rank) => new Int32Array(4).fill(rank + 1));
    await struck(3, [failAt(2, 1)], async (comm) => {
      await comm.barrier();
      await sum(comm, data[comm.rank]);
    });
    expect(data.map((array) => [...array])).toEqual([1, 2, 3].map((own) => [own, own, own, own]));
  });

  test("carries its facts: the rank, the call, the collective; the cause of the run", async () => {
    const world = await createWorld({ backend: sim({ faults: [failAt(1, 0)] }), size: 2 });
    const failure = await world.run((comm) => comm.barrier()).catch((error: WorldError) => error);
    const { failures, cause, ranks } = failure as WorldError;
    const [first, second] = failures;
    expect(ranks).toEqual([1, 0]);
    expect(cause).toBe(first?.error);
    expect(first?.error).toMatchObject({
      name: "InjectedFaultError",
      code: "ERR_COMM_FAULT",
      rank: 1,
      call: 0,
      collective: "barrier",
    });
    expect(second?.error).toMatchObject({ name: "RemoteRankError", rank: 0, cause });
    await world.close();
  });

  test("several faults occur one after another, each in a separate run", async () => {
    const faults = [failAt(0, 1), failAt(1, 2)];
    const world = await createWorld({ backend: sim({ faults }), size: 2 });
    const codes: unknown[] = [];
    for (let run = 0; run < 4; run++) {
      const ranks = await world
        .run((comm) => sum(comm))
        .then(
          () => "fine",
          (error: WorldError) => [...error.ranks],
        );
      codes.push(ranks);
    }
    expect(codes).toEqual(["fine", [0, 1], [1, 0], "fine"]);
    await expectHealthy(world);
    await world.close();
  });

  test("counts calls over all communicators, and fails those of a subgroup alone", async () => {
    const world = await createWorld({ backend: sim({ faults: [failAt(0, 2)] }), size: 4 });
    const results = await world
      .run(async (comm) => {
        const sub = await comm.split({ color: comm.rank % 2 });
        await sub.barrier();
        await sub.barrier();
        return "done";
      })
      .catch((error: WorldError) =>
        error.failures.map(({ rank, error: each }) => [rank, (each as CommError).code]),
      );
    expect(results).toEqual([
      [0, "ERR_COMM_FAULT"],
      [2, "ERR_COMM_REMOTE"],
    ]);
    await expectHealthy(world);
    await world.close();
  });

  test("a program may catch it and continue in step", async () => {
    const world = await createWorld({ backend: sim({ faults: [failAt(1, 0)] }), size: 2 });
    const results = await world.run(async (comm) => {
      const data = new Int32Array(1).fill(1);
      if (comm.rank === 1) {
        const code = await sum(comm, data).catch((error: Thrown) => error.code);
        expect([code, data[0]]).toEqual(["ERR_COMM_FAULT", 1]);
      }
      await sum(comm, data);
      return [data[0], comm.stats().failures];
    });
    expect(results).toEqual([
      [2, 0],
      [2, 1],
    ]);
    await world.close();
  });

  describe.each([0, 1, 2, 3])("at call %i of several that are made as one", (call) => {
    /** The sums of each rank, where every refused call is made again. */
    async function repeated(
      calls: (comm: Communicator, data: readonly Int32Array[]) => void,
      made: (comm: Communicator, calls: () => void) => Promise<() => PromiseLike<unknown>>,
      first = 0,
    ): Promise<number[][]> {
      const world = await createWorld({
        backend: sim({ faults: [failAt(1, first + call)] }),
        size: 2,
      });
      const sums = world.run(async (comm) => {
        const data = [1, 10, 100].map((each) => new Int32Array(1).fill(each));
        const make = await made(comm, () => calls(comm, data));
        for (let step = 0; step < 2; step++) {
          await Promise.resolve(make()).catch(({ code }: Thrown) => {
            expect(code).toBe("ERR_COMM_FAULT");
            return make();
          });
        }
        return data.map(([value]) => value as number);
      });
      return within(3000, sums).finally(() => world.close());
    }

    const exchange = (comm: Communicator, [first, second, third]: readonly Int32Array[]): void => {
      void comm.allReduce({ send: first as Int32Array, op: "sum" });
      void comm.group(() => {
        void comm.send({ send: second as Int32Array, peer: 1 - comm.rank });
        void comm.recv({ recv: third as Int32Array, peer: 1 - comm.rank });
      });
    };

    test("refuses the whole group", async () => {
      const sums = repeated(
        (comm, [first, second]) => {
          void comm.allReduce({ send: first as Int32Array, op: "sum" });
          void comm.allReduce({ send: second as Int32Array, op: "sum" });
        },
        async (comm, calls) => () => comm.group(calls),
      );
      expect(await sums).toEqual(new Array(2).fill([4, 40, 100]));
    });

    test("refuses the whole group of a collective call and messages", async () => {
      const sums = repeated(exchange, async (comm, calls) => () => comm.group(calls));
      expect(await sums).toEqual(new Array(2).fill([4, 10, 10]));
    });

    test("refuses the whole replay of messages", async () => {
      const replay = async (comm: Communicator, calls: () => void) => {
        const graph = await comm.capture(calls);
        return () => graph.replay();
      };
      expect(await repeated(exchange, replay, 1)).toEqual(new Array(2).fill([4, 10, 10]));
    });
  });

  test("uses up no call number: later calls have the same one on all ranks", async () => {
    const trace = new Trace();
    const backend = sim({ faults: [failAt(1, 1)], trace });
    const world = await createWorld({ backend, size: 2 });
    const calls: number[][] = [[], []];
    const numbers = await world.run(async (comm) => {
      comm.hooks.after(({ call }) => void calls[comm.rank]?.push(call));
      await comm.barrier();
      if (comm.rank === 1) {
        const refused = sum(comm);
        await expect(refused).rejects.toMatchObject({ code: "ERR_COMM_FAULT", call: 1 });
        expect(refused.call).toBe(-1);
      }
      const again = sum(comm);
      await again;
      const last = comm.barrier();
      await last;
      return [again.call, last.call];
    });
    expect(numbers).toEqual([
      [1, 2],
      [1, 2],
    ]);
    expect(calls).toEqual([
      [0, 1, 2],
      [0, 1, 2],
    ]);
    const posts = (rank: number): string[] =>
      [...trace.toText().matchAll(/post rank=(\d) comm=world call=(\d) (\w+)/g)]
        .filter(([, of]) => Number(of) === rank)
        .map(([, , call, what]) => `${call} ${what}`);
    expect(posts(0)).toEqual(["0 barrier", "1 allReduce", "2 barrier"]);
    expect(posts(1)).toEqual(posts(0));
    await world.close();
  });

  test.each([
    ["send", (comm: Communicator) => comm.send({ send: new Int8Array(1), peer: 1 })],
    ["recv", (comm: Communicator) => comm.recv({ recv: new Int8Array(1), peer: 1 })],
    [
      "sendRecv",
      (comm: Communicator) =>
        comm.sendRecv({ send: new Int8Array(1), recv: new Int8Array(1), to: 1, from: 1 }),
    ],
    ["split", (comm: Communicator) => comm.split({ color: 0 })],
    ["capture", (comm: Communicator) => comm.capture(() => undefined)],
    [
      "allToAllv",
      (comm: Communicator) => comm.allToAllv({ send: new Int8Array(2), sendCounts: [1, 1] }),
    ],
  ])("strikes %s", async (name, call) => {
    const outcomes = await struck(2, [failAt(0, 0)], (comm) =>
      comm.rank === 0 ? call(comm) : comm.barrier(),
    );
    expect(outcomes).toEqual([injected(0, name), remote(0, "barrier")]);
  });

  test("counts a sendRecv as one call", async () => {
    const outcomes = await struck(1, [failAt(0, 1)], async (comm) => {
      await comm.sendRecv({ send: new Int8Array(1), recv: new Int8Array(1), to: 0, from: 0 });
      await comm.barrier();
    });
    expect(outcomes).toEqual([injected(0, "barrier")]);
  });

  test.each([
    ["rank", [-1, 0]],
    ["rank", [0.5, 0]],
    ["rank", [Number.NaN, 0]],
    ["call", [0, -1]],
    ["call", [0, "1"]],
    ["call", [0, 2 ** 53]],
    ["call", [0, undefined]],
  ])("refuses an invalid %s: %j", (field, args) => {
    expect(() => failAt(...(args as [number, number]))).toThrowError(
      expect.objectContaining({ code: "ERR_COMM_ARG", field }),
    );
  });
});

describe("after a rebuild", () => {
  /** The ranks that failed in one call of all ranks; "fine" for none. */
  const outcome = (world: World): Promise<unknown> =>
    world
      .run((comm) => sum(comm))
      .then(
        () => "fine",
        (error: WorldError) =>
          error.failures.map(({ rank, error: each }) => [rank, (each as CommError).code]),
      );

  test("a past fault does not affect the rank that has its number now", async () => {
    const world = await createWorld({ backend: sim({ faults: [failAt(1, 0)] }), size: 3 });
    const fault = [
      [1, "ERR_COMM_FAULT"],
      [0, "ERR_COMM_REMOTE"],
      [2, "ERR_COMM_REMOTE"],
    ];
    expect(await outcome(world)).toEqual(fault);
    const second = await world.rebuild({ without: [1] });
    expect([await outcome(second), await outcome(second)]).toEqual(["fine", "fine"]);
    const third = await second.rebuild();
    expect(await outcome(third)).toBe("fine");
    await third.close();
  });

  test("a future fault affects its original rank, which continues to count its calls", async () => {
    const faults = [failAt(2, 3), failAt(0, 0), failAt(3, 5)];
    const world = await createWorld({ backend: sim({ faults }), size: 4 });
    expect(await outcome(world)).toContainEqual([0, "ERR_COMM_FAULT"]);
    // Ranks 1, 2, 3 of the first world are 0, 1, 2 now, and have made one call each.
    const second = await world.rebuild({ without: [0] });
    expect([await outcome(second), await outcome(second)]).toEqual(["fine", "fine"]);
    const struck = await second.run((comm) => sum(comm)).catch((error: WorldError) => error.cause);
    expect(struck).toMatchObject({ code: "ERR_COMM_FAULT", rank: 1, ranks: [1], call: 3 });
    expect(String(struck)).toContain("call 3 of rank 2 (rank 1 since the rebuild)");
    // Ranks 1 and 3 of the first world stay, as 0 and 1, with four calls made.
    const third = await second.rebuild({ without: [1] });
    expect(await outcome(third)).toBe("fine");
    expect(await outcome(third)).toContainEqual([1, "ERR_COMM_FAULT"]);
    expect(await outcome(third)).toBe("fine");
    await third.close();
  });

  test("another world of the same backend value starts with all its faults", async () => {
    const backend = sim({ faults: [failAt(0, 0)] });
    for (let world = 0; world < 2; world++) {
      const opened = await createWorld({ backend, size: 2 });
      expect(await outcome(opened)).toContainEqual([0, "ERR_COMM_FAULT"]);
      const rebuilt = await opened.rebuild();
      expect(await outcome(rebuilt)).toBe("fine");
      await rebuilt.close();
    }
  });

  test("faults continue behind firstAvailable too", async () => {
    const backend = firstAvailable(sim({ faults: [failAt(0, 0)] }));
    const world = await createWorld({ backend, size: 2 });
    expect(await outcome(world)).toContainEqual([0, "ERR_COMM_FAULT"]);
    const rebuilt = await world.rebuild();
    expect(await outcome(rebuilt)).toBe("fine");
    await rebuilt.close();
  });
});
