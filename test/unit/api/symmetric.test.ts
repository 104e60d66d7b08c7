/** Symmetric memory in the simulation: when it is used, how ranks make windows together, and what is refused. */
import { type CollectiveMismatchError, type Communicator, createWorld } from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, test } from "vitest";

const likeNccl = (): ReturnType<typeof sim> => sim({ like: "nccl-2.28" });

async function onRanks<T>(size: number, program: (comm: Communicator) => Promise<T>): Promise<T[]> {
  const world = await createWorld({ backend: likeNccl(), size });
  try {
    return await world.run(program);
  } finally {
    await world.close();
  }
}

const failureOf = (op: PromiseLike<unknown>): Promise<CollectiveMismatchError> =>
  Promise.resolve(op).then(
    () => expect.fail("it should fail"),
    (error: CollectiveMismatchError) => error,
  );

describe("a call through symmetric memory", () => {
  test("is summed in float32 and rounded once, unlike a call through other memory", async () => {
    const sums = await onRanks(3, async (comm) => {
      const sum = async (symmetric: boolean) => {
        const send = comm.alloc("float16", 64, { symmetric });
        // 2048 and twice 1: rounded at every hop, 1 + 2048 stays at 2048.
        await comm.allReduce({
          send: send.copyFrom(new Uint16Array(64).fill(comm.rank === 0 ? 0x6800 : 0x3c00)),
          op: "sum",
        });
        return (await send.toHost())[24];
      };
      return [await sum(true), await sum(false)];
    });
    for (const sum of sums) expect(sum).toEqual([0x6801, 0x6800]);
  });

  test("needs both buffers to be symmetric", async () => {
    const [seen] = await onRanks(2, async (comm) => {
      const send = comm.alloc("float32", 8, { symmetric: true }).fill(1);
      const recv = comm.alloc("float32", 8);
      await comm.allReduce({ send, recv, op: "sum" });
      return Array.from(await recv.toHost());
    });
    expect(seen).toEqual(new Array(8).fill(2));
  });

  test("is explained as a symmetric call", async () => {
    const [texts] = await onRanks(4, async (comm) => {
      const question = {
        collective: "allReduce",
        dtype: "float32",
        op: "sum",
        count: 1000,
      } as const;
      return [
        comm.explain({ ...question, symmetric: true }),
        comm.explain({ ...question, count: 1e6, symmetric: { sendOffset: 4, recvOffset: 4 } }),
        comm.explain(question),
      ].map(({ algorithm, protocol }) => `${algorithm}/${protocol}`);
    });
    expect(texts).toEqual(["Symmetric LL/LL", "Symmetric LD/LD", "Ring LL/LL"]);
  });
});

describe("windows", () => {
  test("are created by the first use on all ranks, in any call with symmetric memory", async () => {
    const [sum] = await onRanks(2, async (comm) => {
      const a = comm.alloc("float32", 8, { symmetric: true }).fill(1);
      const b = comm.alloc("float32", 16, { symmetric: true });
      await comm.allReduce({ send: a, op: "sum" });
      await comm.allGather({ send: a, recv: b });
      await comm.reduceScatter({ send: b, recv: a, op: "sum" });
      return Array.from(await a.toHost());
    });
    expect(sum).toEqual(new Array(8).fill(4));
  });

  test("with a different order on one rank are a mismatch, and the communicator stays usable", async () => {
    const errors = await onRanks(3, async (comm) => {
      const a = comm.alloc("float32", 8, { symmetric: true }).fill(1);
      const b = comm.alloc("float32", 8, { symmetric: true }).fill(1);
      await comm.allReduce({ send: a, op: "sum" });
      const wrong = await failureOf(comm.allReduce({ send: comm.rank === 1 ? b : a, op: "sum" }));
      for (const send of [b, a]) await comm.allReduce({ send, op: "sum" });
      expect(await a.toHost()).toEqual(new Float32Array(8).fill(9));
      expect(await b.toHost()).toEqual(new Float32Array(8).fill(3));
      return wrong;
    });
    for (const error of errors) {
      expect(error).toMatchObject({
        code: "ERR_COMM_MISMATCH",
        field: "symmetric send",
        ranks: [1],
        values: ["window 0", "a new window of 32 bytes", "window 0"],
      });
    }
  });

  test("stay paired: once created, they cannot be exchanged", async () => {
    const errors = await onRanks(2, async (comm) => {
      const [a, b] = [4, 4].map((length) => comm.alloc("float32", length, { symmetric: true }));
      if (a === undefined || b === undefined) return expect.fail("two");
      await comm.allReduce({ send: a, recv: b, op: "sum" });
      return failureOf(comm.allReduce({ send: comm.rank === 0 ? a : b, op: "sum" }));
    });
    for (const error of errors) expect(error).toMatchObject({ values: ["window 0", "window 1"] });
  });

  test.each([
    [
      "one rank brings other memory",
      (comm: Communicator) => comm.alloc("float32", 8, { symmetric: comm.rank !== 2 }),
      { field: "symmetric send", ranks: [2], values: expect.arrayContaining(["none"]) },
    ],
    [
      "allocations differ in length",
      (comm: Communicator) =>
        comm.alloc("float32", comm.rank === 0 ? 9 : 8, { symmetric: true }).subarray(0, 8),
      { field: "symmetric send", ranks: [0] },
    ],
    [
      "buffers lie at different places",
      (comm: Communicator) =>
        comm
          .alloc("float32", 12, { symmetric: true })
          .subarray(comm.rank === 1 ? 4 : 0, comm.rank === 1 ? 12 : 8),
      {
        field: "place of send",
        ranks: [1],
        values: ["byte 0 of it", "byte 16 of it", "byte 0 of it"],
      },
    ],
  ])("a mismatch on all ranks when %s", async (_why, buffer, expected) => {
    const errors = await onRanks(3, (comm) =>
      failureOf(comm.allReduce({ send: buffer(comm), op: "sum" })),
    );
    for (const error of errors)
      expect(error).toMatchObject({ code: "ERR_COMM_MISMATCH", ...expected });
  });

  test("a receive buffer that only its own rank writes may have any address", async () => {
    const sums = await onRanks(3, async (comm) => {
      const send = comm.alloc("float32", 12, { symmetric: true }).fill(comm.rank);
      const recv = send.subarray(4 * comm.rank, 4 * comm.rank + 4);
      await comm.reduceScatter({ send, recv, op: "sum" });
      return Array.from(await recv.toHost());
    });
    expect(sums).toEqual(new Array(3).fill([3, 3, 3, 3]));
  });

  test("belong to a communicator: a split creates new ones", async () => {
    const sums = await onRanks(4, async (comm) => {
      const half = await comm.split({ color: comm.rank < 2 ? 0 : 1 });
      const send = comm.alloc("float32", 4, { symmetric: true }).fill(1);
      await half.allReduce({ send, op: "sum" });
      await comm.allReduce({ send, op: "sum" });
      return (await send.toHost())[0];
    });
    expect(sums).toEqual([8, 8, 8, 8]);
  });
});

