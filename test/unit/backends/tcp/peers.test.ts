/** Connections between ranks: messages in parts of any length, and strangers, which leave the job unharmed. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { connect, createServer, type OnReadOpts, Socket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { describe, expect, test, vi } from "vitest";
import { addresses, helloFrame, Incoming } from "../../../../src/backends/tcp/connections.ts";
import { MessageBlocks } from "../../../../src/backends/tcp/message-blocks.ts";
import { Peers } from "../../../../src/backends/tcp/peers.ts";
import { headerBytes, kind, writeHeader } from "../../../../src/backends/tcp/wire.ts";
import { keyIdentity, tlsSettings } from "../../../../src/job/connection.ts";
import { encode } from "../../../../src/job/frames.ts";
import type { Membership } from "../../../../src/job/rendezvous.ts";
import { closeAfter } from "../../../support/opened.ts";
import { within } from "../../../support/planted.ts";
import { partOf } from "../../../support/seed.ts";
import { certificate, privateKey } from "../../job/certificate.ts";

/** The ranks of a job, and the address and the key of the first one. */
interface Opened {
  readonly peers: readonly Peers[];
  readonly port: number;
  readonly key: Buffer;
}

/** The memberships of the ranks of a job, and the values that they have exchanged. */
function membersOf(size: number) {
  const values: Uint8Array[] = [];
  let complete = (): void => undefined;
  const all = new Promise<void>((resolve) => {
    complete = resolve;
  });
  const memberOf = (rank: number) =>
    ({
      ...{ rank, size, jobId: "job" },
      exchange: async (_: string, value: Uint8Array) => {
        values[rank] = value;
        if (Object.keys(values).length === size) complete();
        await all;
        return values;
      },
    }) as unknown as Membership;
  return { members: Array.from({ length: size }, (_, rank) => memberOf(rank)), values };
}

function openPeers(member: Membership, tls: boolean): Promise<Peers> {
  const wait = { timeoutMs: 10_000, signal: new AbortController().signal };
  return Peers.open(member, { host: "127.0.0.1", tls }, new MessageBlocks(), wait);
}

async function open(size: number, tls = false): Promise<Opened> {
  const { members, values } = membersOf(size);
  const peers = await Promise.all(members.map((member) => openPeers(member, tls)));
  closeAfter(async () => {
    for (const each of peers) each.destroy();
  });
  const { port, key } = JSON.parse(new TextDecoder().decode(values[0]));
  return { peers, port, key: Buffer.from(key, "base64") };
}

/** Rank 1 of two, and something else at the port of rank 0. */
async function openBeside(port: number, tls: boolean): Promise<Peers> {
  const { members } = membersOf(2);
  const place = {
    kind: "address",
    host: "127.0.0.1",
    port,
    key: Buffer.alloc(32, 7),
    tls,
  } as const;
  void members[0]!.exchange("tcp addresses", encode(addresses, place));
  const sender = await openPeers(members[1]!, tls);
  closeAfter(async () => sender.destroy());
  return sender;
}

const flow = (sequence: number) => ({ sequence, lane: 3, round: 70_000 });

/** Sends a message to the first rank. */
function send(sender: Peers, sequence: number, bytes: Uint8Array, comm = 1): Promise<void> {
  const block = sender.blocks.take(bytes.byteLength);
  block.bytes.set(bytes);
  return new Promise((sent) => sender.send(0, comm, { ...flow(sequence), total: 0 }, block, sent));
}

function frame(kindOf: number, sequence: number, payload: Uint8Array, comm = 1): Buffer {
  const head = Buffer.alloc(headerBytes);
  const header = { ...flow(sequence), kind: kindOf, comm, bytes: payload.length, total: 9 };
  writeHeader(head, header);
  return Buffer.concat([head, payload]);
}

/** A connection to the first rank. */
async function dial({ port }: Opened): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1" }).setNoDelay(true);
  socket.resume().on("error", () => undefined);
  closeAfter(async () => void socket.destroy());
  await once(socket, "connect");
  return socket;
}

