/**
 * The cost of one awaited call for all eight ranks together with hardly any data: matching, checking, planning,
 * virtual time and waking. Simulated, in process.
 */
import { Bench } from "tinybench";
import { type Communicator, createWorld } from "twinccl";
import { heaviestRank, skewedTraffic } from "twinccl/bench";
import { sim } from "twinccl/sim";
import { type Figure, report } from "./support/report.ts";

const ranks = 8;
/** Calls in one run of the world, so that opening and closing the run weigh little. */
const batch = 200;
const traffic = skewedTraffic(1024, ranks, 0.5, 0);

const allReduces = async (comm: Communicator): Promise<void> => {
  const send = comm.alloc("float32", 256);
  for (let i = 0; i < batch; i++) await comm.allReduce({ send, op: "sum" });
};

const programs: readonly {
  readonly name: string;
  readonly goal?: number;
  /** Runs under NCCL's plan instead of the ring of the catalogue. */
  readonly followsNccl?: boolean;
  readonly program: (comm: Communicator) => Promise<void>;
}[] = [
  {
    name: "all-reduce, float32, 1 KiB, ring, in place",
    goal: 60,
    program: allReduces,
  },
  {
    name: "all-reduce, float32, 1 KiB, NCCL's plan, in place",
    goal: 60,
    followsNccl: true,
    program: allReduces,
  },
  {
    name: `all-to-allv, float32, skewed, at most ${heaviestRank(traffic) * 4} B a rank, counts given`,
    program: async (comm) => {
      const sendCounts = traffic[comm.rank]!;
      const recvCounts = traffic.map((row) => row[comm.rank]!);
      const send = comm.alloc("float32", 2048);
      const recv = comm.alloc("float32", 2048);
      for (let i = 0; i < batch; i++) await comm.allToAllv({ send, recv, sendCounts, recvCounts });
    },
  },
  {
    name: "all-to-allv, the same, counts exchanged",
    program: async (comm) => {
      const sendCounts = traffic[comm.rank]!;
      const send = comm.alloc("float32", 2048);
      const recv = comm.alloc("float32", 2048);
      for (let i = 0; i < batch; i++) await comm.allToAllv({ send, recv, sendCounts });
    },
  },
  {
    name: "barrier",
    program: async (comm) => {
      for (let i = 0; i < batch; i++) await comm.barrier();
    },
  },
];

const bench = new Bench({ time: 2000, warmupTime: 500 });
const world = await createWorld({
  backend: sim({ algorithms: { allReduce: "ring" } }),
  size: ranks,
});
const ncclWorld = await createWorld({ backend: sim({ like: "nccl-2.28" }), size: ranks });
for (const { name, program, followsNccl = false } of programs) {
  // An async function by its form: tinybench would call another one once, unawaited, to find out.
  bench.add(name, async () => {
    await (followsNccl ? ncclWorld : world).run(program);
  });
}
await bench.run();
await world.close();
await ncclWorld.close();

const figures = bench.tasks.map((task, index): Figure => {
  const { result } = task;
  if (result.state === "errored") throw result.error;
  if (!("latency" in result)) throw new Error(`${task.name}: ${result.state}`);
  const perCall = (ms: number): number => (ms * 1000) / batch;
  const { p50, min, max, samplesCount } = result.latency;
  const goal = programs[index]?.goal;
  return {
    name: task.name,
    unit: "µs",
    value: perCall(p50),
    least: perCall(min),
    most: perCall(max),
    samples: samplesCount,
    ...(goal !== undefined && { goal }),
  };
});
report("small-calls", figures);
