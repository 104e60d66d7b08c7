/** Communicators with streams of their own in a job: a call of them that waits for another process delays nothing else. */
import type { Communicator } from "twinccl";
import { describe, expect, test } from "vitest";
import { quickTime } from "../../../../support/quick-time.ts";
import { ofItsOwn, stateOf, sum } from "../calls/streams.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, closeRest, errorOf, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

/** Two ranks with a communicator that has its own streams; both have met on it and on the first one. */
async function connected(gpus = cleanGpus()) {
  const ranks = (await joinAll(2, undefined, gpus)) as [Joined, Joined];
  const own = (await onAll(ranks, ({ comm }) => ofItsOwn(comm))) as [Communicator, Communicator];
  await onAll(ranks, ({ comm }) => Promise.all([sum(comm), sum(own[comm.rank] as Communicator)]));
  return { gpus, ranks, own };
}

test("a call that another process has not made delays no call of another communicator", async () => {
  const { ranks, own } = await connected();
  const early = sum(own[0]);
  for (let time = 0; time < 3; time++) await onAll(ranks, ({ comm }) => sum(comm));
  expect(await stateOf(early)).toBe("pending");
  const late = sum(own[1]);
  expect([...(await (await early).toHost())]).toEqual([3]);
  await late;
  await closeAll(ranks);
});

test("processes that make calls in opposite orders complete them", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, undefined, gpus);
  await onAll(ranks, async ({ comm }) => {
    const [a, b] = [await ofItsOwn(comm), await ofItsOwn(comm)];
    for (let time = 0; time < 3; time++) {
      const calls = [a, b].map((each) => () => sum(each));
      if (comm.rank === 1) calls.reverse();
      const found = await Promise.all(calls.map((call) => call()));
      for (const buffer of found) expect([...(await buffer.toHost())]).toEqual([3]);
    }
  });
  await closeAll(ranks);
});

const exchanging: readonly [string, (comm: Communicator) => PromiseLike<unknown>][] = [
  ["a split", (comm) => comm.split({ color: 0 })],
  ["a split with streams of its own", ofItsOwn],
  [
    "an all-to-allv without counts",
    (comm) => comm.allToAllv({ send: comm.alloc("int32", 2), sendCounts: [1, 1] }),
  ],
  [
    "an all-to-allv with counts that allocates its result",
    (comm) => {
      const send = comm.alloc("int32", 2);
      return comm.allToAllv({ send, sendCounts: [1, 1], recvCounts: [1, 1] });
    },
  ],
];
describe.each(exchanging)("%s waits for no call that its rank makes behind it", (_, call) => {
  test.each(["connected", "new"])("on a communicator that is %s", async (state) => {
    const { ranks, own } = await connected();
    const used =
      state === "connected"
        ? own
        : await onAll(ranks, async ({ comm }) => ofItsOwn(own[comm.rank] as Communicator));
    const results = await onAll(ranks, async ({ comm }) => {
      const op = call(used[comm.rank] as Communicator);
      if (comm.rank === 0) await op;
      const behind = sum(comm);
      // A memory operation behind that call must not delay the first one either.
      await turns(1);
      comm.alloc("int32", 1).fill(7);
      await op;
      return [...(await (await behind).toHost())];
    });
    expect(results).toEqual([[3], [3]]);
    await closeAll(ranks);
  });
});

test("a call on new streams waits for no memory operation behind it", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "once", gpus);
  await onAll(ranks, async ({ comm }) => {
    const own = await ofItsOwn(comm);
    await sum(comm);
    if (comm.rank === 1) {
      // Until then, the call of rank 0 waits for a comparison.
      await turns(20);
      expect([...(await (await sum(own)).toHost())]).toEqual([3]);
      await sum(comm);
      return;
    }
    const [op, behind] = [sum(own), sum(comm)];
    await turns(5);
    expect([op.status, behind.status]).toEqual(["waiting", "submitted"]);
    comm.alloc("int32", 1).fill(7);
    expect([...(await (await op).toHost())]).toEqual([3]);
    await behind;
  });
  await closeAll(ranks);
});

test("memory that a call may use is neither freed nor reused", async () => {
  const gpus = cleanGpus({ memoryBytes: 1 << 20 });
  const { ranks, own } = await connected(gpus);
  const [{ comm }] = ranks;
  const before = gpus.machine.count("free");
  const old = comm.alloc("uint8", 600 << 10).fill(1);
  const early = own[0].allReduce({ send: old, op: "sum" });
  await turns();
  old.dispose();
  await turns(30);
  for (const bytes of [600 << 10, 500 << 10]) {
    expect(() => comm.alloc("uint8", bytes)).toThrow(/614400 bytes that were disposed wait for/);
  }
  expect(gpus.machine.count("free")).toBe(before);
  await own[1].allReduce({ send: ranks[1].comm.alloc("uint8", 600 << 10), op: "sum" });
  expect(await errorOf(early)).toBeUndefined();
  await turns(30);
  expect(comm.alloc("uint8", 600 << 10).length).toBe(600 << 10);
  await closeAll(ranks);
});

test("a deadline ends one communicator with its stream, and no other", async () => {
  const { gpus, ranks, own } = await connected();
  const [destroyed, main] = [gpus.machine.count("streamDestroy"), ranks[0].comm];
  const early = own[0].barrier({ timeoutMs: 100 });
  expect(await errorOf(early)).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
  await expect.poll(() => gpus.machine.count("streamDestroy")).toBe(destroyed + 1);
  expect(own[0].stream).toBeUndefined();
  await onAll(ranks, ({ comm }) => sum(comm));
  expect(await stateOf(main.alloc("int32", 1).toHost())).toBe("done");
  await closeRest(ranks, [own[1]]);
});

test("a job with a call under way is rebuilt, and each generation has streams of its own", async () => {
  const { gpus, ranks, own } = await connected();
  const early = errorOf(sum(own[0]));
  await turns();
  const next = await onAll(ranks, async (joined) => ({
    ...joined,
    comm: await joined.comm.rebuild(),
  }));
  expect(await early).toMatchObject({ code: "ERR_COMM_ABORTED" });
  expect(gpus.machine.streams.size).toBe(2);
  await onAll(next, async ({ comm }) => Promise.all([sum(await ofItsOwn(comm)), sum(comm)]));
  expect(gpus.machine.streams.size).toBe(4);
  await closeAll(next);
  expect(gpus.machine.count("streamDestroy")).toBe(gpus.machine.count("streamCreate"));
});
