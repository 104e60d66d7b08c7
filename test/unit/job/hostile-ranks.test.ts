/** Ranks with the secret that send what no rank of this version sends: errors by name, and bounds on what the store keeps. */
import { createServer as createTlsServer } from "node:tls";
import { describe, expect, test } from "vitest";
import type { CommInfo, RankCall, RemoteTransfer } from "../../../src/api/backend-entry.ts";
import { CommStatus } from "../../../src/job/comm-status.ts";
import { FramedSocket, keyOf, tlsSettings } from "../../../src/job/connection.ts";
import { decode, encode, FrameError, protocolVersion } from "../../../src/job/frames.ts";
import { Generation, type Member } from "../../../src/job/generation.ts";
import { MissingRankFinder } from "../../../src/job/missing-ranks.ts";
import { limits, type Reply, type Request, replies, requests } from "../../../src/job/protocol.ts";
import { openOnAllRanks } from "../../../src/job/rebuild.ts";
import type { Membership } from "../../../src/job/rendezvous.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { longTest } from "../../support/long-test.ts";
import { closeAfter } from "../../support/opened.ts";
import { within } from "../../support/planted.ts";
import { quickTime } from "../../support/quick-time.ts";
import { bytes, errorOf, hello, type Place, place, type Speaker, speaker } from "./stores.ts";

quickTime();

const to = ({ server, secret }: Place) => ({ port: server.port, secret });

const join = {
  ...{ kind: "join", id: 1, jobId: "test-job", rank: 0, generation: 0, size: 2 },
  ...{ timeoutMs: 5_000, limitMs: 5_000, label: "x" },
} as Extract<Request, { kind: "join" }>;

/** A job of two ranks: rank 0 speaks for itself, rank 1 is one of this version. */
async function pair(at: Place) {
  const joining = at.join(1);
  const zero = await speaker(to(at));
  zero.send(hello(), join);
  const one = await joining;
  await expect.poll(() => zero.replies.at(-1)?.kind).toBe("joined");
  return { zero, one };
}

/** The next answer to a request of that number. */
async function answer(open: Speaker, id: number): Promise<Reply | undefined> {
  const find = () => open.replies.find((each) => "id" in each && each.id === id);
  await expect.poll(find).toBeDefined();
  return find();
}

const wait = { kind: "barrier", generation: 0, timeoutMs: 5_000, value: bytes("v") } as const;

test.each([
  ["a rank that does not exist", [0, 1, 2]],
  ["without its sender", [1]],
  ["with a rank twice", [0, 0]],
])("a barrier of %s is refused by name", async (_, ranks) => {
  const { zero } = await pair(await place(2));
  zero.send({ ...wait, id: 2, barriers: [{ key: "k", ranks }] });
  expect(await answer(zero, 2)).toMatchObject({
    ...{ kind: "failed", code: "limit" },
    headline: "barrier: its ranks need to be some of 0..1, each once, and rank 0 one of them",
  });
});

test("a question to a rank that does not exist is refused", async () => {
  const { zero } = await pair(await place(2));
  zero.send({ kind: "ask", id: 2, generation: 0, rank: 7, question: "q", timeoutMs: 5_000 });
  expect(await answer(zero, 2)).toMatchObject({
    ...{ kind: "failed", code: "limit" },
    headline: "ask: its ranks need to be some of 0..1, each once",
  });
});

describe("liveness", () => {
  test("a connection has one silent connection, and no second one", async () => {
    const { zero } = await pair(await place(2));
    const at = await place(1, { handshakeMs: 60_000 });
    const token = new Uint8Array(16).fill(7);
    const spoken = await speaker(to(at));
    spoken.send(hello(token));
    await spoken.first;
    const silent = await Promise.all([speaker(to(at)), speaker(to(at))]);
    for (const each of silent) each.send({ kind: "liveness", version: 2, token });
    await within(15_000, Promise.race(silent.map(({ ended }) => ended)));
    expect([...at.server.dropped.keys()]).toEqual(["sent what is no message: a second liveness"]);
    expect(spoken.socket.destroyed || zero.socket.destroyed).toBe(false);
  });

  test.each([0, 15])("a token of %d bytes is refused", async (length) => {
    const at = await place(1, { handshakeMs: 60_000 });
    const open = await speaker(to(at));
    open.send(hello(new Uint8Array(length)));
    await within(15_000, open.ended);
    expect([...at.server.dropped.keys()]).toEqual([
      'sent what is no message: hello: the field "token" needs base64 of 16 bytes',
    ]);
  });
});

