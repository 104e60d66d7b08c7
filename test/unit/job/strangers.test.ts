/** Clients outside the job hold nothing of its store: no connection, no memory, no second guess. */
import { createConnection, createServer, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import {
  decodeChallenge,
  decodeHello,
  encodeChallenge,
  encodeHello,
  encodeProof,
  FramedSocket,
  FrameSeal,
  freshNonce,
} from "../../../src/job/connection.ts";
import { limits } from "../../../src/job/limits.ts";
import { encodeRequest } from "../../../src/job/protocol.ts";
import { closeAfter } from "../../support/opened.ts";
import { within } from "../../support/planted.ts";
import { quickTime } from "../../support/quick-time.ts";
import { bytes, type Place, place } from "./stores.ts";

quickTime();

const framed = (payload: Uint8Array): Buffer => {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(payload.length);
  return Buffer.concat([head, payload]);
};

/** Says hello; what the store gave for it, and when it has ended the connection. */
async function greeting({ server, jobId }: Place) {
  const hello = { jobId, rank: 0, nonce: freshNonce() };
  const socket = createConnection({ host: "127.0.0.1", port: server.port, allowHalfOpen: true });
  closeAfter(async () => socket.destroy());
  const ended = new Promise<void>((resolve) => socket.once("end", resolve));
  socket.on("error", () => undefined).write(framed(encodeHello(hello)));
  const chunk = await new Promise<Buffer>((resolve) => socket.once("data", resolve));
  socket.resume();
  return { socket, exchanged: { hello, nonce: decodeChallenge(chunk.subarray(4)) }, ended };
}

/** One that knows the secret says something. */
function say({ secret }: Place, { socket, exchanged }: Awaited<ReturnType<typeof greeting>>) {
  const seal = new FrameSeal("rank", secret, exchanged);
  return (request: Parameters<typeof encodeRequest>[0]): void => {
    const proof = framed(encodeProof("rank", secret, exchanged));
    socket.write(Buffer.concat([proof, framed(seal.seal(encodeRequest(request)))]));
  };
}

const join = { kind: "join", id: 1, generation: 0, timeoutMs: 1_000, label: "x" } as const;

describe("a connection is ended by the store", () => {
  test("with a wrong proof, also when the right one follows", async () => {
    const at = await place(1, { handshakeMs: 60_000 });
    const { socket, exchanged, ended } = await greeting(at);
    const guesses = ["a wrong secret, guessed", at.secret].map((secret) =>
      framed(encodeProof("rank", secret, exchanged)),
    );
    socket.write(Buffer.concat(guesses));
    await within(15_000, ended);
    expect([...at.server.dropped]).toEqual([["wrong proof", 1]]);
  });

  test("that asks for another job than the store's", async () => {
    const at = await place(2, { handshakeMs: 60_000 });
    const stranger = await greeting(at);
    say(at, stranger)({ ...join, size: 3 });
    await within(15_000, stranger.ended);
    expect([...at.server.dropped]).toEqual([["refused to join", 1]]);
  });

  test.each(["another's that has ended", "its own"])(
    "that claims to be the silent connection of %s",
    async (which) => {
      const at = await place(1, { handshakeMs: 60_000 });
      const ended = await greeting(at);
      ended.socket.destroy();
      await expect.poll(() => at.server.dropped.size).toBe(1);
      const stranger = await greeting(at);
      const { nonce } = which === "its own" ? stranger.exchanged : ended.exchanged;
      say(at, stranger)({ kind: "liveness", nonce });
      await within(15_000, stranger.ended);
      expect([...at.server.dropped.keys()][1]).toBe(
        "sent what is no message: liveness of no connection",
      );
    },
  );
});

test("a store keeps little of strangers' data", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  for (let number = 0; number < 80; number++) {
    const socket = createConnection({ host: "127.0.0.1", port: at.server.port });
    closeAfter(async () => socket.destroy());
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const head = Buffer.alloc(4);
    head.writeUInt32BE(1_000 + number);
    socket
      .on("error", () => undefined)
      .resume()
      .write(head);
    await within(15_000, closed);
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

describe("messages of another version, or malformed ones,", () => {
  const hello = { jobId: "j", rank: 1, nonce: freshNonce() };

  test("are not accepted as a hello or a challenge", () => {
    const [said, challenge] = [encodeHello(hello), encodeChallenge(freshNonce())];
    expect(decodeHello(said)).toEqual({ ...hello, nonce: new Uint8Array(hello.nonce) });
    for (const at of [1, 2, 3, 4]) {
      const [other, another] = [Buffer.from(said), Buffer.from(challenge)];
      other[at]! ^= 1;
      another[at]! ^= 1;
      expect(() => decodeHello(other)).toThrow("not a rank of twinccl, or another version");
      expect(() => decodeChallenge(another)).toThrow("not a store of twinccl, or another version");
    }
  });

  test("with nonces of another length are refused", () => {
    for (const length of [0, 1, 31, 33]) {
      const nonce = new Uint8Array(length);
      expect(() => decodeHello(encodeHello({ ...hello, nonce }))).toThrow(/nonce|field/);
      expect(() => decodeChallenge(encodeChallenge(nonce))).toThrow(/nonce|field/);
    }
  });
});

describe("a framed socket", () => {
  /** Both ends of a connection; the far one keeps its half open, and reads nothing. */
  async function pair(): Promise<readonly [near: Socket, far: Socket]> {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const coming = new Promise<Socket>((resolve) => server.once("connection", resolve));
    const { port } = server.address() as { port: number };
    const near = createConnection({ host: "127.0.0.1", port });
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