/** The bytes of the next message of a flow. */
async function arrival(peers: Peers, sequence: number, comm = 1): Promise<number[]> {
  const incoming = peers.endpoint(comm, 1).incoming(flow(sequence));
  const first = incoming.take(() => undefined);
  if (first !== undefined) return [...first.block.bytes];
  await new Promise<void>((resolve) => incoming.take(resolve));
  return [...(incoming.take(() => undefined)?.block.bytes ?? [])];
}

/** A rank of the job reaches the first one. */
async function expectUnharmed({ peers }: Opened, sequence = 1): Promise<void> {
  const [receiver, sender] = peers as [Peers, Peers];
  await send(sender, sequence, Uint8Array.of(5, 6, 7));
  expect(await arrival(receiver, sequence)).toEqual([5, 6, 7]);
  expect(receiver.endOf(1)).toBeUndefined();
  expect(sender.endOf(0)).toBeUndefined();
}

/** The messages and ends that a receiver takes from these parts. */
function received(parts: readonly Uint8Array[]) {
  const found: { readonly comm: number; readonly sequence: number; readonly bytes: number[] }[] =
    [];
  const ends: string[] = [];
  let onread: OnReadOpts | undefined;
  const connected = (opts: OnReadOpts): Socket => {
    onread = opts;
    return new Socket();
  };
  new Incoming(connected, new MessageBlocks(), {
    arrived: ({ sequence, comm }, { bytes }) => {
      found.push({ comm, sequence, bytes: [...bytes] });
    },
    reported: ({ sequence, comm }) => found.push({ comm, sequence, bytes: [] }),
    ended: (reason) => ends.push(reason),
    dropped: () => ends.push("dropped"),
  });
  for (const part of parts) {
    // As a socket does: each read into the memory that it gets, as far as there is room.
    for (let at = 0; at < part.length; ) {
      const { buffer, callback } = onread as OnReadOpts;
      const room = (buffer as () => Uint8Array)();
      const count = Math.min(room.byteLength, part.length - at);
      room.set(part.subarray(at, at + count));
      callback(count, room);
      at += count;
    }
  }
  return { found, ends };
}

describe("a connection", () => {
  const stream = Buffer.concat([
    frame(kind.data, 1, Buffer.from([1, 2, 3])),
    frame(kind.data, 2, Buffer.alloc(0)),
    frame(kind.data, 3, Buffer.from([4]), 2 ** 47),
    frame(kind.credit, 7, Buffer.alloc(0)),
    frame(kind.ended, 8, Buffer.alloc(0)),
    frame(kind.data, 4, Buffer.alloc(0), 2 ** 47),
  ]);
  const all = [
    { comm: 1, sequence: 1, bytes: [1, 2, 3] },
    { comm: 1, sequence: 2, bytes: [] },
    { comm: 2 ** 47, sequence: 3, bytes: [4] },
    { comm: 1, sequence: 7, bytes: [] },
    { comm: 1, sequence: 8, bytes: [] },
    { comm: 2 ** 47, sequence: 4, bytes: [] },
  ];

  test("takes messages in parts of any length", () => {
    for (let at = 0; at <= stream.length; at++) {
      const parts = [stream.subarray(0, at), stream.subarray(at)];
      expect(received(parts), `cut after ${at} bytes`).toEqual({ found: all, ends: [] });
    }
    for (let length = 1; length < 40; length++) {
      const parts: Buffer[] = [];
      for (let at = 0; at < stream.length; at += length)
        parts.push(stream.subarray(at, at + length));
      expect(received(parts), `parts of ${length} bytes`).toEqual({ found: all, ends: [] });
    }
  });

  const wrong: readonly [string, Buffer][] = [
    ["a report with a payload", frame(kind.credit, 1, Buffer.from([1]))],
    ["an unknown kind", frame(99, 1, Buffer.alloc(0))],
    ["a huge message", frameOf(2 ** 30 + 1)],
  ];
  test.each(wrong)("ends by %s", (_, bytes) => {
    const { found, ends } = received([bytes, frame(kind.data, 2, Buffer.from([1]))]);
    expect(found).toEqual([]);
    expect(ends).toEqual(["it has sent what is no message"]);
  });
});

