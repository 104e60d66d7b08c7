/** Reports of losses reach their generation, also during its start, and no earlier one. */
import type { Socket } from "node:net";
import { expect, test } from "vitest";
import { tcpRendezvous } from "../../../src/job/tcp.ts";
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
