/** Whom a late message's error names in a job: those without whose messages it, and what was made with it, cannot go on. */
import type { CommError } from "twinccl";
import { describe, expect, test } from "vitest";
import { ncclError } from "../../support/fake-gpus/index.ts";
import { within } from "../../support/planted.ts";
import { cleanGpus, turns } from "./gpus.ts";
import { closeRest, type Joined, joinAll, onAll, told } from "./joined.ts";

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
  return told(first[0] as PromiseLike<unknown>);
}

/** All ranks, after every one of them has sent one message to every other one, or before. */
async function joinedAll(size: number, before: string, gpus = cleanGpus()): Promise<Joined[]> {
  const ranks = await joinAll(size, "off", gpus);
  if (before === "first messages") return ranks;
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
  return ranks;
}

const late = { code: "ERR_COMM_TIMEOUT" };

describe.each(["first messages", "later messages"])("%s that are late", (when) => {
  test("name the rank that has not made its end", async () => {
    const ranks = await joinedAll(2, when);
    const error = await ends(ranks[0] as Joined, [["send", 1]], 60);
    expect(error).toMatchObject({ ...late, collective: "send", rank: 0, size: 2, ranks: [1] });
    expect(error?.message).toMatch(/was not done within 60 ms: rank 1 had not made it/);
    await closeRest(ranks);
  });

  test("name of a group those that have not come, and not those that have", async () => {
    const ranks = await joinedAll(4, when);
    const [asker, came] = ranks as [Joined, Joined];
    const other = ends(came, [["recv", 0]], 200);
    const asked: End[] = [
      ["send", 1],
      ["recv", 3],
      ["send", 2],
    ];
    const error = await ends(asker, asked, 60);
    expect(error).toMatchObject({ ...late, collective: "send", ranks: [2, 3] });
    expect(error?.message).toMatch(/: ranks 2, 3 kept it waiting/);
    expect(error?.hint).toMatch(/logs of ranks 2, 3 of the job/);
    await other;
    await closeRest(ranks);
  });

  test("name the next one of a rank that has received some, and not before", async () => {
    const ranks = await joinedAll(2, when);
    const [asker, slow] = ranks as [Joined, Joined];
    const received = ends(slow, [["recv", 0]]);
    expect(await ends(asker, [["send", 1]])).toBeUndefined();
    expect(await received).toBeUndefined();
    expect(await ends(asker, [["send", 1]], 60)).toMatchObject({ ...late, ranks: [1] });
    await closeRest(ranks);
  });

  test("name a rank whose end NCCL refused", async () => {
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
    await closeRest(ranks);
  });

  test("say so where the other end was made in time", async () => {
    const gpus = cleanGpus();
    const ranks = await joinedAll(2, when, gpus);
    const [asker, there] = ranks as [Joined, Joined];
    gpus.machine.hold();
    const other = ends(there, [["recv", 0]]);
    const error = await ends(asker, [["send", 1]], 100);
    expect(error).toMatchObject({ ...late, ranks: [] });
    expect(error?.message).toMatch(/: rank 1 had made it too/);
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

test("a message behind others names the rank that these wait for", async () => {
  const ranks = await joinedAll(4, "later messages");
  const [asker, next, nextButOne] = ranks as [Joined, Joined, Joined];
  // 0 waits for 1, which waits for 2, which waits for 3.
  const open = [
    ends(nextButOne, [["send", 3]], 300),
    ends(nextButOne, [["recv", 1]], 300),
    ends(next, [["send", 2]], 200),
    ends(next, [["recv", 0]], 200),
  ];
  const error = await ends(asker, [["send", 1]], 100);
  expect(error).toMatchObject({ ...late, rank: 0, ranks: [3] });
  expect(await open[2]).toMatchObject({ ...late, rank: 1, ranks: [3] });
  expect(await open[0]).toMatchObject({ ...late, rank: 2, ranks: [3] });
  await Promise.all(open);
  await closeRest(ranks);
});

test("a message is not held against those that are done, or made behind it", async () => {
  const ranks = await joinedAll(3, "later messages");
  const [asker, there] = ranks as [Joined, Joined];
  const gone = [ends(there, [["send", 0]], 250), ends(asker, [["recv", 1]])];
  expect(await Promise.all(gone)).toEqual([undefined, undefined]);
  const received = ends(there, [["recv", 0]], 250);
  // Calls of one turn settle together.
  await turns(1);
  const behind = ends(there, [["recv", 2]], 250);
  expect(await ends(asker, [["send", 1]])).toBeUndefined();
  expect(await ends(asker, [["send", 1]], 60)).toMatchObject({ ...late, ranks: [1] });
  expect(await received).toBeUndefined();
  expect(await behind).toMatchObject({ ...late, rank: 1, ranks: [2] });
  await closeRest(ranks);
});

test("a first message to a rank that waits for another one of the same rank names that rank", async () => {
  const ranks = await joinAll(2);
  const [asker, there] = ranks as [Joined, Joined];
  // Rank 0 would receive once it has sent.
  const other = ends(there, [
    ["send", 0],
    ["recv", 0],
  ]);
  const error = await ends(asker, [["send", 1]], 100);
  expect(error).toMatchObject({ ...late, rank: 0, ranks: [0] });
  expect(error?.message).toMatch(/: rank 0 kept it waiting/);
  there.comm.abort(new Error("enough"));
  expect(await within(5000, other)).toMatchObject({ code: "ERR_COMM_ABORTED" });
  await closeRest(ranks);
});

test("both ends of a ring of messages that wait for each other lead around it", async () => {
  const ranks = await joinAll(3);
  // Each would receive once it has sent.
  const errors = await Promise.all(
    ranks.map((joined) => ends(joined, [["send", (joined.comm.rank + 1) % 3]], 100)),
  );
  const [first] = errors as [CommError];
  expect(first).toMatchObject({ ...late, rank: 0, ranks: [1] });
  for (const error of errors) expect(error?.code).toMatch(/TIMEOUT|ABORTED|REMOTE/);
  await closeRest(ranks);
});
