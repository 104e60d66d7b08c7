/** A collective goes to the device in one submit, however many folds it is made of. */
import { type Communicator, createWorld } from "twinccl";
import { cpu, sim } from "twinccl/sim";
import { expect, test } from "vitest";
import { describeWebgpu, sharedDevice, sharedExecutor } from "../support/webgpu.ts";

const size = 5;
const count = 1_200;
const counts = [400, 0, 3, 700, 97];
type Call = (comm: Communicator, data: ReturnType<typeof dataOf>) => PromiseLike<unknown>;

const dataOf = (comm: Communicator) => ({
  send: comm.alloc("float16", size * count).fill(comm.rank + 0.5),
  recv: comm.alloc("float16", size * count),
});

const atRoot = ({ rank }: Communicator, root: number) => rank === root;

const calls: Readonly<Record<string, Call>> = {
  allReduce: (comm, { send, recv }) => comm.allReduce({ send, recv, op: "sum" }),
  "allReduce in place": (comm, { send }) => comm.allReduce({ send, op: "avg" }),
  reduce: (comm, { send, recv }) =>
    comm.reduce({ send, ...(atRoot(comm, 2) ? { recv } : {}), op: "max", root: 2 }),
  reduceScatter: (comm, { send, recv }) =>
    comm.reduceScatter({ send, recv: recv.subarray(0, count), op: "sum" }),
  reduceScatterv: (comm, { send, recv }) =>
    comm.reduceScatterv({
      send: send.subarray(0, count),
      recv: recv.subarray(0, counts[comm.rank]),
      sendCounts: counts,
      op: "sum",
    }),
  broadcast: (comm, { send, recv }) =>
    comm.broadcast({ ...(atRoot(comm, 1) ? { send } : { recv }), root: 1 }),
  allGather: (comm, { send, recv }) => comm.allGather({ send: send.subarray(0, count), recv }),
  allToAll: (comm, { send, recv }) => comm.allToAll({ send, recv }),
};

/** The number of submissions to the shared device's queue during `act`. */
async function submitsOf(act: () => Promise<unknown>): Promise<number> {
  const { queue } = await sharedDevice();
  const submit = queue.submit.bind(queue);
  let submits = 0;
  queue.submit = (buffers) => {
    submits++;
    return submit(buffers);
  };
  try {
    await act();
  } finally {
    queue.submit = submit;
  }
  return submits;
}

describeWebgpu("on a device", () => {
  test.each(Object.entries(calls))("%s is one submit, first and again", async (_, call) => {
    const executor = await sharedExecutor();
    const world = await createWorld({ backend: sim({ executor }), size });
    const data = await world.run(dataOf);
    const act = () => world.run((comm) => call(comm, data[comm.rank] as ReturnType<typeof dataOf>));
    expect(await submitsOf(act)).toBe(1);
    expect(await submitsOf(act)).toBe(1);
    await world.close();
  });

  test("many roots with host arrays, in any order in one memory, are one submit and right", async () => {
    const ranks = 8;
    const blocks = [5, 0, 61, 2, 1, 333, 4, 17];
    const total = blocks.reduce((sum, each) => sum + each, 0);
    const run = async (backend: ReturnType<typeof sim>) => {
      const memory = new Uint8Array(ranks * (total + 340)).map((_, i) => (i * 37) % 251);
      const world = await createWorld({ backend, size: ranks });
      // What the last rank sends comes first, what it receives last.
      const at = (rank: number) => (ranks - 1 - rank) * total;
      const act = () =>
        world.run((comm) => {
          const send = memory.subarray(at(comm.rank), at(comm.rank) + total);
          const begin = ranks * total + comm.rank * 340;
          const recv = memory.subarray(begin, begin + (blocks[comm.rank] as number));
          return comm.reduceScatterv({ send, recv, sendCounts: blocks, op: "sum" });
        });
      const submits = await submitsOf(act);
      await world.close();
      return { memory: Buffer.from(memory).toString("hex"), submits };
    };
    const own = await run(sim({ executor: await sharedExecutor() }));
    const reference = await run(sim({ executor: cpu() }));
    expect(own.memory).toBe(reference.memory);
    expect(own.submits).toBe(1);
  });

  test("calls of a replay read earlier results, in arrays too, in a submit each at most", async () => {
    const run = async (backend: ReturnType<typeof sim>) => {
      const world = await createWorld({ backend, size });
      const kept = await world.run(async (comm) => {
        const given = Uint8Array.from({ length: 3 * size + 1 }, (_, i) => 7 * i + comm.rank);
        const own = comm.alloc("uint8", 3 * size + 1).fill(comm.rank);
        const sums = given.subarray(1);
        const graph = await comm.capture(() => {
          comm.allReduce({ send: sums, op: "sum" });
          comm.allToAll({ send: sums, recv: own.subarray(1, 3 * size + 1) });
          comm.allReduce({ send: own, op: "max" });
        });
        await graph.replay();
        return { given, own, graph };
      });
      const submits = await submitsOf(() => world.run(({ rank }) => kept[rank]?.graph.replay()));
      const found = await world.run(async ({ rank }) => {
        const { given, own } = kept[rank] as (typeof kept)[number];
        return [[...given], [...(await own.toHost())]];
      });
      await world.close();
      return { found, submits };
    };
    const own = await run(sim({ executor: await sharedExecutor() }));
    expect(own.found).toEqual((await run(sim({ executor: cpu() }))).found);
    expect(own.submits).toBeLessThanOrEqual(3);
  });
});