/** A header of a message of that length. */
function frameOf(bytes: number): Buffer {
  const head = Buffer.alloc(headerBytes);
  writeHeader(head, { ...flow(1), kind: kind.data, comm: 0, bytes, total: 0 });
  return head;
}

describe("a stranger is dropped, and the job is unharmed", () => {
  const huge = Buffer.alloc(headerBytes);
  writeHeader(huge, { ...flow(0), kind: kind.hello, comm: 0, bytes: 2 ** 32 - 1, total: 0 });
  const data = frame(kind.data, 0, Buffer.from([1]));
  const strangers: readonly [string, (key: Buffer) => Uint8Array][] = [
    ["with a request and a wrong key", () => helloFrame(1, Buffer.alloc(32), "request")],
    ["with a connection and a wrong key", () => helloFrame(1, Buffer.alloc(32), "receive")],
    ["with a message before its proof", () => data],
    ["with a header of a huge length", () => huge],
    ["with text", () => Buffer.from(`GET / HTTP/1.1\r\nHost: ${"x".repeat(99)}\r\n\r\n`)],
    ["with more than its proof", (key) => Buffer.concat([helloFrame(1, key, "receive"), data])],
    ["with a connection for a rank that there is not", (key) => helloFrame(7, key, "receive")],
    ["with a connection that was not requested", (key) => helloFrame(0, key, "receive")],
    ["with a request for a rank that there is not", (key) => helloFrame(7, key, "request")],
  ];
  test.each(strangers)("%s", async (_, said) => {
    const opened = await open(2);
    const socket = await dial(opened);
    const closed = once(socket.resume(), "close");
    socket.write(said(opened.key));
    await closed;
    await expectUnharmed(opened);
  });

  test("that closes half of the connection", async () => {
    const opened = await open(2);
    const socket = await dial(opened);
    const closed = once(socket.resume(), "close");
    socket.end(helloFrame(1, opened.key, "receive").subarray(0, 30));
    await closed;
    await expectUnharmed(opened);
  });

  test.each(partOf([false, true], [true]))(
    "one of a thousand silent ones, tls: %s",
    async (tls) => {
      const opened = await open(2, tls);
      const before: Socket[] = [];
      for (let i = 0; i < 350; i++) before.push(await dial(opened));
      // The connection of the rank is among many that come at once.
      const many = Array.from({ length: 250 }, () => dial(opened));
      const fine = expectUnharmed(opened, 1);
      const more = Array.from({ length: 400 }, () => dial(opened));
      // All of them wait to be accepted together.
      await new Promise<void>((resolve) => process.nextTick(resolve));
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
      await fine;
      const all = [...before, ...(await Promise.all([...many, ...more]))];
      await expect.poll(() => all.filter(({ destroyed }) => !destroyed).length).toBe(256);
      await expectUnharmed(opened, 2);
    },
  );

  test("with a wrong key of TLS", async () => {
    const opened = await open(2, true);
    const socket = connectTls({
      ...{ ...tlsSettings, port: opened.port, host: "127.0.0.1" },
      checkServerIdentity: () => undefined,
      pskCallback: () => ({ psk: Buffer.alloc(32, 1), identity: keyIdentity }),
    });
    const [error] = await once(socket, "error");
    expect(error).toMatchObject({ code: expect.stringMatching(/^ERR_SSL_/) });
    await expectUnharmed(opened);
  });
});

