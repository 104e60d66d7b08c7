/** The ranks that a late message's error names in a job: those that the message, and its batch, need to go on. */
import { describe, expect, test, vi } from "vitest";
import { ncclError } from "../../../../support/fake-gpus/index.ts";
import { quickTime } from "../../../../support/quick-time.ts";
import { cleanGpus, turns } from "../gpus.ts";
import { closeRest, errorOf, type Joined, joinAll, onAll } from "../job/joined.ts";

quickTime();

type End = readonly ["send" | "recv", peer: number];

/** Makes ends of messages together; the error of the first one. */
function ends({ comm }: Joined, those: readonly End[], timeoutMs = 5_000) {
  const first: PromiseLike<unknown>[] = [];
  const all = comm.group(() => {
    for (const [direction, peer] of those) {
      const buffer = comm.alloc("uint8", 1);
      const end =
        direction === "send"
          ? comm.send({ send: buffer, peer, timeoutMs })
          : comm.recv({ recv: buffer, peer, timeoutMs });
      first.push(end);
    }
  });
  all.then(null, () => undefined);
  for (const end of first.slice(1)) end.then(null, () => undefined);
  return errorOf(first[0] as PromiseLike<unknown>);
}

/** All ranks, after every one of them has sent one message to every other one, or before. */
async function joinedAll(size: number, before: string, gpus = cleanGpus()): Promise<Joined[]> {
  const ranks = await joinAll(size, "off", gpus);
  if (before === "later messages") await meetAll(ranks);
  return ranks;
}

async function meetAll(ranks: readonly Joined[]): Promise<void> {
  const others = ({ comm }: Joined): number[] =>
    ranks.map((_, rank) => rank).filter((rank) => rank !== comm.rank);
  await onAll(ranks, (joined) =>
    ends(
      joined,
      others(joined).flatMap((peer): End[] => [
        ["send", peer],
        ["recv", peer],
      ]),
    ),
  );
}

const late = { code: "ERR_COMM_TIMEOUT" };

describe.each(["first messages", "later messages"])("%s that are late", (when) => {
  test("name the rank that has not made the other end", async () => {
    const ranks = await joinedAll(2, when);
    const error = await ends(ranks[0] as Joined, [["send", 1]], 60);
    expect(error).toMatchObject({ ...late, collective: "send", rank: 0, size: 2, ranks: [1] });
    expect(error?.message).toMatch(/was not done within 60 ms: rank 1 had not made it/);
    await closeRest(ranks);
  });

  test("name only the missing ranks of a group", async () => {
    const ranks = await joinedAll(4, when);
    const [asker, came] = ranks as [Joined, Joined];
    const other = ends(came, [["recv", 0]], 200);
    const ownEnds: End[] = [
      ["send", 1],
      ["recv", 3],
      ["send", 2],
    ];
    const error = await ends(asker, ownEnds, 60);
    expect(error).toMatchObject({ ...late, collective: "send", ranks: [2, 3] });
    expect(error?.message).toMatch(/: ranks 2, 3 kept it waiting/);
    expect(error?.hint).toMatch(/logs of ranks 2, 3 of the job/);
    await other;
    await closeRest(ranks);
  });

  test("count a peer's earlier receives, and name it for a further send", async () => {
    const ranks = await joinedAll(2, when);
    const [asker, slow] = ranks as [Joined, Joined];
    const received = ends(slow, [["recv", 0]]);
    expect(await ends(asker, [["send", 1]])).toBeUndefined();
    expect(await received).toBeUndefined();
    expect(await ends(asker, [["send", 1]], 60)).toMatchObject({ ...late, ranks: [1] });
    await closeRest(ranks);
  });

  test("name a rank with an end that NCCL refused", async () => {
    const gpus = cleanGpus();
    const ranks = await joinedAll(2, when, gpus);
    const [asker, refused] = ranks as [Joined, Joined];
    gpus.machine.failNext("recv", ncclError("ncclRecv", 2, "ncclSystemError"));
    const [error, other] = await Promise.all([
      ends(asker, [["send", 1]], 150),
      ends(refused, [["recv", 0]]),
    ]);
    expect(other).toMatchObject({ code: "ERR_COMM_NCCL" });
    expect(error).toMatchObject({ ...late, ranks: [1] });
    expect(error?.message).toMatch(/: rank 1 had not made it$/m);
    await closeRest(ranks);
  });

  test("name the slow rank also where both ends are made", async () => {
    const gpus = cleanGpus();
    const ranks = await joinedAll(2, when, gpus);
    const [asker, there] = ranks as [Joined, Joined];
    gpus.machine.hold();
    const other = ends(there, [["recv", 0]]);
    const error = await ends(asker, [["send", 1]], 100);
    expect(error).toMatchObject({ ...late, ranks: [1] });
    expect(error?.message).toMatch(/: rank 1 had made it too: it is slow/);
    gpus.machine.release();
    there.comm.abort(new Error("enough"));
    await other;
    await closeRest(ranks);
  });
});

