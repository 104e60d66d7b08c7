/** Ranks of different processes that compare their calls: here on fake GPUs, and through a real store. */
import {
  type CommError,
  type Communicator,
  type ConnectedCommunicator,
  createWorld,
} from "twinccl";
import { sim } from "twinccl/sim";
import { describe, expect, onTestFinished, test } from "vitest";
import type { CompareCalls } from "../../../../../src/job/before-calls.ts";
import { Job } from "../../../../../src/job/job.ts";
import type { ExchangeOptions, Membership } from "../../../../../src/job/rendezvous.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus } from "../gpus.ts";
import { connected } from "./connected.ts";

quickTime();

/** The outcome of each rank's call: its result, or its error. */
async function outcomes<T>(
  comms: readonly Communicator[],
  call: (comm: Communicator) => PromiseLike<T>,
): Promise<(T | CommError)[]> {
  return await Promise.all(comms.map((comm) => call(comm).then(null, (error) => error)));
}

/** Every rank learns of the same difference. */
async function expectMismatch(
  comms: readonly Communicator[],
  call: (comm: Communicator) => PromiseLike<unknown>,
  facts: object,
): Promise<void> {
  const needed = { code: "ERR_COMM_MISMATCH", ...facts };
  expect(await outcomes(comms, call)).toMatchObject(comms.map(() => needed));
}

/** The ranks are in step: they sum. */
async function expectSum(comms: readonly Communicator[]): Promise<void> {
  const sums = await outcomes(comms, async (comm) => {
    const one = comm.alloc("int32", 1).fill(comm.rank + 1);
    await comm.allReduce({ send: one, op: "sum" });
    return (await one.toHost())[0];
  });
  const size = comms.length;
  expect(sums).toEqual(comms.map(() => (size * (size + 1)) / 2));
}

