/** Clients outside the job hold nothing of its store: no connection, no memory, no second guess. */
import { randomBytes } from "node:crypto";
import { createConnection } from "node:net";
import { createServer, type TLSSocket } from "node:tls";
import { describe, expect, test } from "vitest";
import { FramedSocket, keyIdentity, keyOf, tlsSettings } from "../../../src/job/connection.ts";
import { protocolVersion } from "../../../src/job/frames.ts";
import { limits, tokenBytes } from "../../../src/job/protocol.ts";
import { closeAfter } from "../../support/opened.ts";
import { within } from "../../support/planted.ts";
import { quickTime } from "../../support/quick-time.ts";
import {
  bytes,
  framed,
  hello,
  helloOf,
  type Place,
  place,
  type Speaker,
  speaker,
} from "./stores.ts";

quickTime();

const to = ({ server, secret }: Place) => ({ port: server.port, secret });

/** A connection of a rank that has said hello. */
async function greeting(at: Place, token = randomBytes(tokenBytes)): Promise<Speaker> {
  const open = await speaker(to(at));
  open.send(hello(token));
  expect(await open.first).toEqual({ kind: "welcome", version: protocolVersion });
  return open;
}

const join = {
  kind: "join",
  id: 1,
  rank: 0,
  generation: 0,
  timeoutMs: 1_000,
  limitMs: 1_000,
  label: "x",
} as const;

describe("a connection is ended by the store", () => {
  test("with a wrong key, and the right one on another connection is accepted", async () => {
    const at = await place(1, { handshakeMs: 60_000 });
    const wrong = speaker({ ...to(at), secret: "a wrong secret, guessed" });
    await expect(wrong).rejects.toMatchObject({ code: expect.stringMatching(/^ERR_SSL_.*ALERT/) });
    expect([...at.server.dropped]).toEqual([["wrong key", 1]]);
    await greeting(at);
  });

  test("that asks for another job than the store's", async () => {
    const at = await place(2, { handshakeMs: 60_000 });
    const stranger = await greeting(at);
    stranger.send({ ...join, jobId: at.jobId, size: 3 });
    await within(15_000, stranger.ended);
    expect([...at.server.dropped]).toEqual([["refused to join", 1]]);
  });

  test.each(["another's that has ended", "its own", "none"])(
    "that claims to be the silent connection of %s",
    async (which) => {
      const at = await place(1, { handshakeMs: 60_000 });
      const [token, own] = [randomBytes(tokenBytes), randomBytes(tokenBytes)];
      const ended = await greeting(at, token);
      ended.socket.destroy();
      await expect.poll(() => at.server.dropped.size).toBe(1);
      const stranger = which === "its own" ? await greeting(at, own) : await speaker(to(at));
      const claimed = which === "its own" ? own : which === "none" ? randomBytes(16) : token;
      stranger.send({ kind: "liveness", version: protocolVersion, token: claimed });
      await within(15_000, stranger.ended);
      expect([...at.server.dropped.keys()][1]).toBe(
        "sent what is no message: liveness of no connection",
      );
    },
  );

  test("with a token that another connection has", async () => {
    const at = await place(1, { handshakeMs: 60_000 });
    const token = randomBytes(tokenBytes);
    await greeting(at, token);
    const second = await speaker(to(at));
    second.send(hello(token));
    await within(15_000, second.ended);
    expect([...at.server.dropped.keys()]).toEqual([
      "sent what is no message: a token that is in use",
    ]);
  });
});

test("clients with a wrong key displace none with an unfinished handshake of the right one", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  const said = await helloOf(at.secret);
  // As many as are allowed.
  for (let count = 0; count < limits.pendingConnections; count++) {
    const half = createConnection({ host: "127.0.0.1", port: at.server.port });
    closeAfter(async () => void half.destroy());
    half.on("error", () => undefined).write(said);
    // The store's part of the handshake.
    await new Promise((resolve) => half.once("data", resolve));
  }
  for (let count = 0; count < 5; count++)
    await speaker({ ...to(at), secret: "a wrong secret, guessed" }).catch(() => undefined);
  expect([...at.server.dropped]).toEqual([["wrong key", 5]]);
});

test("a store keeps little of strangers' data", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  for (let number = 0; number < 80; number++) {
    const open = await speaker(to(at));
    const head = Buffer.alloc(4);
    head.writeUInt32BE(5_000 + number);
    open.socket.write(head);
    await within(15_000, open.ended);
  }
  const { dropped } = at.server;
  expect([...dropped.values()].reduce((sum, count) => sum + count, 0)).toBe(80);
  expect([dropped.size, dropped.get("other")]).toEqual([65, 16]);
});

test("all ranks of a large job may connect at once", async () => {
  const at = await place(40, { handshakeMs: 60_000 });
  // Each of them with two connections, and again where it has to try again.
  for (let i = 0; i < 160; i++) await greeting(at);
  expect([...at.server.dropped]).toEqual([]);
  await greeting(at);
  expect([...at.server.dropped]).toEqual([["too many connections", 1]]);
});

describe("a framed socket", () => {
  /** Both ends of a connection; the far one keeps its half open, and reads nothing. */
  async function pair(): Promise<readonly [near: TLSSocket, far: TLSSocket]> {
    const secret = "a secret of this test";
    const server = createServer({
      ...{ ...tlsSettings, allowHalfOpen: true, pauseOnConnect: true },
      pskCallback: (_, identity) => (identity === keyIdentity ? keyOf(secret) : null),
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const coming = new Promise<TLSSocket>((resolve) => server.once("secureConnection", resolve));
    const { port } = server.address() as { port: number };
    const near = (await speaker({ port, secret })).socket;
    near.removeAllListeners("data");
    const far = await coming;
    closeAfter(async () => {
      near.destroy();
      far.destroy();
      server.close();
    });
    return [near, far];
  }

  test("is closed soon after its last message, also where the other end stays half open", async () => {
    const [near, far] = await pair();
    const socket = new FramedSocket(near, 100, { frame: () => undefined, ended: () => undefined });
    socket.write(bytes("last"));
    socket.finish();
    far.resume();
    await expect.poll(() => near.destroyed).toBe(true);
  });

  test("ends after a failure of its own listener, worded as one of this end", async () => {
    const [near, far] = await pair();
    const ended = new Promise<string>((resolve) => {
      const frame = (): never => {
        throw new TypeError("of this end");
      };
      new FramedSocket(near, 100, { frame, ended: resolve });
    });
    far.write(framed(bytes("fine")));
    expect(await ended).toBe("its message failed here: TypeError: of this end");
  });

  test("ends where the other end reads nothing, with any amount to send", async () => {
    const [near] = await pair();
    const ended: string[] = [];
    const listener = { frame: () => undefined, ended: (reason: string) => ended.push(reason) };
    const socket = new FramedSocket(near, 100, listener);
    const much = new Uint8Array(2 ** 20);
    const most = limits.unsentBytes / much.length;
    for (let i = 0; i < 2 * most && ended.length === 0; i++) socket.write(much);
    expect(ended).toEqual(["takes nothing from its connection"]);
    expect(near.destroyed).toBe(true);
  });
});
