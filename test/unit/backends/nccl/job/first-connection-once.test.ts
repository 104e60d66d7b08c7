/** Barriers before NCCL gets a call: every pair of ranks once, every window once. */
import type { Communicator } from "twinccl";
import { expect, test } from "vitest";
import { within } from "../../../../support/planted.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { noteHanded, onDevice } from "../calls/handed-over.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeAll, type Joined, joinAll, onAll } from "./joined.ts";

quickTime();

/** The new keys of the ranks' requests since the last call. */
const newKeys = (ranks: readonly Joined[]): string[][] =>
  ranks.map(({ met }) => met.splice(0).sort());

const none = (ranks: readonly Joined[]) => ranks.map(() => []);

const bytes = (comm: Communicator, length: number, value = 0) =>
  comm.alloc("int8", length).fill(value);

/** One byte from a rank to another; gives what arrived. */
async function send({ comm }: Joined, from: number, to: number, value = 7): Promise<unknown> {
  if (comm.rank === from) return comm.send({ send: bytes(comm, 1, value), peer: to });
  if (comm.rank === to) return (await comm.recv({ recv: bytes(comm, 1), peer: from })).toHost();
  return undefined;
}

test("a pair meets once, before its first message in either direction", async () => {
  const ranks = await joinAll(3);
  for (let round = 0; round < 3; round++) {
    const got = await onAll(ranks, (joined) => send(joined, 0, 2, round));
    expect(got).toEqual([undefined, undefined, Int8Array.of(round)]);
    const key = ["pair world 0-2"];
    expect(newKeys(ranks)).toEqual(round === 0 ? [key, [], key] : none(ranks));
  }
  await onAll(ranks, (joined) => send(joined, 2, 0));
  expect(newKeys(ranks)).toEqual(none(ranks));
  await closeAll(ranks);
});

test("pairs of a split differ from those of its parent, with any rank numbers", async () => {
  const ranks = await joinAll(3);
  const halves = await onAll(ranks, ({ comm }) =>
    comm.split({ color: comm.rank === 1 ? undefined : 0, key: -comm.rank }),
  );
  const inHalf = ranks.flatMap((joined, rank) => {
    const comm = halves[rank];
    return comm === undefined ? [] : [{ ...joined, comm } as unknown as Joined];
  });
  for (let round = 0; round < 2; round++) {
    const got = await onAll(inHalf, (joined) => send(joined, 0, 1));
    expect(got).toEqual([Int8Array.of(7), undefined]);
  }
  const keys = newKeys(ranks);
  expect(keys).toEqual([[expect.stringMatching(/^pair .* 0-1$/)], [], keys[0]]);
  await onAll(ranks, (joined) => send(joined, 0, 1));
  expect(newKeys(ranks)).toEqual([["pair world 0-1"], ["pair world 0-1"], []]);
  await closeAll(ranks);
});

test("messages without elements, and to the rank itself, need no barrier", async () => {
  const ranks = await joinAll(2);
  await onAll(ranks, ({ comm }) => {
    const [send, recv] = [bytes(comm, 0), bytes(comm, 0)];
    const peer = 1 - comm.rank;
    return comm.sendRecv({ send, recv, to: peer, from: peer });
  });
  await onAll(ranks, ({ comm }) => {
    const [send, recv] = [bytes(comm, 2), bytes(comm, 2)];
    return comm.sendRecv({ send, recv, to: comm.rank, from: comm.rank });
  });
  await onAll(ranks, ({ comm }) => comm.allToAll({ send: bytes(comm, 0), recv: bytes(comm, 0) }));
  expect(newKeys(ranks)).toEqual(none(ranks));
  await closeAll(ranks);
});

