/** Recordings: a replay does what the recorded calls would do, on what the buffers hold then. */
import { type CommError, type Communicator, connect, createWorld, type Graph } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";
import type { Operation } from "../../../src/api/op.ts";
import { inWorld } from "../../support/in-world.ts";

const ints = (...values: number[]): Int32Array => Int32Array.from(values);

/** Memory for every collective on three ranks. */
function memory({ rank }: Communicator) {
  const fill = (length: number, scale: number) =>
    Int32Array.from({ length }, (_, i) => scale * (rank + 1) + i) as Int32Array;
  return { a: fill(6, 3), b: fill(6, 5), c: fill(2, 7), d: fill(rank + 1, 11), e: fill(6, 13) };
}

type Memory = ReturnType<typeof memory>;
type Step = (comm: Communicator, memory: Memory) => PromiseLike<unknown>;

const only = (comm: Communicator, rank: number, args: object): object =>
  comm.rank === rank ? args : {};

const steps: readonly (readonly [string, Step])[] = [
  ["allReduce", (comm, { a }) => comm.allReduce({ send: a, op: "sum" })],
  [
    "reduce",
    (comm, { a, b }) => comm.reduce({ send: a, op: "max", root: 1, ...only(comm, 1, { recv: b }) }),
  ],
  ["broadcast", (comm, { b }) => comm.broadcast({ recv: b, root: 2 })],
  ["allGather", (comm, { c, e }) => comm.allGather({ send: c, recv: e })],
  ["allGatherv", (comm, { d, e }) => comm.allGatherv({ send: d, recv: e, recvCounts: [1, 2, 3] })],
  ["reduceScatter", (comm, { a, c }) => comm.reduceScatter({ send: a, recv: c, op: "min" })],
  [
    "reduceScatterv",
    (comm, { e, d }) =>
      comm.reduceScatterv({ send: e, recv: d, op: "prod", sendCounts: [1, 2, 3] }),
  ],
  ["allToAll", (comm, { a, b }) => comm.allToAll({ send: a, recv: b })],
  [
    "allToAllv",
    (comm, { a, e }) =>
      comm.allToAllv({ send: a, recv: e, sendCounts: [2, 2, 2], recvCounts: [2, 2, 2] }),
  ],
  [
    "gather",
    (comm, { c, e }) => comm.gather({ send: c, root: 0, ...only(comm, 0, { recv: e }) } as never),
  ],
  [
    "scatter",
    (comm, { a, c }) => comm.scatter({ recv: c, root: 1, ...only(comm, 1, { send: a }) } as never),
  ],
  ["barrier", (comm) => comm.barrier()],
  [
    "sendRecv",
    (comm, { a, b }) =>
      comm.sendRecv({ send: a, recv: b, to: (comm.rank + 1) % 3, from: (comm.rank + 2) % 3 }),
  ],
];

/** The memory of all ranks after some rounds of steps, made directly or replayed. */
function outcome(chosen: readonly Step[], rounds: number, replayed: boolean) {
  return inWorld(3, async (comm) => {
    const own = memory(comm);
    const record = () => {
      for (const step of chosen) void step(comm, own);
    };
    const graph = replayed ? await comm.capture(record) : undefined;
    for (let round = 0; round < rounds; round++) {
      if (graph !== undefined) await graph.replay();
      else for (const step of chosen) await step(comm, own);
      own.a[round] = 100 * round + comm.rank;
    }
    return Object.values(own).map((array) => [...array]);
  });
}