test("a kind in a list is refused", () => {
  for (const kind of ['["leave"]', '[["leave"]]', "null", "1"])
    expect(() => decode(requests, bytes(`{"kind":${kind}}`))).toThrow(FrameError);
});

describe("errors about thousands of ranks", () => {
  test("are short where survivors disagree", async () => {
    const at = await place(2);
    const { zero, one } = await pair(at);
    const without = Array.from({ length: limits.ranks - 2 }, (_, each) => each + 2);
    const rejoin = { kind: "rejoin", generation: 0, settleMs: 0, timeoutMs: 5_000 } as const;
    zero.send({ ...rejoin, id: 2, without });
    const error = await errorOf(one.rejoin({ without: [] }));
    expect(error.code).toBe("ERR_COMM_RENDEZVOUS");
    // Either of them comes first.
    expect(error.message).toMatch(
      /survivors disagree: rank [01] goes on without .+, another without /,
    );
    expect(error.message).toContain("without ranks 2..65535");
    expect(error.message).toContain("without no rank");
    expect(error.message.length).toBeLessThan(1_000);
  });

  longTest("are short where all of them were lost", async () => {
    const sent: Reply[] = [];
    const peer = { label: "rank", send: (reply: Reply) => void sent.push(reply) };
    const members = Array.from(
      { length: 2_000 },
      (_, initialRank): Member => ({ peer, initialRank, state: "here", reason: "" }),
    );
    const { JoinPhase } = await import("../../../src/job/store.ts");
    const from = new Generation(0, members);
    for (let rank = 1; rank < members.length; rank++)
      from.gone(rank, "lost", "a reason ".repeat(5));
    sent.length = 0;
    const events = { formed: () => undefined, empty: () => undefined };
    const phase = new JoinPhase(1, { kind: "rejoin", from, without: [] }, events);
    phase.add(0, peer, 1, 5_000, 0);
    expect(sent).toMatchObject([{ kind: "failed", code: "gone", ranks: { length: 1_999 } }]);
    const [failed] = sent as [Extract<Reply, { kind: "failed" }>];
    expect(failed.headline).toBe(
      `rebuild: ranks 1..1999 are gone; rank 1 was lost: ${"a reason ".repeat(5)}`,
    );
    // The rank can read it.
    expect(decode(replies, encode(replies, failed))).toEqual(failed);
  });
});

describe("the waits of a rank are bounded", () => {
  /** A generation of one rank, and its last answer. */
  function alone() {
    const sent: Reply[] = [];
    const peer = { label: "rank", send: (reply: Reply) => void sent.push(reply) };
    const members: Member[] = [0, 1].map((initialRank) => {
      return { peer, initialRank, state: "here", reason: "" };
    });
    const generation = new Generation(0, members);
    closeAfter(async () =>
      generation.end({ code: "over", headline: "", hint: "", ranks: [], joined: [] }),
    );
    return { generation, sent };
  }

  const get = (id: number) =>
    ({ kind: "get", id, generation: 0, key: `${id}`, timeoutMs: 9_000 }) as const;
  const ask = (id: number) =>
    ({ kind: "ask", id, generation: 0, rank: 1, question: `${id}`, timeoutMs: 9_000 }) as const;

  test("for keys and answers together, and free again once they end", () => {
    const { generation, sent } = alone();
    for (let id = 0; id < limits.waits; id += 2) {
      generation.get(0, get(id));
      generation.ask(0, ask(id + 1));
    }
    expect(sent.every(({ kind }) => kind === "asked")).toBe(true);
    generation.get(0, get(limits.waits));
    generation.ask(0, ask(limits.waits));
    const refused = { kind: "failed", id: limits.waits, code: "limit" };
    expect(sent.slice(-2)).toMatchObject([
      { ...refused, headline: `get: a rank has at most ${limits.waits} waits at once` },
      { ...refused, headline: `ask: a rank has at most ${limits.waits} waits at once` },
    ]);
    generation.cancel(0, 0);
    generation.get(0, get(limits.waits));
    expect(sent).toHaveLength(limits.waits / 2 + 2);
    generation.set(1, 1, "2", bytes("v"));
    generation.answer(1, { kind: "answer", id: 1, generation: 0, text: "a" });
    expect(sent.slice(-3)).toMatchObject([
      { kind: "value", id: 2 },
      { kind: "done", id: 1 },
      { kind: "answered", id: 1 },
    ]);
  });

  test("for one key, and once in a request", () => {
    const { generation, sent } = alone();
    const wait = (id: number, keys: readonly string[]): void => {
      const barriers = keys.map((key) => ({ key, ranks: [0, 1] }));
      const request = {
        kind: "barrier",
        generation: 0,
        timeoutMs: 9_000,
        value: undefined,
      } as const;
      generation.wait(0, { ...request, id, barriers });
    };
    for (let id = 0; id < limits.rounds; id++) wait(id, ["k"]);
    wait(64, ["other", "another"]);
    expect(sent).toEqual([]);
    wait(65, ["k"]);
    wait(66, ["a", "a"]);
    expect(sent).toMatchObject([65, 66].map((id) => ({ kind: "failed", id, code: "limit" })));
    generation.cancel(0, 7);
    sent.length = 0;
    wait(67, ["k"]);
    expect(sent).toEqual([]);
  });

  test("a question has the length of a key", async () => {
    const [zero] = await (await place(1)).joinAll();
    const error = await errorOf(zero!.ask(0, "q".repeat(limits.keyBytes + 1)));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "question" });
  });

  test("last statuses count toward the bytes of the store; one too many is not kept", () => {
    const sent: Reply[] = [];
    const peer = { label: "rank", send: (reply: Reply) => void sent.push(reply) };
    const count = limits.storeBytes / limits.valueBytes + 1;
    const members = Array.from(
      { length: count + 1 },
      (_, initialRank): Member => ({ peer, initialRank, state: "here", reason: "" }),
    );
    const generation = new Generation(0, members);
    const status = "s".repeat(limits.valueBytes);
    for (let rank = 1; rank <= count; rank++) generation.gone(rank, "left", "", status);
    expect(members.filter((each) => each.status !== undefined).length).toBeLessThan(count);
    generation.ask(0, { ...ask(1), rank: 1 });
    generation.ask(0, { ...ask(2), rank: count });
    expect(sent).toMatchObject([
      { kind: "answered", id: 1 },
      { kind: "failed", id: 2, code: "gone" },
    ]);
  });
});