test("first messages of a ring all name the rank that does not take part", async () => {
  const ranks = await joinAll(5);
  const shift = (joined: Joined) => {
    const { rank } = joined.comm;
    const both: End[] = [
      ["send", (rank + 1) % 5],
      ["recv", (rank + 4) % 5],
    ];
    // One after the other gives up.
    return ends(joined, both, 100 + 20 * rank);
  };
  const errors = await Promise.all(ranks.filter((_, rank) => rank !== 2).map(shift));
  for (const error of errors) expect(error).toMatchObject({ ...late, ranks: [2] });
  await closeRest(ranks);
});

describe("an unfinished message with both ends made", () => {
  const why =
    /: rank 1 had made it too: it is slow, was given up there, or waits behind other calls$/m;

  test("names the other rank where it waits behind another message", async () => {
    const ranks = await joinedAll(3, "later messages");
    const [asker, there] = ranks as [Joined, Joined];
    const open = [ends(there, [["send", 2]], 200), ends(there, [["recv", 0]], 200)];
    const error = await ends(asker, [["send", 1]], 100);
    expect(error).toMatchObject({ ...late, rank: 0, ranks: [1] });
    expect(error?.message).toMatch(why);
    expect(await open[0]).toMatchObject({ ...late, rank: 1, ranks: [2] });
    await Promise.all(open);
    await closeRest(ranks);
  });

  test("names the other rank where it waits behind a collective call", async () => {
    const ranks = await joinedAll(3, "later messages");
    const [asker, there] = ranks as [Joined, Joined];
    const barriers = [asker, there].map(({ comm }) => errorOf(comm.barrier({ timeoutMs: 250 })));
    const behind = ends(there, [["recv", 0]], 400);
    const error = await ends(asker, [["send", 1]], 100);
    expect(error).toMatchObject({ ...late, rank: 0, ranks: [1] });
    expect(error?.message).toMatch(why);
    expect(await barriers[1]).toMatchObject({ ...late, collective: "barrier", ranks: [2] });
    await Promise.all([...barriers, behind]);
    await closeRest(ranks);
  });

  test("names each other where both send before they receive", async () => {
    const ranks = await joinedAll(2, "later messages");
    const [asker, there] = ranks as [Joined, Joined];
    const rest = [ends(asker, [["send", 1]], 100), ends(there, [["send", 0]], 100)];
    const behind = [ends(asker, [["recv", 1]], 150), ends(there, [["recv", 0]], 150)];
    const [first, second] = await Promise.all(rest);
    expect(first).toMatchObject({ ...late, rank: 0, ranks: [1] });
    expect(second).toMatchObject({ ...late, rank: 1, ranks: [0] });
    expect(first?.message).toMatch(why);
    await Promise.all(behind);
    await closeRest(ranks);
  });

  test.each(["first messages", "later messages"])(
    "names a rank that cancelled its end: %s",
    async (when) => {
      const ranks = await joinedAll(2, when);
      const [asker, there] = ranks as [Joined, Joined];
      expect(await ends(there, [["recv", 0]], 50)).toMatchObject({ ...late, ranks: [0] });
      // Its kernels leave the device.
      await turns();
      const error = await ends(asker, [["send", 1]], 100);
      expect(error).toMatchObject({ ...late, rank: 0, ranks: [1] });
      expect(error?.message).toMatch(why);
      await closeRest(ranks);
    },
  );
});

test("a message of a split names ranks of the split, and its hint their ranks in the job", async () => {
  const ranks = await joinAll(4);
  const parts = await onAll(ranks, ({ comm }) =>
    comm.split({ color: comm.rank > 0 ? 0 : undefined, key: -comm.rank }),
  );
  // Ranks 3, 2 and 1 of the job are 0, 1 and 2 here.
  const part = [3, 2, 1].map((rank) => ({ ...ranks[rank], comm: parts[rank] }) as Joined);
  const [asker, came] = part as [Joined, Joined];
  const both: End[] = [
    ["send", 1],
    ["recv", 2],
  ];
  const [error] = await Promise.all([ends(asker, both, 100), ends(came, [["recv", 0]], 150)]);
  expect(error).toMatchObject({ ...late, comm: "world/0", rank: 0, size: 3, ranks: [2] });
  expect(error?.hint).toMatch(/logs of rank 1 of the job/);
  await closeRest(ranks, [...parts, ...ranks.map(({ comm }) => comm)]);
});