describe("calls that NCCL computes wrongly", () => {
  const unsupported = { code: "ERR_COMM_UNSUPPORTED", collective: "allReduce" };

  test("is refused on every rank, with the reason", async () => {
    const errors = await onRanks(2, async (comm) => {
      const send = comm.alloc("bfloat16", 33, { symmetric: true }).subarray(1);
      const error = await failureOf(comm.allReduce({ send, op: "sum" }));
      const odd = comm.alloc("float8e4m3", 18, { symmetric: true });
      const block = comm.alloc("float8e4m3", 9, { symmetric: true });
      const scattered = await failureOf(comm.reduceScatter({ send: odd, recv: block, op: "sum" }));
      const gathered = await failureOf(
        comm.allGather({
          send: send.subarray(0, 8),
          recv: comm.alloc("bfloat16", 16, { symmetric: true }),
        }),
      );
      return [error, scattered, gathered];
    });
    for (const [reduced, scattered, gathered] of errors) {
      expect(reduced).toMatchObject(unsupported);
      expect(reduced?.message).toMatch(/no multiple of 4: NCCL 2\.28\.9 gives wrong bits/);
      expect(scattered?.message).toMatch(/blocks 1/);
      expect(gathered).toMatchObject({ ...unsupported, collective: "allGather" });
    }
  });

  test("runs if the defect does not apply: other kernels, other memory, short blocks", async () => {
    const [ok] = await onRanks(2, async (comm) => {
      const shifted = comm.alloc("bfloat16", 33, { symmetric: true }).subarray(1);
      await comm.allReduce({ send: shifted, op: "max" });
      await comm.allReduce({ send: comm.alloc("bfloat16", 33).subarray(1), op: "sum" });
      await comm.reduceScatter({
        send: comm.alloc("float8e5m2", 2, { symmetric: true }),
        recv: comm.alloc("float8e5m2", 1, { symmetric: true }),
        op: "sum",
      });
      const large = comm.alloc("bfloat16", 100_001, { symmetric: true }).subarray(1);
      await comm.allReduce({ send: large, op: "sum" });
      return true;
    });
    expect(ok).toBe(true);
  });

  test("is answered by supports and shown by explain", async () => {
    const [answers] = await onRanks(2, async (comm) => {
      const question = {
        collective: "allReduce",
        dtype: "float16",
        op: "sum",
        count: 100,
      } as const;
      const shifted = { ...question, symmetric: { sendOffset: 1, recvOffset: 1 } };
      return [
        comm.supports(question),
        comm.supports({ ...question, symmetric: true }),
        comm.supports(shifted),
        comm.explain(shifted).claim,
      ];
    });
    expect(answers?.slice(0, 3)).toEqual([true, true, false]);
    expect(answers?.[3]).toMatch(/^no call: symmetric float16/);
  });
});

test("alloc refuses an invalid flag", async () => {
  const [error] = await onRanks(1, async (comm) => {
    try {
      comm.alloc("int8", 1, { symmetric: "yes" as unknown as boolean });
    } catch (caught) {
      return caught;
    }
    return undefined;
  });
  expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "symmetric" });
});

test("alloc reports that a backend has no symmetric memory", async () => {
  const without: ReturnType<typeof sim> = {
    ...sim(),
    open: async (request) => {
      const session = await sim().open(request);
      const capabilities = { ...session.info.capabilities, symmetricMemory: false };
      return Object.defineProperty(session, "info", { value: { ...session.info, capabilities } });
    },
  };
  const world = await createWorld({ backend: without, size: 1 });
  const failure = world.run(async (comm) => comm.alloc("int8", 1, { symmetric: true }));
  await expect(failure).rejects.toMatchObject({ cause: { code: "ERR_COMM_UNSUPPORTED" } });
  await world.close();
});
