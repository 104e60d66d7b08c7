/** Ways in which a job once did not form, or a wait in it once ended, though all its ranks were right. */
import { createConnection, Socket } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import { connectSession } from "../../src/backends/nccl/rendezvous/connect-session.ts";
import { encodeHello, freshNonce } from "../../src/backends/nccl/rendezvous/handshake.ts";
import { limits } from "../../src/backends/nccl/rendezvous/limits.ts";
import type { Reply, Request } from "../../src/backends/nccl/rendezvous/messages.ts";
import { Store } from "../../src/backends/nccl/rendezvous/store.ts";
import { joinStore } from "../../src/backends/nccl/rendezvous/store-membership.ts";
import { tcpRendezvous } from "../../src/backends/nccl/rendezvous/tcp.ts";
import { closeAfter, type Place, place, relay } from "../unit/nccl-rendezvous/stores.ts";

/** How many of the next connections of this process never come about. */
let lostConnects = 0;

vi.mock("node:net", async (original) => {
  const net = await original<typeof import("node:net")>();
  const create = (options: import("node:net").NetConnectOpts): Socket =>
    lostConnects-- > 0 ? new Socket() : net.createConnection(options);
  return { ...net, createConnection: create };
});

const dropped = ({ server }: Place): number =>
  [...server.dropped.values()].reduce((sum, count) => sum + count, 0);

/** Connects as a stranger that says nothing, `count` times, until the store has dropped as many as it must. */
async function silentStrangers(at: Place, count: number): Promise<void> {
  for (let number = 0; number < count; number++) {
    const socket = createConnection({ host: "127.0.0.1", port: at.server.port });
    closeAfter(async () => socket.destroy());
    socket.on("error", () => undefined).resume();
  }
  await expect.poll(() => dropped(at)).toBeGreaterThanOrEqual(count - limits.pendingConnections);
}

test("strangers drove out a rank that had proven itself and not joined yet", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  const { secret, jobId } = at;
  const who = { address: at.server.address, jobId, rank: 0, size: 1 };
  const target = { host: "127.0.0.1", port: at.server.port, secret };
  const session = await connectSession(target, who, 5_000, undefined);
  await silentStrangers(at, limits.pendingConnections + 10);
  const left = (): Promise<void> => session.leave();
  const asked = { ...who, generation: 0, deadlineMs: 5_000, signal: undefined };
  const member = await joinStore({ session, address: who.address, jobId, left }, asked);
  closeAfter(() => member.leave());
  expect(member).toMatchObject({ rank: 0, size: 1 });
});

test("silent strangers drove out a rank that had said hello and not proven itself yet", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  const socket = createConnection({ host: "127.0.0.1", port: at.server.port });
  closeAfter(async () => socket.destroy());
  const isEnded = vi.fn();
  socket.on("error", isEnded).on("end", isEnded);
  const hello = encodeHello({ jobId: at.jobId, rank: 0, nonce: freshNonce() });
  const head = Buffer.alloc(4);
  head.writeUInt32BE(hello.length);
  socket.write(Buffer.concat([head, hello]));
  await new Promise((resolve) => socket.once("data", resolve));
  await silentStrangers(at, limits.pendingConnections + 10);
  expect(isEnded).not.toHaveBeenCalled();
});

test("a rank whose connection ended before it had joined gave up", async () => {
  const at = await place(2);
  // Of the two connections of an attempt the first one speaks: hello, proof, join.
  const speaking: Socket[] = [];
  const frames = new Map<Socket, number>();
  let cuts = 0;
  const { port, cut } = await relay(at.server.port, (chunk, from, socket) => {
    if (from === "store") return chunk;
    if (!frames.has(socket)) speaking.push(socket);
    frames.set(socket, (frames.get(socket) ?? 0) + 1);
    const isJoin = speaking.indexOf(socket) % 2 === 0 && frames.get(socket) === 3;
    if (isJoin && cuts < 3) {
      cuts++;
      cut();
    }
    return chunk;
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const zero = rendezvous.join({ jobId: at.jobId, rank: 0, size: 2, deadlineMs: 10_000 });
  const [first, second] = await Promise.all([zero, at.join(1, { deadlineMs: 10_000 })]);
  closeAfter(() => first.leave());
  expect([first.rank, second.rank, cuts]).toEqual([0, 1, 3]);
});

test("a rank waited seconds for a connection whose request was lost", async () => {
  const at = await place(1);
  lostConnects = 1;
  // The handshake has 5 seconds: within this deadline there is no second attempt behind one that waits for its end.
  const member = await at.join(0, { deadlineMs: 4_000 });
  expect(member.rank).toBe(0);
});

test("strangers that come and leave, a hundred at a time, kept four ranks apart", async () => {
  const at = await place(4);
  let [left, isJoined] = [1_000, false];
  const attack = async (): Promise<void> => {
    while (left > 0 && !isJoined) {
      left -= 100;
      const strangers = Array.from({ length: 100 }, () => {
        const socket = createConnection({ host: "127.0.0.1", port: at.server.port });
        return socket.on("error", () => undefined);
      });
      await new Promise((resolve) => setImmediate(resolve));
      for (const socket of strangers) socket.destroy();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const attacks = [attack(), attack(), attack()];
  const ranks = [0, 1, 2, 3];
  const members = await Promise.all(ranks.map((rank) => at.join(rank, { deadlineMs: 30_000 })));
  isJoined = true;
  await Promise.all(attacks);
  expect(members.map(({ rank }) => rank)).toEqual(ranks);
});

test("a wait of a rank that names a longer time than timers hold ended after 1 ms", async () => {
  const warned = vi.fn();
  process.on("warning", warned);
  onTestFinished(() => void process.removeListener("warning", warned));
  const timeoutMs = 2 ** 32 - 1;
  const told: Reply[] = [];
  const peers = [0, 1].map((rank) => ({
    label: `rank ${rank}`,
    send: (reply: Reply) => void told.push(reply),
  }));
  const [zero, one] = peers as [(typeof peers)[0], (typeof peers)[0]];
  const store = new Store({ jobId: "job", size: 2, hosted: false });
  onTestFinished(() => store.close());
  const join = { kind: "join", id: 1, generation: 0, size: 2, timeoutMs, label: "" } as const;
  const waits = [
    { kind: "get", id: 2, generation: 0, key: "k", timeoutMs, needs: undefined },
    { kind: "exchange", id: 3, generation: 0, key: "x", value: new Uint8Array(1), timeoutMs },
    { kind: "meet", id: 4, generation: 0, meetings: [{ key: "m", ranks: [0, 1] }], timeoutMs },
    { kind: "rejoin", id: 5, generation: 0, without: undefined, settleMs: timeoutMs, timeoutMs },
  ] as const satisfies readonly Request[];
  const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));
  store.join(zero, "job", 0, join);
  await soon();
  store.join(one, "job", 1, join);
  for (const wait of waits) store.request(zero, wait);
  await soon();
  expect(told.map(({ kind }) => kind)).toEqual(["joined", "joined"]);
  expect(warned).not.toHaveBeenCalled();
});
