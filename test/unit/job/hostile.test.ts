/** Strangers and broken bytes at the port of a job that runs: dropped, and the job does not notice. */

import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { createConnection, createServer, type Socket } from "node:net";
import { connect, createServer as createTlsServer } from "node:tls";
import fc from "fast-check";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { keyOf, tlsSettings } from "../../../src/job/connection.ts";
import { decode, encode, FrameError, protocolVersion } from "../../../src/job/frames.ts";
import {
  type Failure,
  type Reply,
  type Request,
  replies,
  requests,
} from "../../../src/job/protocol.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";
import { within } from "../../support/planted.ts";
import { quickTime } from "../../support/quick-time.ts";
import { certificate, privateKey } from "./certificate.ts";
import {
  bytes,
  errorOf,
  framed,
  hello,
  helloOf,
  type Place,
  place,
  relay,
  speaker,
  text,
} from "./stores.ts";

quickTime();

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Connects as a stranger; resolves when the store has ended the connection. */
function stranger(port: number, say: (socket: Socket) => void): Promise<void> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: "127.0.0.1", port }, () => say(socket));
    closeAfter(async () => socket.destroy());
    socket.on("error", () => undefined);
    socket.on("close", () => resolve());
    socket.resume();
  });
}

const to = ({ server, secret }: Place) => ({ port: server.port, secret });

const total = ({ server }: Place): number =>
  [...server.dropped.values()].reduce((sum, count) => sum + count, 0);

/** That two ranks can join, and that what one sets the other gets. */
async function expectHealthy(at: Place): Promise<void> {
  const [zero, one] = await at.joinAll();
  await zero!.set("k", bytes("fine"));
  expect(text(await one!.get("k"))).toBe("fine");
  expect(zero!.lost).toEqual([]);
}