describe("wrong answers of other processes", () => {
  const comm = { ranks: [0, 1, 2], name: "world" } as unknown as CommInfo;

  /** Finds missing ranks, where the others answer every question with a text. */
  function finder(answers: Readonly<Record<number, string>>): MissingRankFinder {
    const membership = {
      ...{ rank: 0, size: 3 },
      ask: async (rank: number) => answers[rank] as string,
      ...{
        onNews: () => undefined,
        onQuestion: () => undefined,
        onNextGeneration: () => undefined,
      },
    } as unknown as Membership;
    const status = new CommStatus(membership, () => "world");
    return new MissingRankFinder(membership, () => "world", status);
  }

  const report = (more: object): string =>
    JSON.stringify({ kind: "report", comm: "world", ...more });
  const call = { rank: 0 } as RankCall;
  const send = { direction: "send", peer: 2, number: 0, call } as RemoteTransfer;
  const fine = report({ submitted: 9, compared: 9, posted: [[2, 1]], waiting: [] });

  test.each([
    ["no JSON", "{"],
    ["null", "null"],
    ["a number", "5"],
    ["counters that are texts", report({ submitted: "9", posted: "9", waiting: [] })],
    ["lists of other things", report({ submitted: [9], posted: [[1]], waiting: 5 })],
    ["lists of objects", report({ submitted: 9, posted: [{}], waiting: [] })],
    ["negative numbers", report({ submitted: -1, posted: [[-7, 1]], waiting: [] })],
    ["another version's", JSON.stringify({ world: { submitted: 9 } })],
  ])("name their rank, where they are %s", async (_, answer) => {
    const found = finder({ 1: fine, 2: answer });
    expect(await found.forCall(comm, 3)).toEqual({
      ...{ ranks: [2], silent: [2], haveDiverged: false },
    });
    expect(await found.forMessages(comm, [send])).toEqual({ ranks: [2], silent: [2] });
    expect(await found.findClosers(comm)).toEqual([]);
  });

  test("messages of ranks that do not exist are not awaited", async () => {
    const waiting = [
      [9, 1],
      [2 ** 50, 3],
    ];
    const found = finder({ 1: fine, 2: report({ posted: [[2, 1]], waiting }) });
    expect(await found.forMessages(comm, [send])).toEqual({ ranks: [], silent: [] });
  });
});

test.each([
  ["no message", "{"],
  ["another shape", JSON.stringify({ rank: "7", code: null, text: 5 })],
  ["a rank that does not exist", JSON.stringify({ kind: "failure", rank: 7, text: "of it" })],
])("a failure to open that is %s ends the opening of all, by name", async (_, failure) => {
  const [zero, one] = await (await place(2)).joinAll();
  const opening = openOnAllRanks(
    zero!,
    {
      open: (_, { cancelled }) =>
        new Promise((_, reject) => cancelled.addEventListener("abort", reject)),
      undo: async () => undefined,
    },
    { timeoutMs: 5_000, signal: undefined },
  );
  const failed = errorOf(within(15_000, opening));
  await one!.set("opening failed", bytes(failure));
  const error = await failed;
  expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [] });
  expect(error.message).toContain(
    "connect: another rank of generation 1 could not open its session",
  );
});

