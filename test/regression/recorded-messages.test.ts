/** Recorded messages: as many on each rank as it has, on every backend. */
import { CollectiveMismatchError, type Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { inWorld } from "../support/in-world.ts";
import { TcpJob } from "../support/tcp-jobs.ts";
import { cleanGpus, inWorld as onGpus } from "../unit/backends/nccl/gpus.ts";
import { closeAll, joinAll, onAll } from "../unit/backends/nccl/job/joined.ts";

const ROUNDS = 3;

/**
 * Three stages of a pipeline: the ends have two messages, the middle four. The sum of all is the second call of the ends and the
 * third of the middle.
 */
async function pipeline(comm: Communicator, isReplayed: boolean): Promise<number[]> {
  const { rank, size } = comm;
  const there = comm.alloc("int32", 2);
  const back = comm.alloc("int32", 2);
  const sum = comm.alloc("int32", 1);
  const [isFirst, isLast] = [rank === 0, rank === size - 1];
  const calls = (): void => {
    if (!isFirst) void comm.recv({ recv: there, peer: rank - 1 });
    if (!isLast) void comm.send({ send: there, peer: rank + 1 });
    void comm.allReduce({ send: sum, op: "sum" });
    if (!isLast) void comm.recv({ recv: back, peer: rank + 1 });
    if (!isFirst) void comm.send({ send: isLast ? there : back, peer: rank - 1 });
  };
  const graph = isReplayed ? await comm.capture(calls) : undefined;
  const results: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    if (isFirst) there.fill(10 + round);
    sum.fill(rank + round);
    if (graph === undefined) calls();
    else await graph.replay();
    for (const buffer of [there, back, sum]) results.push(...(await buffer.toHost()));
  }
  graph?.dispose();
  for (const buffer of [there, back, sum]) buffer.dispose();
  return results;
}

const expected = (rank: number): number[] =>
  Array.from({ length: ROUNDS }, (_, round) => {
    const value = 10 + round;
    // The last stage sends back what it got.
    const back = rank === 2 ? 0 : value;
    return [value, value, back, back, 3 + 3 * round];
  }).flat();

describe("a capture of a pipeline's stages was refused, since their numbers of messages differ", () => {
  test("on the simulation", async () => {
    for (const isReplayed of [true, false]) {
      const results = await inWorld(3, (comm) => pipeline(comm, isReplayed));
      expect(results).toEqual([0, 1, 2].map(expected));
    }
  });

  test("on GPUs in one process", async () => {
    const results = await onGpus(cleanGpus(), 3, (world) =>
      world.run((comm) => pipeline(comm, true)),
    );
    expect(results).toEqual([0, 1, 2].map(expected));
  });

  test("on GPUs with a process for each rank, calls compared", async () => {
    const joined = await joinAll(3, "always");
    const results = await onAll(joined, ({ comm }) => pipeline(comm, true));
    expect(results).toEqual([0, 1, 2].map(expected));
    await closeAll(joined);
  });
});

type RunRanks = (
  size: number,
  program: (comm: Communicator) => PromiseLike<unknown>,
) => Promise<unknown[]>;

const onJoined =
  (compare: "off" | "once" | "always"): RunRanks =>
  async (size, program) => {
    const joined = await joinAll(size, compare);
    const results = await onAll(joined, ({ comm }) => program(comm));
    await closeAll(joined);
    return results;
  };

const subjects: Readonly<Record<string, RunRanks>> = {
  "on the simulation": inWorld,
  "on GPUs in one process": (size, program) =>
    onGpus(cleanGpus(), size, (world) => world.run(program)),
  "on GPUs with a process for each rank": onJoined("off"),
  "on GPUs with a process for each rank, kinds compared": onJoined("once"),
  "on GPUs with a process for each rank, calls compared": onJoined("always"),
  "on tcp": async (size, program) => {
    const job = await TcpJob.open(size);
    try {
      return await job.each(program);
    } finally {
      await job.close();
    }
  },
};