describe("before the proof", () => {
  test("random bytes", async () => {
    const at = await place(2, { handshakeMs: 200 });
    const [zero, one] = await at.joinAll();
    const before = total(at);
    const said = await helloOf(at.secret);
    const noise = fc.uint8Array({ maxLength: 1_500 });
    // Some that begin like TLS, so that its reader of messages is reached too.
    const broken = fc
      .tuple(fc.nat(said.length - 1), fc.nat(255), fc.nat(said.length))
      .map(([at, byte, length]) => {
        const other = Buffer.from(said.subarray(0, length));
        if (at < length) other[at] = byte;
        return other;
      });
    let runs = 0;
    await fc.assert(
      fc.asyncProperty(fc.oneof(noise, broken), fc.boolean(), async (data, ends) => {
        runs += 1;
        await stranger(at.server.port, (socket) => {
          if (ends) socket.end(data);
          else socket.write(data);
        });
        await expect.poll(() => total(at)).toBe(before + runs);
      }),
      { numRuns: 60, seed: 1 },
    );
    await zero!.set("k", bytes("fine"));
    expect(text(await one!.get("k"))).toBe("fine");
    expect(one!.lost).toEqual([]);
  }, 30_000);

  test("a handshake that ends anywhere, or stops anywhere", async () => {
    const at = await place(2, { handshakeMs: 3_000 });
    const said = await helloOf(at.secret);
    const cuts = [0, 1, 3, 4, 5, 20, said.length - 1];
    const ends = cuts.flatMap((cut) => [
      stranger(at.server.port, (socket) => socket.end(said.subarray(0, cut))),
      stranger(at.server.port, (socket) => socket.write(said.subarray(0, cut))),
    ]);
    await Promise.all(ends);
    expect(at.server.dropped.get("handshake deadline")).toBe(cuts.length);
    await expectHealthy(at);
  });

  test("a recorded hello without the key", async () => {
    const at = await place(2, { handshakeMs: 3_000 });
    const said = await helloOf(at.secret);
    const sizes: number[] = [];
    await stranger(at.server.port, (socket) => {
      socket.write(said);
      socket.on("data", (chunk) => sizes.push(chunk.length));
    });
    // Half open: the store waits for the proof of the other end, and says nothing about the job. A hello of OpenSSL 3.5 has a key
    // of 1,120 bytes, earlier ones of 32.
    expect([...at.server.dropped]).toEqual([["handshake deadline", 1]]);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBeLessThan(1_500);
    await expectHealthy(at);
  });

  test("one byte at a time, without an end", async () => {
    const at = await place(2, { handshakeMs: 150 });
    const began = performance.now();
    const said = await helloOf(at.secret);
    let timer: NodeJS.Timeout | undefined;
    await stranger(at.server.port, (socket) => {
      let sent = 0;
      timer = setInterval(() => {
        socket.write(said.subarray(sent, sent + 1));
        sent += 1;
      }, 10);
    });
    clearInterval(timer);
    expect(performance.now() - began).toBeLessThan(15_000);
    expect(at.server.dropped.get("handshake deadline")).toBe(1);
    await expectHealthy(at);
  });

  test.each([
    ["a wrong key", "wrong key", { secret: "a wrong secret of this test" }, {}],
    ["another identity", /NO_SUITABLE_SIGNATURE|NO_SHARED_CIPHER/, {}, "another job"],
    ["no key", /NO_SUITABLE_SIGNATURE|NO_SHARED_CIPHER/, {}, { pskCallback: undefined }],
    [
      "TLS 1.2",
      /UNSUPPORTED_PROTOCOL/,
      {},
      { minVersion: "TLSv1.2", maxVersion: "TLSv1.2", ciphers: "PSK" },
    ],
  ] as const)("%s is refused within the handshake", async (_, reason, target, options) => {
    const at = await place(2);
    const rest =
      typeof options === "string"
        ? { pskCallback: () => ({ psk: keyOf(at.secret), identity: options }) }
        : options;
    const refused = speaker({ ...to(at), ...target }, rest as object);
    await expect(within(15_000, refused)).rejects.toMatchObject({
      code: expect.stringMatching(/^ERR_SSL_.*ALERT/),
    });
    const [[found] = []] = [...at.server.dropped];
    if (typeof reason === "string") expect(found).toBe(reason);
    else expect(found).toMatch(reason);
    await expectHealthy(at);
  });

  test("plain text, of this protocol, of its first version and of the web", async () => {
    const at = await place(2);
    const texts = [
      framed(encode(requests, hello())),
      Buffer.concat([Buffer.from("0000003c0154574e44", "hex"), Buffer.alloc(60)]),
      Buffer.from("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ];
    for (const said of texts) await stranger(at.server.port, (socket) => socket.write(said));
    for (const reason of at.server.dropped.keys()) expect(reason).toMatch(/^ERR_SSL_/);
    expect(total(at)).toBe(texts.length);
    await expectHealthy(at);
  });

  test("more idle connections than are allowed do not keep ranks out", async () => {
    const at = await place(2);
    const ends: Promise<void>[] = [];
    const accepted = (message: unknown): void => {
      const { socket } = message as { readonly socket: Socket };
      if (socket.localPort === at.server.port)
        ends.push(new Promise((resolve) => socket.once("close", () => resolve())));
    };
    subscribe("net.server.socket", accepted);
    onTestFinished(() => void unsubscribe("net.server.socket", accepted));
    for (let count = 0; count < 1_000; count++) void stranger(at.server.port, () => undefined);
    await pause(50);
    await expectHealthy(at);
    expect(at.server.dropped.get("too many connections")).toBeGreaterThan(100);
    await at.server.close();
    // More than the system's queue of new connections holds: some stand for their own end alone, and get no end of the store.
    expect(ends.length).toBeGreaterThan(100);
    await Promise.all(ends);
  });

  test("a replayed conversation", async () => {
    const at = await place(2);
    const recorded: Buffer[] = [];
    const { port } = await relay(at.server.port, (chunk, from) => {
      if (from === "rank") recorded.push(Buffer.from(chunk));
      return chunk;
    });
    const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
    const options = { jobId: at.jobId, size: 2 };
    const members = await Promise.all([rendezvous.join({ ...options, rank: 0 }), at.join(1)]);
    expect(recorded.length).toBeGreaterThanOrEqual(3);
    await stranger(at.server.port, (socket) => socket.write(Buffer.concat(recorded)));
    const [[reason] = []] = [...at.server.dropped];
    expect(reason).toMatch(/^ERR_SSL_/);
    await members[0]!.set("k", bytes("v"));
    expect(text(await members[1]!.get("k"))).toBe("v");
  });
});

describe("a store without the secret learns nothing, and gets no trust", () => {
  test("where it belongs to another job", async () => {
    const at = await place(1);
    const other = await place(1);
    const rendezvous = tcpRendezvous({ port: other.server.port, secret: at.secret, host: "other" });
    const error = await errorOf(rendezvous.join({ jobId: "test-job", rank: 0, size: 1 }));
    expect(error.message).toContain("the store has another secret");
  });

  test("where it has a certificate, also one that this machine trusts", async () => {
    const server = createTlsServer({
      ...{ minVersion: "TLSv1.3", cert: certificate, key: privateKey },
    });
    const spoken = vi.fn();
    server.on("secureConnection", (socket) =>
      socket.on("error", () => undefined).on("data", spoken),
    );
    server.on("tlsClientError", () => undefined);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closeAfter(async () => void server.close());
    const { port } = server.address() as { port: number };
    // An ordinary client that trusts it gets through.
    const trusting = connect({ port, host: "127.0.0.1", ca: certificate, servername: "localhost" });
    await new Promise((resolve) => trusting.once("secureConnect", resolve));
    trusting.destroy();
    vi.stubEnv("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    const rendezvous = tcpRendezvous({ port, secret: "a secret of this test", host: "other" });
    const error = await errorOf(rendezvous.join({ jobId: "test-job", rank: 0, size: 1 }));
    vi.unstubAllEnvs();
    expect(error.message).toContain("what answers does not know the secret");
    expect(spoken).not.toHaveBeenCalled();
  });

  test("where it answers in plain text", async () => {
    const server = createServer((socket) => {
      socket.on("error", () => undefined).once("data", () => socket.write(framed(bytes("hello"))));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closeAfter(async () => void server.close());
    const { port } = server.address() as { port: number };
    const rendezvous = tcpRendezvous({ port, secret: "a secret of this test", host: "other" });
    const error = await errorOf(rendezvous.join({ jobId: "test-job", rank: 0, size: 1 }));
    expect(error.message).toMatch(/what answers is no store of this version \(ERR_SSL_/);
  });
});

test("a network sees nothing of the job: its name, its ranks, its values", async () => {
  const at = await place(2, { jobId: "a name of a job" });
  const seen: Buffer[] = [];
  const { port } = await relay(at.server.port, (chunk) => {
    seen.push(Buffer.from(chunk));
    return chunk;
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const request = { jobId: "a name of a job", size: 2 };
  const [zero] = await Promise.all([0, 1].map((rank) => rendezvous.join({ ...request, rank })));
  await zero!.set("a key of it", bytes("a value of it"));
  const all = Buffer.concat(seen).toString("latin1");
  for (const word of ["a name of a job", "a key of it", "a value of it", "kind", at.secret])
    expect(all).not.toContain(word);
  expect(all).not.toContain(Buffer.from("a value of it").toString("base64"));
});

describe("versions", () => {
  test("a rank of another version is refused by it, and gets the version of the store", async () => {
    const at = await place(2);
    const other = await speaker(to(at));
    other.send('{"kind":"hello","version":99,"more":[]}');
    await within(15_000, other.ended);
    expect(other.replies).toEqual([{ kind: "welcome", version: protocolVersion }]);
    expect([...at.server.dropped.keys()]).toEqual([
      "sent what is no message: version 99 of the protocol, needs version 2",
    ]);
    await expectHealthy(at);
  });

  test("a store of another version is refused by it", async () => {
    const secret = "a secret of this test";
    const server = createTlsServer({ ...tlsSettings, pskCallback: () => keyOf(secret) });
    server.on("secureConnection", (socket) => {
      socket
        .on("error", () => undefined)
        .on("data", () => {
          socket.write(framed(bytes('{"kind":"welcome","version":3,"more":true}')));
        });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closeAfter(async () => void server.close());
    const { port } = server.address() as { port: number };
    const rendezvous = tcpRendezvous({ port, secret, host: "other" });
    const error = await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 1 }));
    expect(error.message).toContain(
      "the store speaks version 3 of the protocol, needs version 2: give every process the same twinccl",
    );
  });
});

describe("after the proof", () => {
  const flip = (chunk: Buffer): Buffer => Buffer.from(chunk.map((b, i) => b ^ +(i === 9)));
  const tampered: [string, "rank" | "store", (chunk: Buffer) => Buffer][] = [
    ["a flipped bit of a rank", "rank", flip],
    ["a repeated frame of a rank", "rank", (chunk) => Buffer.concat([chunk, chunk])],
    ["an injected frame", "rank", (chunk) => Buffer.concat([framed(bytes("x".repeat(40))), chunk])],
    ["a flipped bit of the store", "store", flip],
    ["a repeated frame of the store", "store", (chunk) => Buffer.concat([chunk, chunk])],
  ];
  test.each(tampered)("%s ends that connection alone", async (_, from, tamper) => {
    const at = await place(2);
    let isTampering = false;
    const { port } = await relay(at.server.port, (chunk, side) =>
      isTampering && side === from ? tamper(chunk) : chunk,
    );
    const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
    const joined = rendezvous.join({ jobId: at.jobId, rank: 0, size: 2 });
    const [zero, one] = await Promise.all([joined, at.join(1)]);
    const waiting = errorOf(one.exchange("never", bytes("")));
    isTampering = true;
    const outcome = await zero.get("also never", { timeoutMs: 50 }).catch((error) => error.code);
    expect(["ERR_COMM_RENDEZVOUS", "ERR_COMM_TIMEOUT"]).toContain(outcome);
    expect(await waiting).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [0] });
    const alone = await one.rejoin({ without: [0] });
    expect(alone.size).toBe(1);
  });

  const join = {
    ...{ kind: "join", id: 1, jobId: "test-job", rank: 0, generation: 0, size: 2 },
    ...{ timeoutMs: 1_000, limitMs: 1_000, label: "x" },
  } as Extract<Request, { kind: "join" }>;
  const set = { kind: "set", id: 1, generation: 0, key: "k", value: bytes("v") } as const;
  const joinText = (more: object): string => JSON.stringify({ ...join, ...more });
  const no = "sent what is no message: ";
  test.each([
    ["no message", ["\u0000"], `${no}no JSON`],
    ["a list", ["[]"], `${no}no object`],
    ["an unknown kind", ['{"kind":"constructor"}'], `${no}an unknown kind of message`],
    ["a request before hello", [set], `${no}set before join`],
    ["a join before hello", [join], `${no}join before hello`],
    ["a request before it has joined", [hello(), set], `${no}set before join`],
    ["a second hello", [hello(), hello()], `${no}a second hello`],
    ["a message with more behind it", [hello(), `${joinText({})}1`], `${no}no JSON`],
    [
      "a field that no message has",
      [hello(), joinText({ more: 1 })],
      `${no}join: the unknown field "more"`,
    ],
    [
      "a field twice",
      [hello(), joinText({}).replace("{", '{"rank":1,')],
      `${no}the field "rank" twice`,
    ],
    [
      "__proto__",
      [hello(), joinText({}).replace("{", '{"__proto__":[],')],
      `${no}join: the unknown field "__proto__"`,
    ],
    [
      "a field with an escaped name",
      [hello(), joinText({}).replace('"rank"', '"r\\u0061nk"')],
      `${no}a field with an escaped name`,
    ],
    [
      "lists nested deeply",
      [hello(), `{"kind":"join","id":${"[".repeat(4_000)}`],
      `${no}nested more than 4 deep`,
    ],
    [
      "an object within",
      [hello(), '{"kind":"join","id":{"a":1}}'],
      `${no}an object within another`,
    ],
    [
      "a rank that is not a number",
      [hello(), joinText({}).replace('"rank":0', '"rank":NaN')],
      `${no}no JSON`,
    ],
    [
      "a rank that is null",
      [hello(), joinText({ rank: Number.NaN })],
      `${no}join: the field "rank" needs a whole number in 0..65535`,
    ],
    [
      "a rank that is infinite",
      [hello(), joinText({}).replace('"rank":0', '"rank":1e999')],
      `${no}join: the field "rank" needs a whole number in 0..65535`,
    ],
    [
      "a rank that is a text",
      [hello(), joinText({ rank: "0" })],
      `${no}join: the field "rank" needs a whole number in 0..65535`,
    ],
    [
      "no rank",
      [hello(), joinText({ rank: undefined })],
      `${no}join: the field "rank" needs a whole number in 0..65535`,
    ],
    ["bytes that are no UTF-8", [hello(), Buffer.from("7b226bff", "hex")], `${no}no JSON`],
    ["a second join", [hello(), join, { ...join, id: 2 }], undefined],
  ] as [string, (Request | string | Buffer)[], string | undefined][])(
    "a client with the secret that sends %s is disconnected",
    async (_, frames, reason) => {
      const at = await place(2);
      const open = await speaker(to(at));
      open.send(...frames);
      await within(15_000, open.ended);
      expect([...at.server.dropped.keys()]).toEqual(reason === undefined ? [] : [reason]);
      await expectHealthy(at);
    },
  );

  test.each([
    ["4 GiB", "ffffffff00", 4_294_967_295],
    ["a byte too many", "00001001ff", 4_097],
  ])("a frame that claims %s is dropped before it comes", async (_, head, length) => {
    const at = await place(2);
    const open = await speaker(to(at));
    open.socket.write(Buffer.from(head, "hex"));
    await within(15_000, open.ended);
    expect([...at.server.dropped.keys()]).toEqual([
      `sent a frame of ${length} bytes, at most 4096 allowed`,
    ]);
    await expectHealthy(at);
  });

  test("a frame of a rank that claims 4 GiB is the loss of that rank, by name", async () => {
    const at = await place(2);
    const healthy = at.join(1);
    const open = await speaker(to(at));
    open.send(hello(), join);
    const one = await healthy;
    open.socket.write(Buffer.from("ffffffff00", "hex"));
    await within(15_000, open.ended);
    await expect
      .poll(() => one.lost)
      .toMatchObject([
        {
          rank: 0,
          reason: expect.stringMatching(/^sent a frame of 4294967295 bytes, at most \d+ al/),
        },
      ]);
  });

  test("of requests for past or unknown things does no harm", async () => {
    const at = await place(2);
    const healthy = at.join(1);
    const unasked: Request[] = [
      { kind: "cancel", id: 77 },
      { kind: "get", id: 2, generation: 9, key: "k", timeoutMs: 5 },
      { kind: "rejoin", id: 3, generation: 4, without: [0, 65_535], settleMs: 0, timeoutMs: 5 },
      { kind: "rejoin", id: 4, generation: 0, without: [0], settleMs: 0, timeoutMs: 5 },
    ];
    const open = await speaker(to(at));
    open.send(hello(), join, ...unasked);
    const waiting = errorOf((await healthy).exchange("k", bytes("")));
    open.send({ kind: "leave", status: undefined });
    expect((await waiting).message).toContain("rank 0 has left");
    await within(15_000, open.ended);
  });

  test("replayed requests of another generation change nothing in this one", async () => {
    const at = await place(2);
    const joining = at.join(1);
    const open = await speaker(to(at));
    open.send(hello(), join);
    const one = await joining;
    const rejoin = { kind: "rejoin", generation: 0, settleMs: 0, timeoutMs: 5_000 } as const;
    const rejoining = one.rejoin({ without: [] });
    open.send({ ...rejoin, id: 2, without: [] });
    const next = await rejoining;
    const barriers = [{ key: "e", ranks: [] }];
    const value = bytes("old");
    const old: Request[] = [
      { kind: "set", id: 3, generation: 0, key: "k", value },
      { kind: "barrier", id: 4, generation: 0, barriers, value, timeoutMs: 5_000 },
      { ...rejoin, id: 5, without: [1] },
      { kind: "set", id: 6, generation: 7, key: "k", value },
    ];
    open.send(...old);
    await expect.poll(() => open.replies.length).toBe(3 + old.length);
    expect(open.replies.slice(3)).toMatchObject(
      [3, 4, 5, 6].map((id) => ({ kind: "failed", id, code: "over" })),
    );
    expect(await errorOf(next.get("k", { timeoutMs: 20 }))).toMatchObject({
      code: "ERR_COMM_TIMEOUT",
    });
    expect([next.size, next.lost]).toEqual([2, []]);
  });
});

describe("messages", () => {
  const id = fc.nat(2 ** 31);
  const key = fc.string({ unit: "grapheme", minLength: 1, maxLength: 40 });
  // Texts that errors show arrive without control characters.
  const line = fc.string({ maxLength: 40 });
  const value = fc.uint8Array({ maxLength: 50 });
  const ranks = fc.array(fc.nat(65_535), { maxLength: 5 });
  const generation = fc.nat(100);
  const timeoutMs = fc.nat(2 ** 31 - 1);
  const token = fc.uint8Array({ minLength: 16, maxLength: 16 });
  const version = fc.constant(protocolVersion);
  const of = <T extends string>(kind: T) => fc.constant(kind);
  const anyRequest: fc.Arbitrary<Request> = fc.oneof(
    fc.record({ kind: of("hello"), version, token }),
    fc.record({ kind: of("liveness"), version, token }),
    fc.record({
      ...{
        kind: of("join"),
        id,
        generation,
        rank: fc.nat(9),
        size: fc.integer({ min: 1, max: 9 }),
      },
      ...{ timeoutMs, limitMs: timeoutMs, jobId: key, label: line },
    }),
    fc.record({ kind: of("set"), id, generation, key, value }),
    fc.record({ kind: of("get"), id, generation, key, timeoutMs }),
    fc.record({
      ...{ kind: of("rejoin"), id, generation, settleMs: timeoutMs, timeoutMs },
      without: fc.option(ranks, { nil: undefined }),
    }),
    fc.record({
      ...{ kind: of("barrier"), id, generation, timeoutMs },
      value: fc.option(value, { nil: undefined }),
      barriers: fc.array(fc.record({ key, ranks }), { maxLength: 4 }),
    }),
    fc.record({ kind: of("cancel"), id }),
    fc.record({ kind: of("leave"), status: fc.option(key, { nil: undefined }) }),
    fc.record({ kind: of("announce"), generation, ranks, news: key }),
    fc.record({ kind: of("ask"), id, generation, rank: fc.nat(9), question: key, timeoutMs }),
    fc.record({ kind: of("answer"), id, generation, text: key }),
  );
  const anyReply: fc.Arbitrary<Reply> = fc.oneof(
    fc.record({ kind: of("welcome"), version }),
    fc.record({
      ...{ kind: of("joined"), id, generation, rank: fc.nat(9), initialRanks: ranks },
      hosted: fc.boolean(),
    }),
    fc.record({ kind: of("done"), id }),
    fc.record({ kind: of("withdrawn"), id }),
    fc.record({ kind: of("value"), id, value }),
    fc.record({ kind: of("values"), id, values: fc.array(value, { maxLength: 4 }) }),
    fc.record({
      ...{ kind: of("failed"), id, headline: line, hint: line, ranks, joined: ranks },
      code: fc.constantFrom<Failure["code"][]>("timeout", "gone", "taken", "in use"),
    }),
    fc.record({
      ...{ kind: of("lost"), generation, rank: fc.nat(9), reason: line },
      atMs: fc.nat(),
    }),
    fc.record({ kind: of("answered"), id, text: key }),
    fc.record({ kind: of("news"), generation, rank: fc.nat(9), news: key }),
    fc.record({ kind: of("asked"), id, generation, question: key }),
    fc.record({ kind: of("began"), generation, ranks }),
    fc.record({ kind: of("closing"), reason: line }),
    fc.record({ kind: of("bye") }),
  );

  test("are equal after encoding and decoding", () => {
    fc.assert(
      fc.property(anyRequest, (each) => {
        expect(decode(requests, encode(requests, each))).toEqual(each);
      }),
    );
    fc.assert(
      fc.property(anyReply, (each) => {
        expect(decode(replies, encode(replies, each))).toEqual(each);
      }),
    );
  });

  test("cut short or lengthened are refused", () => {
    fc.assert(
      fc.property(anyRequest, fc.nat(), (request, at) => {
        const whole = encode(requests, request);
        const cut = whole.subarray(0, at % whole.length);
        expect(() => decode(requests, cut)).toThrow(FrameError);
        expect(() => decode(requests, Buffer.concat([whole, Buffer.of(0)]))).toThrow(FrameError);
      }),
    );
  });

  test("of random or changed bytes are refused or harmless, never another error", () => {
    const changed = fc.tuple(anyRequest, fc.nat(), fc.nat(255)).map(([request, at, byte]) => {
      const whole = encode(requests, request);
      whole[at % whole.length] = byte;
      return whole;
    });
    const json = fc.json().map((text) => Buffer.from(text));
    const wild = fc.oneof(fc.uint8Array({ maxLength: 80 }), json, changed);
    fc.assert(
      fc.property(wild, (frame) => {
        for (const table of [requests, replies]) {
          try {
            decode(table as typeof requests, frame);
          } catch (error) {
            expect(error).toBeInstanceOf(FrameError);
          }
        }
      }),
      { numRuns: 2_000 },
    );
  });

  test("with bytes in another alphabet than base64's, or too many of them, are refused", () => {
    const set = (value: string): Buffer =>
      Buffer.from(JSON.stringify({ kind: "set", id: 1, generation: 0, key: "k", value }));
    expect(decode(requests, set("AQID"))).toMatchObject({ value: Uint8Array.of(1, 2, 3) });
    for (const wrong of ["AQI", "AQ-_", "AQ I", "A===", "AQID".repeat(2 ** 19)])
      expect(() => decode(requests, set(wrong))).toThrow(
        'set: the field "value" needs base64 of at most 1048576 bytes',
      );
  });
});