const secret = "a secret of this test";

/** A process with the secret that acts as a store; gives its port. */
async function fakeStore(answers: (request: Request) => readonly Reply[]): Promise<number> {
  const server = createTlsServer({ ...tlsSettings, pskCallback: () => keyOf(secret) });
  server.on("secureConnection", (socket) => {
    socket.on("error", () => undefined);
    const framedSocket = new FramedSocket(socket, 100_000, {
      frame: (bytes) => {
        const request = decode(requests, bytes);
        const welcome: Reply = { kind: "welcome", version: protocolVersion };
        const all = request.kind === "hello" ? [welcome] : answers(request);
        for (const each of all) framedSocket.write(encode(replies, each));
      },
      ended: () => undefined,
    });
    closeAfter(async () => framedSocket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closeAfter(async () => void server.close());
  return (server.address() as { port: number }).port;
}

describe("a store that gives another answer ends by name", () => {
  const joined = { kind: "joined", id: 1, generation: 0, rank: 0, hosted: false } as const;

  test.each([
    ["done", [{ kind: "done", id: 1 }]],
    ["a place that does not exist", [{ ...joined, rank: 5, initialRanks: [0] }]],
    ["no ranks", [{ ...joined, initialRanks: [] }]],
  ] as [string, Reply[]][])("to a join: %s", async (_, answer) => {
    const port = await fakeStore(({ kind }) => (kind === "join" ? answer : []));
    const rendezvous = tcpRendezvous({ port, secret, host: "other" });
    const error = await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 1, deadlineMs: 300 }));
    expect(error.code).toBe("ERR_COMM_RENDEZVOUS");
  });

  test.each([
    ["get", (member: Membership) => member.get("k")],
    ["set", (member: Membership) => member.set("k", bytes("v"))],
    ["exchange", (member: Membership) => member.exchange("k", bytes("v"))],
    ["awaitBarriers", (member: Membership) => member.awaitBarriers([{ key: "k", ranks: [0] }])],
    ["ask", (member: Membership) => member.ask(0, "q")],
    ["rejoin", (member: Membership) => member.rejoin()],
  ])("to %s", async (_, call) => {
    const port = await fakeStore((request) => {
      if (request.kind === "join") return [{ ...joined, initialRanks: [0] }];
      if (!("id" in request) || request.kind === "cancel") return [];
      // As of a store with another table, and as of one with another number of ranks.
      const { id } = request;
      return request.kind === "barrier" && request.value !== undefined
        ? [{ kind: "values", id, values: [] }]
        : [{ kind: "values", id, values: [bytes("v")] }];
    });
    const rendezvous = tcpRendezvous({ port, secret, host: "other" });
    const member = await rendezvous.join({ jobId: "j", rank: 0, size: 1, deadlineMs: 2_000 });
    const error = await errorOf(within<unknown>(15_000, call(member)));
    expect(error.code).toBe("ERR_COMM_RENDEZVOUS");
    expect(error.message).toMatch(
      /no store of this version|the store is gone: sent what is no mess/,
    );
    await member.leave();
  });
});

describe("control characters of other processes", () => {
  const wild = "\u001b[2J\nhint: all is well\u202e\u2028";
  const tame = "\\u001b[2J\\u000ahint: all is well\\u202e\\u2028";

  test("in the name of a process", async () => {
    const at = await place(2);
    const zero = await speaker(to(at));
    zero.send(hello(), { ...join, label: wild });
    await expect.poll(() => zero.replies.length).toBe(1);
    const error = await errorOf(at.join(0, { deadlineMs: 500 }));
    expect(error.message).toContain(`rank 0 is taken by ${tame}`);
  });

  test("in the words of a store", async () => {
    const port = await fakeStore((request) =>
      request.kind === "join" ? [{ kind: "closing", reason: wild }] : [],
    );
    const rendezvous = tcpRendezvous({ port, secret, host: "other" });
    const join = { jobId: "j", rank: 0, size: 1, deadlineMs: 300 };
    expect((await errorOf(rendezvous.join(join))).message).toContain(tame);
  });

  test("in the name of a field", () => {
    const twice = `{"a\u001b\nb":1,"a\u001b\nb":1}`;
    expect(() => decode(requests, bytes(twice))).toThrow('the field "a\\u001b\\u000ab" twice');
  });
});