/** Captures in which an end of a message is missing or differs, and the error of every rank. */
const halves: readonly {
  readonly name: string;
  readonly record: (comm: Communicator) => void;
  readonly expected: object;
}[] = [
  {
    name: "a send without its receive",
    record: (comm) => {
      const data = comm.alloc("int32", 2);
      if (comm.rank === 1) void comm.send({ send: data, peer: 2 });
      void comm.sendRecv({ send: data, recv: comm.alloc("int32", 2), to: 0, from: 0 });
      if (comm.rank > 0) return;
      for (const peer of [1, 2]) {
        void comm.recv({ recv: data, peer });
        void comm.send({ send: data, peer });
      }
    },
    expected: {
      ...{ field: "messages", ranks: [1, 2] },
      values: ["-", "send int32[2]", "no receive"],
      message: expect.stringContaining(
        "message 1 from rank 1 to rank 2 is recorded at one end alone",
      ),
    },
  },
  {
    name: "a second receive without its send",
    record: (comm) => {
      const data = comm.alloc("int32", 1);
      const [next, last] = [(comm.rank + 1) % comm.size, (comm.rank + comm.size - 1) % comm.size];
      void comm.sendRecv({ send: data, recv: comm.alloc("int32", 1), to: next, from: last });
      if (comm.rank === 0) void comm.recv({ recv: data, peer: last });
    },
    expected: {
      ...{ field: "messages", ranks: [0, 2], values: ["receive int32[1]", "-", "no send"] },
      message: expect.stringContaining("message 2 from rank 2 to rank 0"),
    },
  },
  {
    name: "a message to the own rank without its receive",
    record: (comm) => {
      const { rank } = comm;
      const [send, recv] = [comm.alloc("int32", 1), comm.alloc("int32", 1)];
      void comm.sendRecv({ send, recv, to: rank, from: rank });
      if (rank === 0) void comm.send({ send, peer: 1 });
      if (rank === 1) void comm.sendRecv({ send, recv, to: 1, from: 0 });
    },
    expected: {
      ...{ field: "messages", ranks: [1], values: ["-", "send int32[1], no receive", "-"] },
    },
  },
  {
    name: "other lengths in a group",
    record: (comm) => {
      const [next, last] = [(comm.rank + 1) % comm.size, (comm.rank + comm.size - 1) % comm.size];
      void comm.group(() => {
        void comm.send({ send: comm.alloc("float32", 4), peer: next });
        void comm.recv({ recv: comm.alloc("float32", comm.rank === 1 ? 3 : 4), peer: last });
      });
    },
    expected: {
      ...{ field: "count", ranks: [0, 1] },
      values: ["send float32[4]", "receive float32[3]", "-"],
    },
  },
  {
    name: "other dtypes, behind a collective call",
    record: (comm) => {
      const [next, last] = [(comm.rank + 1) % comm.size, (comm.rank + comm.size - 1) % comm.size];
      void comm.barrier();
      const recv = comm.rank === 0 ? comm.alloc("float32", 1) : comm.alloc("int32", 1);
      void comm.group(() => {
        void comm.send({ send: comm.alloc("int32", 1), peer: next });
        void comm.recv({ recv, peer: last });
      });
    },
    expected: {
      ...{ field: "dtype", ranks: [0, 2], values: ["receive float32[1]", "-", "send int32[1]"] },
    },
  },
];

describe.each(Object.entries(subjects))("%s", (_, run) => {
  test.each(halves)("$name is refused by the capture, on every rank", async (half) => {
    const found = await run(3, async (comm) => {
      const error = await comm
        .capture(() => half.record(comm))
        .then(
          () => undefined,
          (caught: unknown) => caught,
        );
      // Nothing is left of it: the ranks are in step.
      const sum = comm.alloc("int32", 1).fill(comm.rank + 1);
      await comm.allReduce({ send: sum, op: "sum" });
      return [error, (await sum.toHost())[0]];
    });
    for (const [rank, outcome] of found.entries()) {
      const facts = { code: "ERR_COMM_MISMATCH", rank, size: 3, collective: "capture", call: 0 };
      expect(outcome).toEqual([expect.any(CollectiveMismatchError), 6]);
      expect((outcome as unknown[])[0]).toMatchObject({ ...facts, ...half.expected });
    }
  });

  test.each([
    ["of two ranks of three", 1],
    ["of two ranks of three, alone in the capture", 0],
  ])("messages %s are recorded and replayed", async (_, barriers) => {
    const found = await run(3, async (comm) => {
      const data = comm.alloc("int32", 1).fill(comm.rank);
      const sum = comm.alloc("int32", 1);
      const record = (): void => {
        for (let i = 0; i < barriers; i++) void comm.barrier();
        if (comm.rank === 1) void comm.send({ send: data, peer: 2 });
        if (comm.rank === 2) void comm.recv({ recv: data, peer: 1 });
      };
      const [graph, other] = [await comm.capture(record), await comm.capture(record)];
      const results: number[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        if (comm.rank === 1) data.fill(10 + round);
        await (round === 1 ? other : graph).replay();
        sum.fill(comm.rank + 1);
        await comm.allReduce({ send: sum, op: "sum" });
        for (const buffer of [data, sum]) results.push(...(await buffer.toHost()));
      }
      return results;
    });
    const received = [10, 6, 11, 6, 12, 6];
    expect(found).toEqual([[0, 6, 0, 6, 0, 6], received, received]);
  });

  test("a half of a split's ranks is compared alone", async () => {
    const found = await run(4, async (comm) => {
      const half = await comm.split({ color: comm.rank % 2 });
      const data = half.alloc("int32", 1).fill(comm.rank);
      const captured = half.capture(() => {
        if (half.rank === 0) void half.send({ send: data, peer: 1 });
        else void half.recv({ recv: data, peer: 0 });
        if (comm.rank === 1) void half.send({ send: data, peer: 1 });
      });
      const outcome = await captured.then(
        async (graph) => {
          await graph.replay();
          return (await data.toHost())[0];
        },
        (error: { code: string }) => error.code,
      );
      await half.close();
      return outcome;
    });
    expect(found).toEqual([0, "ERR_COMM_MISMATCH", 0, "ERR_COMM_MISMATCH"]);
  });
});
