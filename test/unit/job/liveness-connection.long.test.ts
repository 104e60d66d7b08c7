/** A machine that is gone is noticed by the connection on which nothing is said; a process that is busy is not gone. */
import { createConnection, createServer, type Socket } from "node:net";
import { expect, test } from "vitest";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";
import { launch, script } from "./launched.ts";
import { bytes, type Place, place } from "./stores.ts";

/** Both ends of a connection through a relay, and what went over it so far. */
interface Relayed {
  readonly ends: readonly [Socket, Socket];
  bytes: number;
}

/** Rank 1 of a job of two, with connections through a relay: the spoken one, then the silent one. */
async function relayed(at: Place): Promise<{ zero: Membership; one: Membership; all: Relayed[] }> {
  const all: Relayed[] = [];
  const server = createServer((near) => {
    const far = createConnection({ host: "127.0.0.1", port: at.server.port });
    const connection: Relayed = { ends: [near, far], bytes: 0 };
    all.push(connection);
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on("error", () => undefined).on("close", () => to.destroy());
      from.setNoDelay(true).on("data", (chunk: Buffer) => {
        connection.bytes += chunk.length;
        to.write(chunk);
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closeAfter(async () => {
    for (const { ends } of all) for (const end of ends) end.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  const { port } = server.address() as { port: number };
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const joining = rendezvous.join({ jobId: at.jobId, rank: 1, size: 2 });
  const [zero, one] = await Promise.all([at.join(0), joining]);
  closeAfter(() => one.leave());
  return { zero, one, all };
}

const cut = ({ ends }: Relayed): void => {
  for (const end of ends) end.destroy();
};

/** Neither end hears of the other any more, and both stand. */
const freeze = ({ ends }: Relayed): void => {
  for (const end of ends) end.pause();
};

const firstLost = (member: Membership) => new Promise((resolve) => member.onLost(resolve));

test("the silent connection carries no data after its handshake", async () => {
  const { zero, one, all } = await relayed(await place(2));
  const [spoken, silent] = all as [Relayed, Relayed];
  await Promise.all([zero, one].map((member) => member.exchange("k", bytes("v"))));
  const before = [spoken.bytes, silent.bytes] as const;
  await Promise.all([zero, one].map((member) => member.exchange("k", bytes("v"))));
  expect(all).toHaveLength(2);
  expect(spoken.bytes).toBeGreaterThan(before[0]);
  expect(silent.bytes).toBe(before[1]);
});

test("its end is the loss of the rank, although data to that rank are still under way", async () => {
  const { zero, one, all } = await relayed(await place(2));
  const [spoken, silent] = all as [Relayed, Relayed];
  freeze(spoken);
  const lost = [firstLost(zero), firstLost(one)];
  const waiting = zero.get("k").then(null, (error: unknown) => error);
  cut(silent);
  expect(await lost[0]).toMatchObject({ rank: 1, reason: expect.stringMatching(/connection/) });
  expect(await waiting).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [1] });
  // To that rank the store is gone.
  expect(await lost[1]).toMatchObject({ rank: undefined });
});

test("a farewell that arrives with its end counts", async () => {
  const { zero, one, all } = await relayed(await place(2));
  cut(all[1] as Relayed);
  await one.leave();
  await new Promise((resolve) => setTimeout(resolve, 1_200));
  expect(zero.lost).toEqual([]);
  await zero.set("k", bytes("v"));
});

test("a rank that blocks its event loop is not lost, past the timeout of a dead machine", async () => {
  const path = script(
    "busy.mjs",
    `const member = await join();
     const waiting = member.get("to " + rank);
     await member.exchange("query", bytes(""));
     if (rank === 0) await member.set("to 1", bytes("before"));
     else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 18_000);
     if (rank === 1) await member.set("to 0", bytes("after"));
     console.log(text(await waiting), member.lost.length);
     await member.exchange("over", bytes(""));
     await member.leave();`,
  );
  const { status, lines } = await launch(["-n", "2", path]).ended;
  expect({ status, lines }).toEqual({ status: 0, lines: ["[0] after 0", "[1] before 0"] });
}, 60_000);