test("after an all-to-all no call needs a barrier, alone, recorded, or as messages", async () => {
  const ranks = await joinAll(3);
  const buffers = ranks.map(({ comm }) => ({ send: bytes(comm, 3), recv: bytes(comm, 3) }));
  const all = ({ comm }: Joined) => comm.allToAll(buffers[comm.rank] as (typeof buffers)[0]);
  await onAll(ranks, all);
  expect(newKeys(ranks)).toEqual(ranks.map(() => ["all world"]));
  for (let round = 0; round < 4; round++) await onAll(ranks, all);
  await onAll(ranks, (joined) => send(joined, 1, 0));
  await onAll(ranks, ({ comm }) => comm.allToAllv({ send: bytes(comm, 3), sendCounts: [1, 1, 1] }));
  const graphs = await onAll(ranks, (joined) => joined.comm.capture(() => void all(joined)));
  for (let round = 0; round < 3; round++) {
    await onAll(ranks, ({ comm }) => (graphs[comm.rank] as (typeof graphs)[0]).replay());
  }
  expect(newKeys(ranks)).toEqual(none(ranks));
  await closeAll(ranks);
});

test("a recording meets all ranks that its replays need, once", async () => {
  const ranks = await joinAll(2);
  const graphs = await onAll(ranks, ({ comm }) => {
    const data = comm.alloc("float32", 8, { symmetric: true });
    const [send, recv] = [bytes(comm, 2), bytes(comm, 2)];
    return comm.capture(() => {
      void comm.allToAll({ send, recv });
      void comm.allReduce({ send: data, op: "sum" });
    });
  });
  const keys = ["all world", "windows 0 world"];
  expect(newKeys(ranks)).toEqual([keys, keys]);
  for (let round = 0; round < 3; round++) {
    await onAll(ranks, ({ comm }) => (graphs[comm.rank] as (typeof graphs)[0]).replay());
  }
  await onAll(ranks, (joined) => send(joined, 1, 0));
  expect(newKeys(ranks)).toEqual(none(ranks));
  await closeAll(ranks);
});

test("recorded messages meet when they are recorded", async () => {
  const ranks = await joinAll(2);
  const graphs = await onAll(ranks, ({ comm }) =>
    comm.capture(() => {
      if (comm.rank === 0) void comm.send({ send: bytes(comm, 1), peer: 1 });
      else void comm.recv({ recv: bytes(comm, 1), peer: 0 });
    }),
  );
  expect(newKeys(ranks)).toEqual([["pair world 0-1"], ["pair world 0-1"]]);
  for (let round = 0; round < 3; round++) {
    await onAll(ranks, ({ comm }) => (graphs[comm.rank] as (typeof graphs)[0]).replay());
  }
  expect(newKeys(ranks)).toEqual(none(ranks));
  await closeAll(ranks);
});

test("all ranks meet for a window, and not for calls that have one or take none", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, "off", gpus);
  const symmetric = ({ comm }: Joined) => comm.alloc("float32", 8, { symmetric: true }).fill(1);
  const [a, b] = [ranks.map(symmetric), ranks.map(symmetric)];
  const reduce = (buffers: ReturnType<typeof symmetric>[]) =>
    onAll(ranks, async ({ comm }) => {
      const send = buffers[comm.rank] as (typeof a)[0];
      await comm.allReduce({ send, op: "max" });
    });
  await onAll(ranks, ({ comm }) => {
    const recv = a[comm.rank] as (typeof a)[0];
    return comm.broadcast({ recv, root: 0 });
  });
  expect(newKeys(ranks)).toEqual(none(ranks));
  for (let round = 0; round < 4; round++) await reduce(a);
  expect(newKeys(ranks)).toEqual(ranks.map(() => ["windows 1 world"]));
  await reduce(b);
  expect(newKeys(ranks)).toEqual(ranks.map(() => ["windows 5 world"]));
  for (const buffers of [a, b, a]) await reduce(buffers);
  expect(newKeys(ranks)).toEqual(none(ranks));
  expect(gpus.machine.count("registerWindowInBackground")).toBe(6);
  expect(gpus.machine.count("registerWindow")).toBe(0);
  for (const buffer of a) buffer.dispose();
  await turns(20);
  await reduce(ranks.map(symmetric));
  expect(newKeys(ranks)).toEqual(ranks.map(() => ["windows 9 world"]));
  await closeAll(ranks);
});