test("an impostor with a trusted certificate gets no key and no message", async () => {
  const spoken = vi.fn();
  const server = createTlsServer({
    ...{ minVersion: "TLSv1.3", cert: certificate, key: privateKey },
  });
  server.on("tlsClientError", () => undefined);
  server.on("secureConnection", (socket) => {
    socket.on("error", () => undefined).on("data", spoken);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closeAfter(async () => void server.close());
  const { port } = server.address() as { port: number };
  vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
  closeAfter(async () => void vi.unstubAllEnvs());
  const sender = await openBeside(port, true);
  const ended = new Promise<string>((resolve) => {
    sender.onEnd = (_, reason) => resolve(reason);
  });
  sender.ended(0, 1, { calls: 1, bytes: 0 });
  expect(await ended).toBe("DEPTH_ZERO_SELF_SIGNED_CERT");
  expect(spoken).not.toHaveBeenCalled();
});

test("ranks with TLS and ranks without it are refused on every rank", async () => {
  const { members } = membersOf(3);
  const opening = members.map((member, rank) => openPeers(member, rank !== 1));
  const outcomes = await Promise.allSettled(opening);
  for (const [rank, outcome] of outcomes.entries()) {
    if (outcome.status === "fulfilled") outcome.value.destroy();
    expect(outcome).toMatchObject({
      reason: {
        ...{ code: "ERR_COMM_ARG", rank, size: 3, field: "tls" },
        message: expect.stringContaining("tls: found true on ranks 0, 2, but false on rank 1"),
      },
    });
  }
});

test("the end of a proved connection is reported with its rank", async () => {
  const opened = await open(2);
  await expectUnharmed(opened);
  const [receiver, sender] = opened.peers as [Peers, Peers];
  const ended = new Promise<number>((resolve) => {
    receiver.onEnd = resolve;
  });
  sender.destroy();
  expect(await ended).toBe(1);
  expect(receiver.endOf(1)).toBeDefined();
});

test("a request for a connection that was dropped is repeated", async () => {
  const opened = await open(2);
  let dropped = 0;
  const drop = (message: unknown): void => {
    if (dropped++ === 0) (message as { readonly socket: Socket }).socket.destroy();
  };
  subscribe("net.server.socket", drop);
  closeAfter(async () => void unsubscribe("net.server.socket", drop));
  await expectUnharmed(opened);
  expect(dropped).toBeGreaterThan(1);
});

test("requests that are always dropped end with the reason", async () => {
  const opened = await open(2);
  const [, sender] = opened.peers as [Peers, Peers];
  // As the system drops them for a process without free files.
  const drop = (message: unknown): void => {
    (message as { readonly socket: Socket }).socket.destroy();
  };
  subscribe("net.server.socket", drop);
  closeAfter(async () => void unsubscribe("net.server.socket", drop));
  const { setTimeout: wait } = globalThis;
  vi.spyOn(globalThis, "setTimeout").mockImplementation(((run: () => void, ms: number) =>
    wait(run, ms / 100)) as typeof setTimeout);
  const ended = new Promise<string>((resolve) => {
    sender.onEnd = (_, reason) => resolve(reason);
  });
  sender.ended(0, 1, { calls: 1, bytes: 0 });
  expect(await ended).toMatch(/^no connection in 120 attempts: .* ulimit -n$/);
  vi.restoreAllMocks();
});

test("an address that cannot be connected to is named, with what to look at", async () => {
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const { port } = closed.address() as { port: number };
  await new Promise((resolve) => closed.close(resolve));
  const sender = await openBeside(port, false);
  const ended = new Promise<string>((resolve) => {
    sender.onEnd = (_, reason) => resolve(reason);
  });
  sender.ended(0, 1, { calls: 1, bytes: 0 });
  expect(await ended).toBe(
    `its address 127.0.0.1:${port} cannot be reached (ECONNREFUSED), see tcp({ host }) and firewalls`,
  );
});

test("a message that the kernel does not take is never reported as sent", async () => {
  const opened = await open(2);
  await expectUnharmed(opened);
  const [receiver, sender] = opened.peers as [Peers, Peers];
  let isSent = false;
  void send(sender, 2, new Uint8Array(64 * 2 ** 20)).then(() => {
    isSent = true;
  });
  const ended = new Promise<void>((resolve) => {
    sender.onEnd = () => setImmediate(resolve);
  });
  receiver.destroy();
  await ended;
  expect(isSent).toBe(false);
});

test("the end of calls of more bytes than 32 bits count is reported in full", async () => {
  const opened = await open(2);
  await expectUnharmed(opened);
  const [receiver, sender] = opened.peers as [Peers, Peers];
  const endpoint = sender.endpoint(1, 0);
  expect(endpoint.begin(() => undefined)).toBe(true);
  endpoint.sent(5 * 2 ** 30);
  const room = new Promise<void>((resolve) => {
    expect(endpoint.begin(resolve)).toBe(false);
  });
  receiver.ended(1, 1, { calls: 1, bytes: 5 * 2 ** 30 });
  await room;
  expect(endpoint.begin(() => undefined)).toBe(true);
});

test("the end of a connection before its first message loses no rank", async () => {
  const opened = await open(2);
  let dropped = 0;
  const ends: string[] = [];
  const [receiver, sender] = opened.peers as [Peers, Peers];
  receiver.onEnd = (_, reason) => ends.push(reason);
  sender.onEnd = (_, reason) => ends.push(reason);
  const drop = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket };
    // The first connection is the request, to the receiver.
    if (socket.localPort !== opened.port && dropped++ === 0) socket.destroy();
  };
  subscribe("net.server.socket", drop);
  closeAfter(async () => void unsubscribe("net.server.socket", drop));
  await expectUnharmed(opened);
  expect(dropped).toBe(2);
  expect(ends).toEqual([]);
});

