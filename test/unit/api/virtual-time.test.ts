/** Virtual time: what the closed forms say is what the clock shows, and only waiting and work move it. */

import { type Communicator, createWorld } from "twinccl";
import { sim, Trace } from "twinccl/sim";
import { describe, expect, test } from "vitest";

const latencyNs = 1500;
/** One byte takes one nanosecond. */
const link = { latencyNs, gigabytesPerSecond: 1 };

/** Times in nanoseconds at which each rank's part of each call was made and done, from the trace. */
async function timesOf(
  size: number,
  program: (comm: Communicator) => unknown,
  algorithm: "ring" | "linear" = "ring",
): Promise<{ post: number[][]; done: number[][] }> {
  const trace = new Trace();
  const backend = sim({ link, trace, algorithms: { allReduce: algorithm, broadcast: "binomial" } });
  const world = await createWorld({ backend, size });
  await world.run(program);
  await world.close();
  const times = { post: [] as number[][], done: [] as number[][] };
  for (const line of trace.toText().split("\n")) {
    const match = /^(\d+) (post|done) rank=(\d+) comm=\w+ call=(\d+) /.exec(line);
    if (match === null) continue;
    const call = Number(match[4]);
    const kind = times[match[2] as "post" | "done"];
    kind[call] ??= [];
    (kind[call] as number[])[Number(match[3])] = Number(match[1]) / 1000;
  }
  return times;
}

const reduce = (comm: Communicator, bytes: number) =>
  comm.allReduce({ send: new Uint8Array(bytes), op: "sum" });

describe("the closed forms", () => {
  test.each([2, 3, 4, 8, 13])(
    "a ring all-reduce of %i ranks takes 2(n-1)(α + S/n·β)",
    async (size) => {
      for (const perChunk of [1, 100, 4096]) {
        const { done } = await timesOf(size, (comm) => reduce(comm, size * perChunk));
        const expected = 2 * (size - 1) * (latencyNs + perChunk);
        expect(done[0]).toEqual(new Array(size).fill(expected));
      }
    },
  );

  test.each([2, 3, 5, 8, 16, 17])(
    "a broadcast on %i ranks takes about ⌈log₂ n⌉ rounds",
    async (size) => {
      const bytes = 1000;
      const { done } = await timesOf(size, (comm) =>
        comm.broadcast({ recv: new Uint8Array(bytes), root: 1 }),
      );
      const rounds = Math.ceil(Math.log2(size));
      const last = Math.max(...(done[0] as number[]));
      // At least one round's full cost, at most all of them one after another.
      expect(last).toBeGreaterThanOrEqual(latencyNs + rounds * bytes);
      expect(last).toBeLessThanOrEqual(rounds * (latencyNs + bytes));
    },
  );

  test.each([2, 3, 4, 8])(
    "an all-to-all of %i ranks takes (n-1) messages and one latency",
    async (size) => {
      const { done } = await timesOf(size, (comm) =>
        comm.allToAll({ send: new Uint8Array(size * 2000), recv: new Uint8Array(size * 2000) }),
      );
      const rounds = size - 1;
      for (const time of done[0] as number[]) {
        expect(time).toBeGreaterThanOrEqual(latencyNs + rounds * 2000);
        expect(time).toBeLessThanOrEqual(rounds * (latencyNs + 2000));
      }
    },
  );

  test.each([1, 2, 3, 8, 9])("a barrier of %i ranks takes ⌈log₂ n⌉ latencies", async (size) => {
    const { done } = await timesOf(size, (comm) => comm.barrier());
    expect(done[0]).toEqual(new Array(size).fill(Math.ceil(Math.log2(size)) * latencyNs));
  });

  test("many senders to one receiver wait for its port", async () => {
    const size = 8;
    const bytes = 10_000;
    const { done } = await timesOf(size, (comm) => {
      const sendCounts = new Array<number>(size).fill(0);
      if (comm.rank > 0) sendCounts[0] = bytes;
      const recvCounts = new Array<number>(size).fill(0);
      if (comm.rank === 0) recvCounts.fill(bytes, 1);
      const send = new Uint8Array(bytes);
      return comm.allToAllv({ send, sendCounts, recvCounts });
    });
    const [receiver] = done[0] as [number];
    expect(receiver).toBeGreaterThanOrEqual(latencyNs + (size - 1) * bytes);
    expect(receiver).toBeLessThan(latencyNs + (size - 1) * bytes + size * latencyNs);
  });

  test("one sender to many receivers waits for its own port", async () => {
    const size = 5;
    const bytes = 10_000;
    const { done } = await timesOf(size, (comm) => reduce(comm, bytes), "linear");
    // In: n-1 buffers through rank 0's port; out: n-1 more.
    const last = Math.max(...(done[0] as number[]));
    expect(last).toBe(2 * latencyNs + 2 * (size - 1) * bytes);
  });
});

