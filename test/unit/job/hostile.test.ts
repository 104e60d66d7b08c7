/** Strangers and broken bytes at the port of a job that runs: dropped, and the job does not notice. */

import { createConnection, type Socket } from "node:net";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  decodeChallenge,
  encodeChallenge,
  encodeHello,
  encodeProof,
  FrameSeal,
  freshNonce,
  isProof,
} from "../../../src/job/connection.ts";
import {
  decodeReply,
  decodeRequest,
  encodeReply,
  encodeRequest,
  failureCodes,
  type Reply,
  type Request,
  WireError,
} from "../../../src/job/protocol.ts";
import { tcpRendezvous } from "../../../src/job/tcp.ts";
import { closeAfter } from "../../support/opened.ts";
import { quickTime } from "../../support/quick-time.ts";
import { bytes, errorOf, type Place, place, relay, text } from "./stores.ts";

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

/** Bytes that the frames of a handshake begin with. */
const kindOf = { storeProof: 4 } as const;

const total = ({ server }: Place): number =>
  [...server.dropped.values()].reduce((sum, count) => sum + count, 0);

const framed = (payload: Uint8Array): Buffer => {
  const head = Buffer.alloc(4);
  head.writeUInt32BE(payload.length);
  return Buffer.concat([head, payload]);
};

/**
 * Proves knowledge of the secret as a rank does, then sends the given bytes, and more of them later; resolves when the
 * store has ended it.
 */