test("messages of a communicator that is over are dropped", async () => {
  const opened = await open(2);
  const [receiver, sender] = opened.peers as [Peers, Peers];
  receiver.retire(2);
  await send(sender, 1, Uint8Array.of(1), 2);
  await expectUnharmed(opened);
  expect(
    receiver
      .endpoint(2, 1)
      .incoming(flow(1))
      .take(() => undefined),
  ).toBeUndefined();
});

test("closing delivers what was sent", async () => {
  const opened = await open(2);
  const [receiver, sender] = opened.peers as [Peers, Peers];
  const payload = new Uint8Array(2 ** 20).fill(3);
  for (let i = 0; i < 8; i++) void send(sender, 4, payload);
  await sender.close();
  for (let i = 0; i < 8; i++) {
    const found = await arrival(receiver, 4);
    expect(found.length).toBe(2 ** 20);
    expect(found.at(-1)).toBe(3);
  }
});

test("closing waits for no peer that refuses the connection", async () => {
  const opened = await open(2);
  const [receiver, sender] = opened.peers as [Peers, Peers];
  receiver.destroy();
  void send(sender, 4, Uint8Array.of(1));
  let isClosed = false;
  void sender.close().then(() => {
    isClosed = true;
  });
  await new Promise<void>((resolve) => {
    sender.onEnd = () => setImmediate(resolve);
  });
  expect(isClosed).toBe(true);
});

test.each(["before", "while"])(
  "closing does not wait for a rank that is lost %s it",
  async (when) => {
    // As a machine that has vanished: it takes the request, and never connects.
    const silent = createServer((socket) => void socket.on("error", () => undefined));
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    closeAfter(async () => void silent.close());
    const sender = await openBeside((silent.address() as { port: number }).port, false);
    void send(sender, 1, Uint8Array.of(1));
    if (when === "before") sender.lost(0);
    const closed = sender.close();
    if (when === "while") sender.lost(0);
    const began = performance.now();
    await closed;
    expect(performance.now() - began).toBeLessThan(2_000);
  },
);

test("closing ends the requests that no peer has answered", async () => {
  const silent = createServer({ allowHalfOpen: true });
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  closeAfter(async () => void silent.close());
  const sender = await openBeside((silent.address() as { port: number }).port, false);
  sender.ended(0, 1, { calls: 1, bytes: 0 });
  const [request] = (await once(silent, "connection")) as [Socket];
  request.on("error", () => undefined).resume();
  const isOver = new Promise((resolve) => request.once("end", resolve).once("close", resolve));
  await sender.close();
  await within(2_000, isOver);
});