describe.each(["once", "always"] as const)("compareCalls: %s", (compareCalls) => {
  test("a count that differs fails on every rank; the next call is in step, whichever rank was wrong", async () => {
    const comms = await connected(3, compareCalls);
    // Of what was agreed on once, a rank that does otherwise learns later: see below.
    for (const wrong of compareCalls === "once" ? [2] : [2, 0]) {
      const count = (rank: number): number => (rank === wrong ? 5 : 4);
      await expectMismatch(
        comms,
        (comm) => comm.allReduce({ send: comm.alloc("int32", count(comm.rank)), op: "sum" }),
        { field: "count", ranks: [wrong], values: [0, 1, 2].map((rank) => `${count(rank)}`) },
      );
      // The count that was right on some ranks was agreed on by none.
      for (let round = 0; round < 2; round++) {
        const fine = await outcomes(comms, (comm) =>
          comm.allReduce({ send: comm.alloc("int32", 4), op: "sum", timeoutMs: 2000 }),
        );
        expect(fine).toEqual(comms.map(() => expect.objectContaining({ length: 4 })));
      }
      await expectSum(comms);
    }
  });

  test("the table has the calls of all ranks, also of other processes", async () => {
    const comms = await connected(2, compareCalls);
    const wrong = await outcomes(comms, (comm): PromiseLike<unknown> => {
      const send = comm.alloc("int32", 2);
      return comm.rank === 0 ? comm.barrier() : comm.allReduce({ send, op: "sum" });
    });
    for (const error of wrong) {
      expect((error as Error).message.split("\n").slice(1, 4)).toEqual([
        "  rank  call                collective",
        "  0     barrier             barrier",
        "  1     allReduce int32[2]  allReduce",
      ]);
    }
  });

  test("source lines of calls are sent to other processes under callSites", async () => {
    const comms = await connected(2, compareCalls, cleanGpus(), { callSites: true });
    const wrong = await outcomes(comms, (comm) =>
      comm.rank === 0
        ? comm.broadcast({ recv: comm.alloc("int32", 2), root: 0 })
        : comm.broadcast({ recv: comm.alloc("int32", 2), root: 1 }),
    );
    const [table, other] = wrong.map((error) => (error as Error).message.split("\n").slice(1, 4));
    expect(table).toEqual(other);
    const lines = table?.map((row) => Number(/cross-check\.test\.ts:(\d+):\d+$/.exec(row)?.[1]));
    expect(lines?.[1]).toBeGreaterThan(0);
    expect(lines?.slice(1)).toEqual([lines?.[1], (lines?.[1] ?? Number.NaN) + 1]);
  });

  test("another collective, operator or root fails too", async () => {
    const comms = await connected(2, compareCalls);
    const send = comms.map((comm) => comm.alloc("int32", 2));
    const buffer = ({ rank }: Communicator) => send[rank] as NonNullable<(typeof send)[0]>;
    await expectMismatch(
      comms,
      (comm): PromiseLike<unknown> =>
        comm.rank === 0 ? comm.barrier() : comm.allReduce({ send: buffer(comm), op: "sum" }),
      { field: "collective", values: ["barrier", "allReduce"] },
    );
    await expectMismatch(
      comms,
      (comm) => comm.allReduce({ send: buffer(comm), op: comm.rank === 0 ? "min" : "max" }),
      { field: "op", values: ["min", "max"] },
    );
    await expectMismatch(comms, (comm) => comm.broadcast({ recv: buffer(comm), root: comm.rank }), {
      field: "root",
      values: ["0", "1"],
    });
    await expectSum(comms);
  });

  test("counts that are not transposes fail, also inside of a recording", async () => {
    const comms = await connected(2, compareCalls);
    const exchange = (comm: Communicator, expected: readonly number[]) =>
      comm.allToAllv({
        ...{ send: comm.alloc("int32", 3), sendCounts: [1, 2] },
        ...{ recv: comm.alloc("int32", 8), recvCounts: expected },
      });
    const wrong = (comm: Communicator) => exchange(comm, comm.rank === 0 ? [1, 1] : [2, 1]);
    await expectMismatch(comms, wrong, { field: "sendCounts[1]", ranks: [1] });
    await expectMismatch(comms, (comm) => comm.capture(() => void wrong(comm)), {
      field: "calls[0].sendCounts[1]",
    });
    await expectMismatch(
      comms,
      (comm) =>
        comm.rank === 0
          ? comm.gather({
              ...{ send: comm.alloc("int32", 3), root: 0 },
              ...{ recv: comm.alloc("int32", 7), recvCounts: [3, 4] },
            })
          : comm.gather({ send: comm.alloc("int32", 5), root: 0 }),
      { field: "recvCounts[1]", ranks: [1] },
    );
    const right = await outcomes(comms, (comm) =>
      exchange(comm, comm.rank === 0 ? [1, 1] : [2, 2]),
    );
    expect(right).toMatchObject([{ recvCounts: [1, 1] }, { recvCounts: [2, 2] }]);
    await expectSum(comms);
  });

  // A rank that does otherwise than was agreed on once learns later: see below.
  if (compareCalls === "always")
    test("symmetric memory in another order, or at another place, fails", async () => {
      const comms = await connected(2, compareCalls);
      const [a, b] = [0, 1].map(() =>
        comms.map((comm) => comm.alloc("float32", 64, { symmetric: true })),
      ) as [ReturnType<Communicator["alloc"]>[], ReturnType<Communicator["alloc"]>[]];
      const reduce = (comm: Communicator, buffer: unknown) =>
        comm.allReduce({ send: buffer as ReturnType<typeof comm.alloc<"float32">>, op: "sum" });
      const of = (buffers: unknown[], { rank }: Communicator) => buffers[rank];
      await outcomes(comms, (comm) => reduce(comm, of(a, comm)));
      await expectMismatch(comms, (comm) => reduce(comm, of(comm.rank === 0 ? a : b, comm)), {
        field: "symmetric send",
        values: ["window 0", "a new window of 256 bytes"],
      });
      await expectMismatch(
        comms,
        (comm) =>
          reduce(
            comm,
            (of(a, comm) as { subarray(b: number, e: number): unknown }).subarray(
              comm.rank,
              comm.rank + 8,
            ),
          ),
        {
          field: "place of send",
          values: ["byte 0 of it", "byte 4 of it"],
          message: expect.stringContaining("ranks reach it at the same place of everyone's window"),
        },
      );
      // In a recording as well, where calls come one after another.
      await expectMismatch(
        comms,
        (comm) =>
          comm.capture(() => {
            void reduce(comm, of(b, comm));
            void reduce(
              comm,
              comm.rank === 0 ? comm.alloc("float32", 64, { symmetric: true }) : of(b, comm),
            );
          }),
        {
          field: "calls[1].symmetric send",
          values: ["a new window of 256 bytes", "window 1"],
        },
      );
      const good = await outcomes(comms, (comm) => reduce(comm, of(b, comm)));
      expect(good).toEqual([expect.objectContaining({ length: 64 }), expect.anything()]);
      await expectMismatch(
        comms,
        (comm) => reduce(comm, comm.rank === 0 ? of(b, comm) : comm.alloc("float32", 64)),
        { field: "symmetric send", values: ["window 1", "none"] },
      );
      await expectSum(comms);
    });

  test("recordings are distinguished, however many others each process has made elsewhere", async () => {
    const comms = await connected(2, compareCalls);
    const alone = await createWorld({ backend: sim(), size: 1 });
    onTestFinished(() => alone.close());
    await alone.run(async (comm) => {
      await comm.capture(() => void comm.barrier());
    });
    const graphs = await Promise.all(
      comms.map(async (comm) => {
        const record = () => comm.capture(() => void comm.barrier());
        return [await record(), await record()] as const;
      }),
    );
    const replay = (comm: Communicator, which: 0 | 1) =>
      (graphs[comm.rank] as (typeof graphs)[0])[which].replay();
    await expectMismatch(comms, (comm) => replay(comm, comm.rank as 0 | 1), {
      field: "graph",
      values: ["1", "2"],
    });
    for (const which of [0, 1] as const) {
      const replayed = await outcomes(comms, (comm) => replay(comm, which));
      expect(replayed).toEqual([undefined, undefined]);
    }
    await expectSum(comms);
  });

  test("a cancelled comparison aborts the communicator on its rank", async () => {
    const [a, b] = (await connected(2, compareCalls)) as [
      ConnectedCommunicator,
      ConnectedCommunicator,
    ];
    const giving = new AbortController();
    const send = a.alloc("int32", 1).fill(7);
    const op = a.allReduce({ send, op: "sum", signal: giving.signal }).then(null, (e) => e);
    await new Promise((resolve) => setTimeout(resolve, 20));
    giving.abort(new Error("enough"));
    const hint = expect.stringMatching(/the communicator is aborted with it/);
    expect(await op).toMatchObject({ code: "ERR_COMM_ABORTED", hint });
    const other = b.allReduce({ send: b.alloc("int32", 1), op: "sum", timeoutMs: 300 });
    expect(await other.then(null, (e) => e)).toMatchObject({ code: "ERR_COMM_TIMEOUT" });
    expect(await a.barrier().then(null, (e) => e)).toMatchObject({ code: "ERR_COMM_ABORTED" });
  });
});