function speaker(
  { server, secret, jobId }: Place,
  rank: number,
  bodies: readonly Buffer[],
  later: Promise<unknown> = Promise.resolve(),
  last?: Buffer,
): Promise<void> {
  const hello = { jobId, rank, nonce: freshNonce() };
  return stranger(server.port, (socket) => {
    socket.write(framed(encodeHello(hello)));
    socket.once("data", (chunk) => {
      const exchanged = { hello, nonce: decodeChallenge(chunk.subarray(4)) };
      const seal = new FrameSeal("rank", secret, exchanged);
      const frames = bodies.map((body) => framed(seal.seal(body)));
      socket.write(Buffer.concat([framed(encodeProof("rank", secret, exchanged)), ...frames]));
      if (last !== undefined) void later.then(() => socket.write(framed(seal.seal(last))));
    });
  });
}

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
    const noise = fc.uint8Array({ maxLength: 1_500 });
    // Some that begin like a frame, so that the reader of messages is reached too.
    const frames = fc
      .array(fc.uint8Array({ maxLength: 300 }), { maxLength: 4 })
      .map((parts) => Buffer.concat(parts.map(framed)));
    let runs = 0;
    await fc.assert(
      fc.asyncProperty(fc.oneof(noise, frames), fc.boolean(), async (data, ends) => {
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
    const hello = { jobId: at.jobId, rank: 0, nonce: freshNonce() };
    const said = framed(encodeHello(hello));
    const cuts = [0, 1, 3, 4, 5, 20, said.length - 1, said.length];
    const ends = cuts.flatMap((cut) => [
      stranger(at.server.port, (socket) => socket.end(said.subarray(0, cut))),
      stranger(at.server.port, (socket) => socket.write(said.subarray(0, cut))),
    ]);
    await Promise.all(ends);
    expect(at.server.dropped.get("handshake deadline")).toBe(cuts.length);
    await expectHealthy(at);
  });

  test("one byte at a time, for ever", async () => {
    const at = await place(2, { handshakeMs: 150 });
    const began = performance.now();
    const said = framed(encodeHello({ jobId: at.jobId, rank: 0, nonce: freshNonce() }));
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

  test("a frame that claims to be huge is dropped before it comes", async () => {
    const at = await place(2);
    await stranger(at.server.port, (socket) => socket.write(Buffer.from("ffffffff00", "hex")));
    await stranger(at.server.port, (socket) => socket.write(Buffer.from("00000201ff", "hex")));
    expect([...at.server.dropped.keys()]).toEqual([
      "sent a frame of 4294967295 bytes, at most 512 allowed",
      "sent a frame of 513 bytes, at most 512 allowed",
    ]);
    await expectHealthy(at);
  });

  test("more idle connections than are allowed do not keep ranks out", async () => {
    const at = await place(2);
    const idle = Array.from({ length: 200 }, () => stranger(at.server.port, () => undefined));
    await pause(50);
    await expectHealthy(at);
    expect(at.server.dropped.get("too many connections")).toBeGreaterThan(100);
    await at.server.close();
    await Promise.all(idle);
  });

  test("a replayed handshake", async () => {
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
    expect(at.server.dropped.get("wrong proof")).toBe(1);
    await members[0]!.set("k", bytes("v"));
    expect(text(await members[1]!.get("k"))).toBe("v");
  });

  test("a store without the secret learns nothing, and gets no trust", async () => {
    const at = await place(1);
    const other = await place(1);
    // Between a rank of one job and the store of another.
    const rendezvous = tcpRendezvous({ port: other.server.port, secret: at.secret, host: "other" });
    const error = await errorOf(rendezvous.join({ jobId: "test-job", rank: 0, size: 1 }));
    expect(error.message).toContain("the store has another secret");
    // One that plays a rank's proof back instead of making its own.
    const echoes: Buffer[] = [];
    const { port } = await relay(at.server.port, (chunk, from) => {
      if (from === "rank") {
        echoes.push(Buffer.from(chunk));
        return chunk;
      }
      const echo = chunk[4] === kindOf.storeProof ? echoes.at(-1) : undefined;
      if (echo !== undefined) echo[4] = kindOf.storeProof;
      return echo ?? chunk;
    });
    const fooled = tcpRendezvous({ port, secret: at.secret, host: "other" });
    const second = await errorOf(fooled.join({ jobId: "test-job", rank: 0, size: 1 }));
    expect(second.message).toContain("what answers does not know the secret");
  });
});

describe("the proof", () => {
  const secret = "a secret of this test";
  const exchanged = {
    hello: { jobId: "job", rank: 3, nonce: freshNonce() },
    nonce: freshNonce(),
  };

  test("holds for exactly one role, job, rank, pair of nonces and secret", () => {
    const proof = encodeProof("rank", secret, exchanged);
    expect(isProof(proof, "rank", secret, exchanged)).toBe(true);
    const { hello, nonce } = exchanged;
    const others = [
      { hello: { ...hello, jobId: "job2" }, nonce },
      { hello: { ...hello, rank: 2 }, nonce },
      { hello: { ...hello, nonce: freshNonce() }, nonce },
      { hello, nonce: freshNonce() },
    ];
    for (const other of others) expect(isProof(proof, "rank", secret, other)).toBe(false);
    expect(isProof(proof, "rank", `${secret}.`, exchanged)).toBe(false);
    const mirrored = Buffer.from(proof);
    mirrored[0] = kindOf.storeProof;
    expect(isProof(mirrored, "store", secret, exchanged)).toBe(false);
  });

  test("and frames: only the next one of the other end is accepted", () => {
    const [out, back] = [
      new FrameSeal("rank", secret, exchanged),
      new FrameSeal("store", secret, exchanged),
    ];
    const first = out.seal(bytes("one"));
    const second = out.seal(bytes("one"));
    expect(first.equals(second)).toBe(false);
    const open = (frames: readonly Buffer[]) => {
      const seal = new FrameSeal("rank", secret, exchanged);
      return frames.map((frame) => seal.open(frame)?.toString());
    };
    expect(open([first, second])).toEqual(["one", "one"]);
    expect(open([first, first])).toEqual(["one", undefined]);
    expect(open([second])).toEqual([undefined]);
    expect(open([back.seal(bytes("one"))])).toEqual([undefined]);
    expect(open([Buffer.alloc(3)])).toEqual([undefined]);
    for (let at = 0; at < first.length; at += 1) {
      const flipped = Buffer.from(first);
      flipped[at]! ^= 1;
      expect(open([flipped])).toEqual([undefined]);
    }
  });

  test("a challenge is not accepted as a proof", () => {
    expect(() => isProof(encodeChallenge(freshNonce()), "rank", secret, exchanged)).toThrow(
      WireError,
    );
  });
});

describe("after the proof", () => {
  const tampered: [string, "rank" | "store", (chunk: Buffer) => Buffer][] = [
    [
      "a flipped bit of a rank",
      "rank",
      (chunk) => Buffer.from(chunk.map((b, i) => b ^ +(i === 9))),
    ],
    ["a repeated frame of a rank", "rank", (chunk) => Buffer.concat([chunk, chunk])],
    ["an injected frame", "rank", (chunk) => Buffer.concat([framed(bytes("x".repeat(40))), chunk])],
    [
      "a flipped bit of the store",
      "store",
      (chunk) => Buffer.from(chunk.map((b, i) => b ^ +(i === 9))),
    ],
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
    kind: "join",
    id: 1,
    generation: 0,
    size: 2,
    timeoutMs: 1_000,
    label: "x",
  } as const;
  const late = {
    kind: "join",
    id: 2,
    generation: 0,
    size: 2,
    timeoutMs: 1_000,
    label: "x",
  } as const;
  const set = { kind: "set", id: 1, generation: 0, key: "k", value: bytes("v") } as const;
  test.each([
    ["no message", [Buffer.from("ff00", "hex")], "no kind of request"],
    ["a request before it has joined", [encodeRequest(set)], "set before join"],
    [
      "a message with more behind it",
      [Buffer.concat([encodeRequest(join), Buffer.of(1)])],
      "1 bytes too many",
    ],
    [
      "that it stands beside a connection that there is not",
      [encodeRequest({ kind: "liveness", nonce: freshNonce() })],
      "liveness of no connection",
    ],
    ["a second join", [encodeRequest(join), encodeRequest(late)], undefined],
  ])("a client with the secret that sends %s is disconnected", async (_, bodies, reason) => {
    const at = await place(2);
    await speaker(at, 0, bodies);
    const dropped = [...at.server.dropped.keys()];
    expect(dropped).toEqual(reason === undefined ? [] : [`sent what is no message: ${reason}`]);
    await expectHealthy(at);
  });

  test("of requests for past or unknown things does no harm", async () => {
    const at = await place(2);
    const healthy = at.join(1);
    const unasked: Request[] = [
      { kind: "cancel", id: 77 },
      { kind: "get", id: 2, generation: 9, key: "k", timeoutMs: 5, needs: undefined },
      { kind: "get", id: 2, generation: 9, key: "k", timeoutMs: 5, needs: [0, 3] },
      { kind: "rejoin", id: 3, generation: 4, without: [0, 65_535], settleMs: 0, timeoutMs: 5 },
      { kind: "rejoin", id: 4, generation: 0, without: [0], settleMs: 0, timeoutMs: 5 },
    ];
    const leave = encodeRequest({ kind: "leave" });
    const spoken = speaker(at, 0, [join, ...unasked].map(encodeRequest), healthy, leave);
    const error = await errorOf((await healthy).exchange("k", bytes("")));
    await spoken;
    expect(error.message).toContain("rank 0 has left");
  });
});

describe("messages", () => {
  const id = fc.nat(2 ** 31);
  const key = fc.string({ unit: "grapheme", minLength: 1, maxLength: 40 });
  const value = fc.uint8Array({ maxLength: 50 });
  const ranks = fc.array(fc.nat(65_535), { maxLength: 5 });
  const generation = fc.nat(100);
  const timeoutMs = fc.nat(2 ** 31 - 1);
  const of = <T extends string>(kind: T) => fc.constant(kind);
  const requests: fc.Arbitrary<Request> = fc.oneof(
    fc.record({ kind: of("join"), id, generation, size: fc.nat(9), timeoutMs, label: key }),
    fc.record({ kind: of("set"), id, generation, key, value }),
    fc.record({
      ...{ kind: of("get"), id, generation, key, timeoutMs },
      needs: fc.option(ranks, { nil: undefined }),
    }),
    fc.record({ kind: of("exchange"), id, generation, key, value, timeoutMs }),
    fc.record({
      ...{ kind: of("rejoin"), id, generation, settleMs: timeoutMs, timeoutMs },
      without: fc.option(ranks, { nil: undefined }),
    }),
    fc.record({
      ...{ kind: of("barrier"), id, generation, timeoutMs },
      barriers: fc.array(fc.record({ key, ranks }), { maxLength: 4 }),
    }),
    fc.record({ kind: of("cancel"), id }),
    fc.record({ kind: of("leave") }),
    fc.record({ kind: of("liveness"), nonce: fc.uint8Array({ minLength: 32, maxLength: 32 }) }),
  );
  const replies: fc.Arbitrary<Reply> = fc.oneof(
    fc.record({
      ...{ kind: of("joined"), id, generation, rank: fc.nat(9), initialRanks: ranks },
      hosted: fc.boolean(),
    }),
    fc.record({ kind: of("done"), id }),
    fc.record({ kind: of("withdrawn"), id }),
    fc.record({ kind: of("value"), id, value }),
    fc.record({ kind: of("values"), id, values: fc.array(value, { maxLength: 4 }) }),
    fc.record({
      ...{ kind: of("failed"), id, headline: key, hint: key, ranks, joined: ranks },
      code: fc.constantFrom(...failureCodes),
    }),
    fc.record({
      ...{ kind: of("lost"), generation, rank: fc.nat(9), reason: key },
      atMs: fc.double({ noNaN: true }),
    }),
    fc.record({ kind: of("closing"), reason: key }),
    fc.record({ kind: of("bye") }),
  );

  test("are equal after encoding and decoding", () => {
    fc.assert(
      fc.property(requests, (each) => {
        expect(decodeRequest(encodeRequest(each))).toEqual(each);
      }),
    );
    fc.assert(
      fc.property(replies, (each) => {
        expect(decodeReply(encodeReply(each))).toEqual(each);
      }),
    );
  });

  test("cut short or lengthened are refused", () => {
    fc.assert(
      fc.property(requests, fc.nat(), (request, at) => {
        const whole = encodeRequest(request);
        expect(() => decodeRequest(whole.subarray(0, at % whole.length))).toThrow(WireError);
        expect(() => decodeRequest(Buffer.concat([whole, Buffer.of(0)]))).toThrow(WireError);
      }),
    );
  });

  test("of random bytes are refused or harmless, never another error", () => {
    const wild = fc.tuple(fc.nat(9), fc.uint8Array({ maxLength: 80 }));
    fc.assert(
      fc.property(wild, ([kind, rest]) => {
        for (const decode of [decodeRequest, decodeReply]) {
          try {
            decode(Buffer.concat([Buffer.of(kind), rest]));
          } catch (error) {
            expect(error).toBeInstanceOf(WireError);
          }
        }
      }),
      { numRuns: 2_000 },
    );
  });
});