test("a ring's messages in one group meet at once", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, "off", gpus);
  for (let round = 0; round < 2; round++) {
    const got = await onAll(ranks, async ({ comm }) => {
      const [right, left] = [(comm.rank + 1) % 3, (comm.rank + 2) % 3];
      const [a, b] = [bytes(comm, 1), bytes(comm, 2)];
      await comm.group(() => {
        void comm.send({ send: bytes(comm, 1, comm.rank), peer: right });
        void comm.send({ send: bytes(comm, 2, comm.rank), peer: left });
        void comm.recv({ recv: a, peer: left });
        void comm.recv({ recv: b, peer: right });
      });
      return [...(await a.toHost()), ...(await b.toHost())];
    });
    expect(got).toEqual([2, 0, 1].map((left, rank) => [left, (rank + 1) % 3, (rank + 1) % 3]));
    expect(newKeys(ranks).map((keys) => keys.length)).toEqual(round === 0 ? [2, 2, 2] : [0, 0, 0]);
  }
  await closeAll(ranks);
});

test.each([
  ["receives first and sends afterwards", ["recv", "send"]],
  ["sends first and receives afterwards", ["send", "recv"]],
] as const)("a first sendRecv meets the peer that %s", async (_, order) => {
  const ranks = await joinAll(2);
  const got = await within(
    5000,
    onAll(ranks, async ({ comm }) => {
      const [send, recv] = [bytes(comm, 2, comm.rank + 1), bytes(comm, 2)];
      const peer = 1 - comm.rank;
      if (comm.rank === 0) {
        await comm.sendRecv({ send, recv, to: peer, from: peer });
      } else {
        const each = {
          recv: () => comm.recv({ recv, peer }),
          send: () => comm.send({ send, peer }),
        };
        for (const way of order) await each[way]();
      }
      return recv.toHost();
    }),
  );
  expect(got).toEqual([Int8Array.of(2, 2), Int8Array.of(1, 1)]);
  expect(newKeys(ranks)).toEqual([["pair world 0-1"], ["pair world 0-1"]]);
  await closeAll(ranks);
});

test("messages to different peers without an await wait one after the other", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(3, "off", gpus);
  const [a, b, c] = ranks as [Joined, Joined, Joined];
  const handed = noteHanded(gpus);
  const sent = [
    a.comm.send({ send: bytes(a.comm, 1, 5), peer: 1 }),
    a.comm.send({ send: bytes(a.comm, 2, 6), peer: 2 }),
  ];
  const last = c.comm.recv({ recv: bytes(c.comm, 2), peer: 0 });
  await turns(30);
  expect(handed, "no rank has met rank 1").toEqual([]);
  const first = b.comm.recv({ recv: bytes(b.comm, 1), peer: 0 });
  await within(5000, Promise.all([...sent, first, last]));
  expect(onDevice(handed, 0)).toEqual(["send 1", "send 2"]);
  expect([...(await (await first).toHost()), ...(await (await last).toHost())]).toEqual([5, 6, 6]);
  await closeAll(ranks);
});

test("a message behind a collective call that waits is made after it", async () => {
  const gpus = cleanGpus();
  const ranks = await joinAll(2, "off", gpus);
  const handed = noteHanded(gpus);
  const program = async ({ comm }: Joined): Promise<number[]> => {
    const [send, recv, one] = [bytes(comm, 2, comm.rank), bytes(comm, 2), bytes(comm, 3)];
    const all = comm.allToAll({ send, recv });
    const message =
      comm.rank === 0
        ? comm.send({ send: bytes(comm, 3, 9), peer: 1 })
        : comm.recv({ recv: one, peer: 0 });
    const sum = comm.allReduce({ send: bytes(comm, 4, 1), op: "sum" });
    await Promise.all([all, message, sum]);
    return [...(await recv.toHost()), ...(await one.toHost())];
  };
  const early = program(ranks[0] as Joined);
  await turns(30);
  expect(handed).toEqual([]);
  const late = program(ranks[1] as Joined);
  expect(await within(5000, Promise.all([early, late]))).toEqual([
    [0, 1, 0, 0, 0],
    [0, 1, 9, 9, 9],
  ]);
  const order = (device: number) =>
    onDevice(handed, device).filter((each) => /alltoAll|3$|allReduce/.test(each));
  expect(order(0)).toEqual(["alltoAll 1", "send 3", "allReduce 4"]);
  expect(order(1)).toEqual(["alltoAll 1", "recv 3", "allReduce 4"]);
  await closeAll(ranks);
});