test.each(["once", "always"] as const)(
  "%s, a rank that has closed its end is named, and the call",
  async (compareCalls) => {
    const comms = await connected(3, compareCalls);
    const gone = comms[1]!;
    const sum = (comm: Communicator) => comm.allReduce({ send: comm.alloc("int32", 1), op: "sum" });
    await outcomes(comms, sum);
    const waiting = outcomes([comms[0]!, comms[2]!], (comm) => comm.barrier());
    await gone.close();
    for (const [at, error] of (await waiting).entries()) {
      expect(error).toMatchObject({
        ...{ code: "ERR_COMM_REMOTE", ranks: [1], rank: 2 * at, collective: "barrier", call: 1 },
        message: expect.stringMatching(/rank 1( of "world")? will not make (this call|it)/),
        hint: expect.stringMatching(/comm\.rebuild\(\)/),
      });
    }
  },
);

test("once, a rank with another call than the compared one gets an error with the other ranks", async () => {
  const comms = await connected(3, "once");
  const reduce = (comm: Communicator, count: number) =>
    comm.allReduce({ send: comm.alloc("int32", count), op: "sum" });
  await outcomes(comms, (comm) => reduce(comm, 4));
  const [wrong, ...others] = await outcomes(comms, (comm) => reduce(comm, comm.rank === 0 ? 5 : 4));
  expect(wrong).toMatchObject({
    ...{ code: "ERR_COMM_MISMATCH", field: "call", rank: 0, ranks: [0, 1, 2], call: 1 },
    message: expect.stringMatching(/rank 0 makes another call than ranks 1, 2/),
  });
  const why = expect.stringMatching(
    /rank 0 has aborted it: .*rank 0 makes another call than ranks/,
  );
  expect(others).toMatchObject(
    [1, 2].map((rank) => ({ code: "ERR_COMM_ABORTED", rank, message: why })),
  );
  const next = await outcomes(comms, (comm) => comm.barrier());
  expect(next).toMatchObject(comms.map(() => ({ code: "ERR_COMM_ABORTED" })));
});

test("once, a slow rank causes no mismatch", async () => {
  const comms = await connected(2, "once");
  const sums = await outcomes(comms, async (comm) => {
    if (comm.rank === 1) await new Promise((resolve) => setTimeout(resolve, 1200));
    const one = comm.alloc("int32", 1).fill(1);
    await comm.allReduce({ send: one, op: "sum" });
    return (await one.toHost())[0];
  });
  expect(sums).toEqual([2, 2]);
});

test("off, a capture that meets another call gets an error with the other ranks", async () => {
  const comms = await connected(2, "off");
  const [wrong, other] = await outcomes(comms, (comm): PromiseLike<unknown> => {
    return comm.rank === 0 ? comm.capture(() => void comm.barrier()) : comm.barrier();
  });
  expect(wrong).toMatchObject({
    ...{ code: "ERR_COMM_MISMATCH", field: "call", rank: 0, ranks: [0, 1], call: 0 },
    values: ["is compared", "is not compared"],
  });
  expect(other).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 1 });
});