describe("a rank's clock", () => {
  test("advances during waits only", async () => {
    const { post } = await timesOf(2, async (comm) => {
      await comm.barrier();
      await new Promise((resolve) => setTimeout(resolve, 5));
      await comm.barrier();
    });
    expect(post).toEqual([
      [0, 0],
      [latencyNs, latencyNs],
    ]);
  });

  test("advances by work, and a late rank delays the others", async () => {
    const { post, done } = await timesOf(3, async (comm) => {
      if (comm.rank === 1) comm.work(70_000, "slow");
      await comm.barrier();
      comm.work(0);
      await comm.barrier();
    });
    expect(post[0]).toEqual([0, 70_000, 0]);
    for (const time of done[0] as number[]) expect(time).toBeGreaterThanOrEqual(70_000 + latencyNs);
    expect(post[1]).toEqual(done[0]);
  });

  test("refuses invalid work", async () => {
    const world = await createWorld({ backend: sim(), size: 1 });
    await world.run((comm) => {
      for (const duration of [-1, Number.NaN, Infinity, 1e307, "1", undefined]) {
        expect(() => comm.work(duration as number), String(duration)).toThrowError(
          expect.objectContaining({ code: "ERR_COMM_ARG", field: "durationNs" }),
        );
      }
    });
    await world.close();
  });

  test("refuses labels that are not strings, also in a recording", async () => {
    const world = await createWorld({ backend: sim({ link }), size: 1 });
    await world.run(async (comm) => {
      for (const label of [3, null, {}, Symbol("slow")]) {
        const work = (): void => comm.work(1, label as string);
        const refusal = expect.objectContaining({ code: "ERR_COMM_ARG", field: "label" });
        expect(work).toThrow(refusal);
        await expect(comm.capture(work)).rejects.toEqual(refusal);
      }
    });
    await world.close();
  });

  test("is written in lines, with any names and labels", async () => {
    const trace = new Trace();
    const name = "one\ntwo";
    const world = await createWorld({ backend: sim({ link, trace }), size: 1, name });
    await world.run(async (comm) => {
      comm.work(1, "slow\r\n0 done\u2028\u0007 é");
      await comm.barrier();
    });
    await world.close();
    const lines = trace.toText().split("\n");
    expect(lines).toHaveLength(trace.length + 1);
    expect(lines[0]).toBe("0 work rank=0 until=1000 slow\\u000d\\u000a0 done\\u2028\\u0007 é");
    expect(lines[2]).toMatch(/^1000 done rank=0 comm=one\\u000atwo call=0 barrier /);
  });

  test("runs calls of one communicator one after another, also if they are awaited later", async () => {
    const size = 4;
    const alone = 2 * (size - 1) * (latencyNs + 1000);
    const { done } = await timesOf(size, async (comm) => {
      const ops = [reduce(comm, size * 1000), reduce(comm, size * 1000)];
      await Promise.all(ops);
    });
    for (const time of done[1] as number[]) {
      expect(time, "the second call ends after both").toBeGreaterThanOrEqual(alone + 1000);
    }
  });

  test("continues from run to run", async () => {
    const trace = new Trace();
    const world = await createWorld({ backend: sim({ link, trace }), size: 2 });
    await world.run((comm) => comm.barrier());
    await world.run((comm) => comm.barrier());
    await world.close();
    const posts = [...trace.toText().matchAll(/^(\d+) post /gm)].map((match) => Number(match[1]));
    expect(posts).toEqual([0, 0, 1000 * latencyNs, 1000 * latencyNs]);
  });
});