test("a sendRecv names the rank that its two ends wait for", async () => {
  const ranks = await joinAll(3);
  const [asker, came] = ranks as [Joined, Joined];
  const swap = ({ comm }: Joined, from: number, to: number) => {
    const [send, recv] = [comm.alloc("uint8", 1), comm.alloc("uint8", 1)];
    return errorOf(comm.sendRecv({ send, to, recv, from, timeoutMs: 100 }));
  };
  const [error, other] = await Promise.all([swap(asker, 1, 2), swap(came, 2, 0)]);
  expect(error).toMatchObject({ ...late, collective: "send", rank: 0, ranks: [2] });
  expect(other).toMatchObject({ ...late, collective: "send", rank: 1, ranks: [2] });
  await closeRest(ranks);
});

test("a send to the rank itself without a receiver does not count as made", async () => {
  const ranks = await joinAll(2);
  const [asker, there] = ranks as [Joined, Joined];
  const other = ends(there, [["send", 0]], 200);
  const [send, recv] = [asker.comm.alloc("uint8", 1), asker.comm.alloc("uint8", 1)];
  const error = await errorOf(asker.comm.sendRecv({ send, to: 0, recv, from: 1, timeoutMs: 80 }));
  expect(error).toMatchObject({ ...late, collective: "send", ranks: [0] });
  expect(error?.message).toMatch(/: rank 0 had not made it$/m);
  await other;
  await closeRest(ranks);
});

test.each([
  ["a collective call", false],
  ["a message", true],
])("%s that another communicator's call delays says so", async (_, isMessage) => {
  const ranks = await joinAll(3);
  const parts = await onAll(ranks, ({ comm }) => comm.split({ color: comm.rank < 2 ? 0 : 1 }));
  const part = [0, 1].map((rank) => ({ ...ranks[rank], comm: parts[rank] }) as Joined);
  await meetAll(part);
  const [asker] = ranks as [Joined];
  const [mine, other] = part as [Joined, Joined];
  const call = (joined: Joined, timeoutMs: number) => {
    if (!isMessage) return errorOf(joined.comm.barrier({ timeoutMs }));
    return ends(joined, [joined === mine ? ["send", 1] : ["recv", 0]], timeoutMs);
  };
  // Rank 2 does not come.
  const first = ends(asker, [["send", 2]], 300);
  const there = call(other, 300);
  const error = await call(mine, 80);
  expect(error).toMatchObject({ ...late, comm: "world/0", ranks: [] });
  expect(error?.message).toMatch(/: an earlier call of this rank kept it waiting$/m);
  expect(error?.hint).toMatch(/aborted; give that one a deadline of its own/);
  await Promise.all([first, there]);
  await closeRest(ranks, [...parts, ...ranks.map(({ comm }) => comm)]);
});

test("a message behind a call that its peer makes after its own end says so", async () => {
  const ranks = await joinAll(2, "always");
  const [other, asker] = ranks as [Joined, Joined];
  const there = [ends(other, [["send", 1]], 400), errorOf(other.comm.barrier({ timeoutMs: 400 }))];
  const before = errorOf(asker.comm.barrier({ timeoutMs: 400 }));
  const error = await ends(asker, [["recv", 0]], 80);
  expect(error).toMatchObject({ ...late, collective: "recv", rank: 1, ranks: [] });
  expect(error?.message).toMatch(/: an earlier call of this rank kept it waiting$/m);
  await Promise.all([...there, before]);
  await closeRest(ranks);
});

test("a silent store extends deadlines only slightly", async () => {
  const ranks = await joinAll(2, "off", cleanGpus(), 60_000);
  await meetAll(ranks);
  const [asker] = ranks as [Joined];
  const never = () => new Promise<never>(() => undefined);
  vi.spyOn(asker.membership, "set").mockImplementation(never);
  const began = performance.now();
  const error = await ends(asker, [["send", 1]], 50);
  expect(error).toMatchObject({ ...late, ranks: [1] });
  expect(performance.now() - began).toBeLessThan(15_000);
  vi.restoreAllMocks();
  await closeRest(ranks);
});
