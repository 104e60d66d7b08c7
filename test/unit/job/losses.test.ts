/** Reports of losses reach their generation, also during its start, and no earlier one. */
import type { Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { CommInfo, RemoteEnd } from "../../../src/api/backend.ts";
import { CrossCheck, FirstConnections, StoreWaits } from "../../../src/job/before-calls.ts";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { fragile, place, relay } from "./stores.ts";

test("a rank lost while the next generation is announced is reported there", async () => {
  const at = await place(3);
  let held: Buffer[] | undefined;
  let near: Socket | undefined;
  const { port } = await relay(at.server.port, (chunk, from, socket) => {
    if (from === "rank" || held === undefined) return chunk;
    near = socket;
    held.push(chunk);
    return Buffer.alloc(0);
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const joining = rendezvous.join({ jobId: at.jobId, rank: 0, size: 3 });
  const [zero, [one, two]] = await Promise.all([joining, fragileFrom(at, [1, 2])]);
  const heard = new Promise((resolve) => zero.onLost(resolve));
  two?.cut();
  await heard;
  held = [];
  const next = zero.rejoin({ without: [2] });
  await one?.member.rejoin({ without: [2] });
  // Rank 0 hears of both at once.
  await expect.poll(() => held?.length).toBeGreaterThan(0);
  const heldCount = held.length;
  one?.cut();
  await expect.poll(() => held?.length).toBeGreaterThan(heldCount);
  const all = Buffer.concat(held);
  held = undefined;
  near?.write(all);
  const later = await next;
  await expect.poll(() => later.lost).toMatchObject([{ rank: 1 }]);
  expect(zero.lost).toMatchObject([{ rank: 2 }]);
});

/** Some ranks of a job, each through a relay of its own. */
async function fragileFrom(at: Awaited<ReturnType<typeof place>>, ranks: readonly number[]) {
  return await Promise.all(
    ranks.map(async (rank) => {
      const { port, cut } = await relay(at.server.port);
      const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
      return { member: await rendezvous.join({ jobId: at.jobId, rank, size: 3 }), cut };
    }),
  );
}

test("the loss of the store is reported in the last generation alone", async () => {
  const [rank] = await fragile(await place(1), 1);
  const before = rank!.member;
  const next = await before.rejoin({ without: [] });
  const heard = new Promise((resolve) => next.onLost(resolve));
  rank!.cut();
  await heard;
  expect([before.lost, next.lost.length]).toEqual([[], 1]);
});

describe("a call that waits in the store for rank 1", () => {
  const comm: CommInfo = { id: 0, name: "world", ranks: [0, 1], local: [0] };
  const keyOf = () => comm.name;
  const missingRanks = { notSubmitted: async () => [], onSubmitted: async () => undefined };

  const compared = (
    member: Membership,
    of = comm,
    end?: RemoteEnd,
    over = new AbortController().signal,
  ) => {
    const waits = new StoreWaits();
    over.addEventListener("abort", () => waits.cancel(of));
    const check = new CrossCheck(member, "always", {
      ...{ keyOf, onCompare: () => undefined, missingRanks, waits, remoteEnd: () => end },
    });
    return check.compare(
      of,
      0,
      () => ({ kind: "barrier", details: () => "" }),
      () => undefined,
    );
  };
  const connection = (
    member: Membership,
    of = comm,
    end?: RemoteEnd,
    over = new AbortController().signal,
  ) =>
    new FirstConnections(member, keyOf, () => end).barrier({
      ...{ comm: of, rank: 0, counters: undefined, connect: async () => true },
      needs: { all: true, peers: new Set() },
    })?.(over);

  const ends = [
    ["is lost", "RankLostError", "its process is gone"],
    ["leaves", "RemoteRankError", "its process has left the job"],
  ] as const;
  const waits = [
    ["the comparison", compared],
    ["the first connection", connection],
  ] as const;
  const rows = ends.flatMap(([how, name, why]) =>
    waits.map(([what, wait]) => ({ how, name, why, what, wait })),
  );
  test.each(rows)("fails with $name where it $how: $what", async ({ how, name, why, wait }) => {
    const [zero, one] = await fragile(await place(2), 2);
    const failed = Promise.resolve(wait(zero!.member)).catch((error) => error);
    if (how === "leaves") await one!.member.leave();
    else one!.cut();
    expect(await failed).toMatchObject({
      ...{ name, ranks: [1], cause: { ranks: [1] } },
      message: expect.stringContaining(`rank 1 of "world" will not make this call: ${why}`),
    });
    await zero!.member.leave();
  });

  const all = { ...comm, ranks: [0, 1, 2] };

  // The abort of another survivor, which may have the loss as its reason, arrives before this rank makes the call.
  test.each(waits)("fails with its loss behind an abort of rank 2: %s", async (_, wait) => {
    const [zero, one, two] = await fragile(await place(3), 3);
    one!.cut();
    await expect.poll(() => zero!.member.lost.length).toBe(1);
    const failed = Promise.resolve(wait(zero!.member, all, { rank: 2, aborted: "its reason" }));
    await expect(failed).rejects.toMatchObject({ name: "RankLostError", ranks: [1] });
    await Promise.all([zero!.member.leave(), two!.member.leave()]);
  });

  test.each(waits)(
    "leaves the error to an abort of rank 1 before its loss: %s",
    async (_, wait) => {
      const [zero, one, two] = await fragile(await place(3), 3);
      one!.cut();
      await expect.poll(() => zero!.member.lost.length).toBe(1);
      const over = new AbortController();
      const end = { rank: 1, aborted: "its reason" };
      const waiting = Promise.resolve(wait(zero!.member, all, end, over.signal));
      const first = await Promise.race([waiting, pause(200).then(() => "still waits")]);
      expect(first).toBe("still waits");
      over.abort();
      await waiting.catch(() => undefined);
      await Promise.all([zero!.member.leave(), two!.member.leave()]);
    },
  );

  test.each([
    ["are lost", "their processes are gone"],
    ["leave", "their processes have left the job"],
  ])("names two ranks that %s as several", async (how, why) => {
    const [zero, one, two] = await fragile(await place(3), 3);
    for (const each of [one, two]) {
      if (how === "leave") await each!.member.leave();
      else each!.cut();
    }
    if (how !== "leave") await expect.poll(() => zero!.member.lost.length).toBe(2);
    const failed = Promise.resolve(connection(zero!.member, all)).catch((error) => error);
    expect((await failed).message).toContain(
      `ranks 1, 2 of "world" will not make this call: ${why}\n`,
    );
    await zero!.member.leave();
  });
});