describe("capture and replay", () => {
  test.each(steps)("%s: equals direct calls, twice", async (_, step) => {
    expect(await outcome([step], 2, true)).toEqual(await outcome([step], 2, false));
  });

  test("all calls in a row equal direct calls, three times, with the message at any position", async () => {
    const all = steps.map(([, step]) => step);
    const message = all.pop() as Step;
    for (let place = 0; place <= all.length; place += 3) {
      const chosen = all.toSpliced(place, 0, message);
      expect(await outcome(chosen, 3, true)).toEqual(await outcome(chosen, 3, false));
    }
  });

  test("a message before a collective call stays before it", async () => {
    const chosen = [steps.at(-1)?.[1] as Step, steps[2]?.[1] as Step];
    expect(await outcome(chosen, 1, true)).toEqual(await outcome(chosen, 1, false));
  });

  test("a recorded message forwards earlier received data in a replay", async () => {
    const relay = (replayed: boolean) =>
      inWorld(3, async (comm) => {
        const data = ints(comm.rank + 1);
        // From rank 2 over rank 1 to rank 0.
        const record = () => {
          if (comm.rank < 2) void comm.recv({ recv: data, peer: comm.rank + 1 });
          if (comm.rank > 0) void comm.send({ send: data, peer: comm.rank - 1 });
        };
        if (replayed) await (await comm.capture(record)).replay();
        else record();
        await comm.barrier();
        return data[0];
      });
    expect(await relay(true)).toEqual(await relay(false));
  });

  test("a recorded group stays a group: its messages match freely, between earlier and later calls", async () => {
    const grouped = (replayed: boolean) =>
      inWorld(3, async (comm) => {
        const own = memory(comm);
        const others = [0, 1, 2].filter((peer) => peer !== comm.rank);
        const record = () => {
          void comm.broadcast({ recv: own.a, root: 1 });
          void comm.group(() => {
            // All send first, which only a group allows.
            for (const peer of others) void comm.send({ send: own.a.subarray(peer, 6), peer });
            void comm.group(() => {
              for (const peer of others) {
                const recv = (peer === others[0] ? own.b : own.e).subarray(comm.rank);
                void comm.recv({ recv, peer });
              }
            });
          });
          void comm.allReduce({ send: own.b, op: "sum" });
        };
        if (replayed) {
          const graph = await comm.capture(record);
          for (let round = 0; round < 2; round++) await graph.replay();
        } else for (let round = 0; round < 2; round++) record();
        await comm.barrier();
        return Object.values(own).map((array) => [...array]);
      });
    expect(await grouped(true)).toEqual(await grouped(false));
  });

  test("reads the buffers at the replay, in device and host memory", async () => {
    const results = await inWorld(2, async (comm) => {
      const device = comm.alloc("int32", 1);
      const host = ints(0);
      const graph = await comm.capture(() => {
        void comm.allReduce({ send: device, op: "sum" });
        void comm.allReduce({ send: host, op: "max" });
      });
      const seen: unknown[] = [];
      for (const value of [1, 10, 100]) {
        device.fill(value);
        host[0] = value + comm.rank;
        await graph.replay();
        seen.push((await device.toHost())[0], host[0]);
      }
      return seen;
    });
    expect(results).toEqual(new Array(2).fill([2, 2, 20, 11, 200, 101]));
  });

  test("a recording executes no call and counts as one call", async () => {
    const results = await inWorld(2, async (comm) => {
      const data = ints(comm.rank);
      const op = comm.capture(() => void comm.allReduce({ send: data, op: "sum" }));
      const graph = await op;
      const calls = { ...comm.stats().calls };
      const kept = data[0];
      const replay = graph.replay();
      await replay;
      return [op.call, calls, kept, replay.call, comm.stats().calls];
    });
    const calls = { capture: 1 };
    expect(results).toEqual([0, 1].map((rank) => [0, calls, rank, 1, { capture: 1, replay: 1 }]));
  });

  test("a replay of an empty recording waits for no rank and is not counted", async () => {
    const results = await inWorld(2, async (comm) => {
      const empty = await comm.capture(() => undefined);
      if (comm.rank === 0) for (let i = 0; i < 3; i++) await empty.replay();
      return comm.stats().calls;
    });
    expect(results).toEqual([{ capture: 1 }, { capture: 1 }]);
  });

  test("an empty recording replays at once; replays without an await in between stay in order", async () => {
    const results = await inWorld(2, async (comm) => {
      const empty = await comm.capture(() => undefined);
      await empty.replay();
      const data = ints(1);
      const graph = await comm.capture(() => void comm.allReduce({ send: data, op: "sum" }));
      await Promise.all([graph.replay(), graph.replay(), comm.barrier(), graph.replay()]);
      return data[0];
    });
    expect(results).toEqual([8, 8]);
  });

  test("a recording works in a later run", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const graphs = await world.run(async (comm) => {
      const data = ints(comm.rank + 1);
      const graph = await comm.capture(() => void comm.allReduce({ send: data, op: "sum" }));
      await graph.replay();
      return { graph, data };
    });
    expect(graphs.map(({ data }) => data[0])).toEqual([3, 3]);
    await world.run((comm) => graphs[comm.rank]?.graph.replay());
    expect(graphs.map(({ data }) => data[0])).toEqual([6, 6]);
    await world.close();
  });

  test("the bytes of its calls count at every replay", async () => {
    const [bytes] = await inWorld(2, async (comm) => {
      const data = comm.alloc("int32", 5);
      const graph = await comm.capture(() => {
        void comm.allReduce({ send: data, op: "sum" });
        void comm.allReduce({ send: data.subarray(0, 2), op: "max" });
      });
      const before = comm.stats().sendBytes;
      await graph.replay();
      await graph.replay();
      return [before, comm.stats().sendBytes];
    });
    expect(bytes).toEqual([0, 2 * 28]);
  });

  test("strict mode watches buffers of recorded calls", async () => {
    let written = (): void => undefined;
    const isWritten = new Promise<void>((resolve) => {
      written = resolve;
    });
    const outcomes = await inWorld(
      2,
      async (comm) => {
        const [data, other] = [comm.alloc("int32", 4), comm.alloc("int32", 4)];
        const graph = await comm.capture(() => {
          void comm.allReduce({ send: data, recv: other, op: "sum" });
          void comm.allReduce({ send: other, op: "max" });
        });
        await graph.replay();
        // Two in a row: what the first one writes was lent to the second.
        await Promise.all([graph.replay(), graph.replay()]);
        if (comm.rank === 1) await isWritten;
        const late = graph.replay();
        if (comm.rank === 0) {
          data.fill(7);
          written();
        }
        return late.then(
          () => "fine",
          (error: unknown) => (error as Error).message,
        );
      },
      sim({ strict: true }),
    );
    expect(outcomes[0]).toMatch(/rank 0 wrote it while it was lent/);
  });

  test("several graphs, and graphs of subgroups, are independent", async () => {
    const results = await inWorld(4, async (comm) => {
      const sub = await comm.split({ color: comm.rank % 2 });
      const [a, b] = [ints(1), ints(comm.rank)];
      const sum = await comm.capture(() => void comm.allReduce({ send: a, op: "sum" }));
      const max = await sub.capture(() => void sub.allReduce({ send: b, op: "max" }));
      for (let round = 0; round < 2; round++) await sum.replay();
      await max?.replay();
      return [a[0], b[0]];
    });
    expect(results).toEqual([
      [16, 2],
      [16, 3],
      [16, 2],
      [16, 3],
    ]);
  });

  /** The lines of the trace of a program on four ranks, made directly or recorded and replayed twice. */
  async function traceOf(replayed: boolean, program: (comm: Communicator) => void) {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ trace }), size: 4 });
    await world.run(async (comm) => {
      const graph = replayed ? await comm.capture(() => program(comm)) : undefined;
      for (let round = 0; round < 2; round++) {
        if (graph === undefined) program(comm);
        else void graph.replay();
      }
      await comm.barrier();
    });
    await world.close();
    // A replay is one call, with a number of its own; after it the ranks go on in another order.
    return trace
      .toText()
      .replaceAll(/ call=\d+/g, "")
      .split("\n")
      .sort();
  }

  test("a replay takes the virtual time of its calls", async () => {
    const program = (comm: Communicator) =>
      void comm.allReduce({ send: new Float32Array(1000), op: "sum" });
    const direct = await traceOf(false, program);
    expect(direct.filter((line) => / done /.test(line))).toHaveLength(12);
    expect(await traceOf(true, program)).toEqual(direct);
  });

  test("recorded work takes its time between the calls of every replay, and none in the recording", async () => {
    const program = (comm: Communicator) => {
      void comm.allReduce({ send: new Float32Array(1000), op: "sum" });
      comm.work(700 * comm.rank, "first");
      void comm.group(() => {
        void comm.barrier();
        comm.work(90_000, "second");
      });
      comm.work(5000, "third");
    };
    const direct = await traceOf(false, program);
    expect(direct.filter((line) => / work /.test(line))).toHaveLength(2 * 4 * 3);
    expect(await traceOf(true, program)).toEqual(direct);
  });

  test("a replay behind an earlier call counts its work from its own start", async () => {
    /** The duration of two rounds with calls that can begin as far apart, though rank 1 replays later in the second. */
    const rounds = async (trace?: Trace) => {
      const backend = sim({
        link: { latencyNs: 1000, gigabytesPerSecond: 1 },
        ...(trace && { trace }),
      });
      const world = await createWorld({ backend, size: 2 });
      const [, ends] = await world.run(async (comm) => {
        const long = comm.alloc("uint8", 100_000);
        const graph = await comm.capture(() => {
          comm.work(comm.rank * 80_000);
          void comm.barrier();
        });
        const found: number[] = [];
        for (const [startPs, laterNs] of [
          [1e9, 0],
          [2e9, 60_000],
        ] as const) {
          const before = comm.barrier() as Operation<void>;
          await before;
          comm.work((startPs - before.finishedAtPs) / 1000);
          void comm.allReduce({ send: long, op: "max" });
          comm.work(comm.rank * laterNs);
          const op = graph.replay() as Operation<void>;
          await op;
          found.push(op.finishedAtPs - startPs);
        }
        return found;
      });
      await world.close();
      return ends as number[];
    };
    const [early, late] = await rounds();
    expect(late).toBeGreaterThan(early as number);
    expect([early, late]).toEqual(await rounds(new Trace()));
  });

  test("work in a group precedes its calls, which are posted at the end of the group", async () => {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ trace }), size: 2 });
    await world.run((comm) =>
      comm.group(() => {
        void comm.barrier();
        comm.work(4000);
      }),
    );
    await world.close();
    expect(trace.toText()).toMatch(/^0 work rank=\d until=4000000 work\n0 work .*\n4000000 post /);
  });
});