/** Comparisons of the job of which this is rank 0; every rank sends the same. Reports the exchanges, unless `tell` throws. */
function alone(compareCalls: CompareCalls, tell: (key: string, words: string) => void): Job {
  const text = (words: Uint8Array): string => new TextDecoder().decode(words);
  const membership = {
    ...{ rank: 0, size: 2 },
    async exchange(
      key: string,
      words: Uint8Array,
      { ranks = [] }: ExchangeOptions,
    ): Promise<Uint8Array[]> {
      tell(key, text(words));
      return ranks.map((rank) => new TextEncoder().encode(`${text(words)} of ${rank}`));
    },
    onNews: () => () => undefined,
    onQuestion: () => undefined,
    onNextGeneration: () => undefined,
  };
  const open = (): Promise<never> => Promise.reject(new Error("no further generation"));
  return new Job(membership as unknown as Membership, { open, timeoutMs: 1_000 }, compareCalls);
}

const world = { id: 0, name: "world", ranks: [0, 1], local: [0] };

test.each([
  ["off", []],
  ["once", ["a 0", "b 1", "b 3"]],
  ["always", ["a 0", "b 1", "a 2", "b 3", "b 4"]],
] as const)("%s: queries to the other ranks", async (compareCalls, expectedQueries) => {
  const queries: string[] = [];
  const { crossCheck } = alone(compareCalls, (key, words) => {
    queries.push(`${words} ${key.split(" ").at(-1)}`);
  });
  // The second call is the only one that ranks differ in.
  for (const [number, kind] of ["a", "b", "a", "b", "b"].entries()) {
    const judge = () => (number === 1 ? "they differ" : undefined);
    const compared = crossCheck.compare(
      world,
      number,
      () => ({ kind, details: () => kind }),
      judge,
    );
    if (number === 1 && compareCalls !== "off") expect(await compared).toBe("they differ");
    else expect(await compared).toBeUndefined();
  }
  expect(queries).toEqual(expectedQueries);
});

test("communicators of splits are compared by their own ranks, and kept apart", async () => {
  const keys: string[] = [];
  const job = alone("once", (key) => keys.push(key));
  const half = { ...world, id: 1, name: "world/0", ranks: [0], local: [0] };
  const turned = { ...world, id: 2, name: "world/0", ranks: [1, 0], local: [1] };
  const again = { ...world, id: 9, name: "world/0" };
  job.addChildren(world, 0, [half]);
  job.addChildren(half, 0, [{ ...half, id: 5 }]);
  job.addChildren(world, 1, [turned]);
  job.addChildren(world, 2, [again]);
  const seen: (readonly string[])[] = [];
  for (const comm of [world, half, turned, again]) {
    const judge = (words: readonly string[]): void => void seen.push(words);
    await job.crossCheck.compare(comm, 0, () => ({ kind: "k", details: () => "w" }), judge);
  }
  expect(keys).toEqual(["call world 0", "call world/1.0 0", "call world/2.0 0"]);
  const inOrder = ["w of 0", "w of 1"];
  expect(seen).toEqual([inOrder, ["w of 1", "w of 0"], inOrder]);
});

test.each(["off", "once", "always"] as const)("%s: every capture is compared", async (mode) => {
  const keys: string[] = [];
  const { crossCheck, compareCaptures } = alone(mode, (key) => keys.push(key));
  expect(crossCheck.isEnabled).toBe(mode !== "off");
  const own = () => ({ kind: "k", details: () => "w" });
  const judge = (words: readonly string[]): string => words.join();
  const some = { ...world, id: 1, ranks: [0] };
  for (const [number, comm] of [world, world, some].entries()) {
    const found = await compareCaptures(comm, number, own, judge);
    expect(found).toBe(comm === some ? "w of 0" : "w of 0,w of 1");
  }
  expect(keys).toEqual(["call world 0", "call world 1", "call world 2"]);
});

test("without the store a capture is not compared; any other failure of it fails the capture", async () => {
  const failure = (code: string) => (): never => {
    throw Object.assign(new Error("planned"), { code });
  };
  const compare = (code: string) =>
    alone("off", failure(code)).compareCaptures(
      ...([world, 0, () => ({ kind: "k", details: () => "w" }), () => "they differ"] as const),
    );
  expect(await compare("ERR_COMM_RENDEZVOUS")).toBeUndefined();
  await expect(compare("ERR_COMM_ABORTED")).rejects.toThrow("planned");
});