describe("a disposed recording", () => {
  const failure = (graph: Graph): Promise<string> =>
    graph.replay().then(
      () => "replayed",
      (error: unknown) => (error as CommError).code,
    );

  test("completes earlier replays, and refuses later ones", async () => {
    const found = await inWorld(3, async (comm) => {
      const data = ints(1);
      const graph = await comm.capture(() => {
        void comm.allReduce({ send: data, op: "sum" });
        void comm.sendRecv({ send: data, recv: ints(0), to: comm.rank, from: comm.rank });
      });
      const last = graph.replay();
      expect(graph.disposed).toBe(false);
      graph[Symbol.dispose]();
      const refused = await failure(graph);
      await last;
      return [graph.disposed, refused, data[0]];
    });
    for (const each of found) expect(each).toEqual([true, "ERR_COMM_CLOSED", 3]);
  });

  test("ends with the world, also for recordings of splits", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const graphs = await world.run(async (comm) => {
      const half = await comm.split({ color: 0 });
      return Promise.all([comm, half].map((on) => on.capture(() => void on.barrier())));
    });
    const disposed = () => graphs.flat().map((graph) => graph.disposed);
    expect(disposed()).toEqual([false, false, false, false]);
    await world.close();
    expect(disposed()).toEqual([true, true, true, true]);
    for (const graph of graphs.flat()) expect(await failure(graph)).toBe("ERR_COMM_CLOSED");
  });

  test("ends with a connected communicator, for recordings of its splits", async () => {
    const comm = await connect({ backend: sim() });
    const half = await comm.split({ color: 0 });
    const graph = await half.capture(() => void half.barrier());
    await comm.close();
    expect(graph.disposed).toBe(true);
    expect(await failure(graph)).toBe("ERR_COMM_CLOSED");
  });

  test("by closing stays disposed when another run reuses the communicator", async () => {
    const world = await createWorld({ backend: sim(), size: 2 });
    const record = (comm: Communicator) =>
      comm.capture(() => {
        void comm.barrier();
      });
    const [old] = await world.run(async (comm) => {
      const graph = await record(comm);
      await comm.close();
      return graph;
    });
    const found = await world.run(async (comm) => {
      const graph = await record(comm);
      await graph.replay();
      return [graph.disposed, comm.rank === 0 ? await failure(old as Graph) : undefined];
    });
    expect(found).toEqual([
      [false, "ERR_COMM_CLOSED"],
      [false, undefined],
    ]);
    await world.close();
  });
});
