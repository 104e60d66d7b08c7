/** The store by itself: peers that go while others wait for them, and words about generations that they have left behind. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Peer } from "../../../src/job/generation.ts";
import type { Reply, Request } from "../../../src/job/protocol.ts";
import { Store } from "../../../src/job/store.ts";
import { bytes } from "./stores.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A rank that records its messages. */
class Noting implements Peer {
  readonly label: string;
  readonly replies: Reply[] = [];

  constructor(label: string) {
    this.label = label;
  }

  send(reply: Reply): void {
    this.replies.push(reply);
  }

  get last(): Reply | undefined {
    return this.replies.at(-1);
  }
}

const jobId = "job";
/** A barrier of all ranks. */
const all = (key: string) => [{ key, ranks: [] }];
const join = (store: Store, peer: Peer, rank: number, size: number, generation = 0): boolean =>
  store.join(peer, {
    ...{
      kind: "join",
      id: 1,
      jobId,
      rank,
      generation,
      size,
      timeoutMs: 1_000,
      limitMs: 1_000,
      label: "",
    },
  });
const rejoin = (id: number, generation: number, without?: readonly number[]): Request =>
  ({ kind: "rejoin", id, generation, without, settleMs: 100, timeoutMs: 1_000 }) as const;

/** A store in which so many ranks are. */
function joined(size: number): { store: Store; peers: Noting[] } {
  const store = new Store({ jobId, size, hosted: false });
  const peers = Array.from({ length: size }, (_, rank) => new Noting(`rank ${rank}`));
  for (const [rank, peer] of peers.entries()) expect(join(store, peer, rank, size)).toBe(true);
  expect(peers.map(({ last }) => last?.kind)).toEqual(peers.map(() => "joined"));
  return { store, peers };
}

const ask = (store: Store, peer: Peer, request: Request): void =>
  store.request(peer, request as Parameters<Store["request"]>[1]);

describe("a peer that goes", () => {
  test("a peer that disconnects", () => {
    const store = new Store({ jobId, size: 2, hosted: false });
    const [gone, zero, one] = ["gone", "0", "1"].map((each) => new Noting(each)) as [
      Noting,
      Noting,
      Noting,
    ];
    join(store, gone, 1, 2);
    store.gone(gone, "lost", "the connection ended");
    join(store, zero, 0, 2);
    expect(zero.replies).toEqual([]);
    join(store, one, 1, 2);
    expect([zero.last, one.last]).toMatchObject([
      { kind: "joined", rank: 0 },
      { kind: "joined", rank: 1 },
    ]);
  });

  test("before all have joined is not a member, and another one may take its rank", () => {
    const { store, peers } = joined(3);
    const [zero, one, two] = peers as [Noting, Noting, Noting];
    ask(store, one, rejoin(2, 0));
    store.gone(one, "lost", "the connection ended");
    ask(store, zero, rejoin(2, 0));
    ask(store, two, rejoin(2, 0));
    expect(zero.last).toMatchObject({ kind: "joined", generation: 1, initialRanks: [0, 2] });
    expect(two.last).toMatchObject({ kind: "joined", rank: 1 });
  });

  test("during its wait for the next generation is not in that generation", () => {
    const { store, peers } = joined(2);
    for (const peer of peers) store.gone(peer, "left", "");
    const again = [0, 1].map((rank) => new Noting(`${rank}`)) as [Noting, Noting];
    for (const [rank, peer] of again.entries()) join(store, peer, rank, 2);
    expect(again.map(({ last }) => last)).toMatchObject([{ kind: "joined" }, { kind: "joined" }]);
    store.gone(again[1], "lost", "the connection ended");
    const back = new Noting("back");
    expect(join(store, back, 1, 2)).toBe(false);
    expect(back.last).toMatchObject({ code: "refused" });
    expect(back.last).toMatchObject({ headline: expect.stringContaining("that was lost") });
  });
});

describe("is lost again in a later generation of the job", () => {
  test("ranks that agree", () => {
    const store = new Store({ jobId, size: 3, hosted: false });
    for (const size of [2, 4]) {
      const peer = new Noting("another job");
      expect(join(store, peer, 0, size)).toBe(false);
      const headline = `join: this job has 3 ranks, not ${size}`;
      expect(peer.last).toMatchObject({ kind: "failed", code: "refused", headline });
    }
  });

  test("give the same size, from the first one on", () => {
    const { store, peers } = joined(4);
    const [zero, , , three] = peers as [Noting, Noting, Noting, Noting];
    ask(store, zero, rejoin(2, 0, [2, 1, 2]));
    ask(store, three, rejoin(2, 0, [1, 2]));
    expect(zero.last).toMatchObject({ kind: "joined", initialRanks: [0, 3] });
    expect(three.last).toMatchObject({ kind: "joined", rank: 1 });
  });
});

describe("a rank that cancels", () => {
  test("a rejoin is waited for again", () => {
    const { store, peers } = joined(2);
    const [zero, one] = peers as [Noting, Noting];
    ask(store, zero, rejoin(2, 0, []));
    ask(store, zero, { kind: "cancel", id: 2 });
    ask(store, one, rejoin(2, 0, []));
    expect(one.last).toMatchObject({ kind: "joined", generation: 0 });
    ask(store, zero, rejoin(3, 0, []));
    expect(one.last).toMatchObject({ kind: "joined", generation: 1, id: 2 });
    expect(zero.last).toMatchObject({ kind: "joined", generation: 1, id: 3 });
  });
});

describe("requests to a past generation", () => {
  test("do not reach the next one", () => {
    const { store, peers } = joined(1);
    const [zero] = peers as [Noting];
    ask(store, zero, rejoin(2, 0, []));
    expect(zero.last).toMatchObject({ kind: "joined", generation: 1 });
    const key = "k";
    for (const request of [
      { kind: "set", id: 3, generation: 0, key, value: bytes("old") },
      { kind: "get", id: 4, generation: 0, key, timeoutMs: 10 },
      {
        ...({ kind: "barrier", id: 5, generation: 0, barriers: all(key) } as const),
        value: bytes("old"),
        timeoutMs: 10,
      },
      { kind: "barrier", id: 6, generation: 0, barriers: [], value: undefined, timeoutMs: 10 },
      rejoin(7, 0, []),
    ] as const) {
      ask(store, zero, request as Request);
      const { id } = request as { id: number };
      expect(zero.last).toMatchObject({ kind: "failed", id, code: "over" });
    }
    ask(store, zero, { kind: "set", id: 8, generation: 1, key, value: bytes("new") });
    expect(zero.last).toEqual({ kind: "done", id: 8 });
  });
});

describe("a question", () => {
  const ask = (id: number, rank: number, timeoutMs = 1_000): Request =>
    ({ kind: "ask", id, generation: 0, rank, question: "calls", timeoutMs }) as const;
  const answer = (id: number, text: string): Request =>
    ({ kind: "answer", id, generation: 0, text }) as const;
  const send = (store: Store, peer: Peer, request: Request): void =>
    store.request(peer, request as Parameters<Store["request"]>[1]);

  test("is passed on once, and its answer goes to all that wait for it", () => {
    const { store, peers } = joined(3);
    const [zero, one, two] = peers as [Noting, Noting, Noting];
    send(store, zero, ask(2, 2));
    send(store, one, ask(3, 2));
    expect(two.replies.slice(1)).toEqual([
      { kind: "asked", id: 1, generation: 0, question: "calls" },
    ]);
    // Another rank cannot answer it, and no answer counts twice.
    send(store, one, answer(1, "of 1"));
    send(store, two, answer(1, "of 2"));
    send(store, two, answer(1, "again"));
    expect(zero.replies.slice(1)).toEqual([{ kind: "answered", id: 2, text: "of 2" }]);
    expect(one.replies.slice(1)).toEqual([{ kind: "answered", id: 3, text: "of 2" }]);
    send(store, zero, ask(4, 2));
    expect(two.last).toEqual({ kind: "asked", id: 2, generation: 0, question: "calls" });
    expect(vi.getTimerCount()).toBe(1);
  });

  test("ends at its deadline, or when it is cancelled, and a late answer goes nowhere", () => {
    const { store, peers } = joined(2);
    const [zero, one] = peers as [Noting, Noting];
    send(store, zero, ask(2, 1, 50));
    vi.advanceTimersByTime(50);
    expect(zero.last).toMatchObject({ kind: "failed", id: 2, code: "timeout", ranks: [1] });
    send(store, zero, ask(3, 1));
    send(store, zero, { kind: "cancel", id: 3 });
    for (const id of [1, 2]) send(store, one, answer(id, "late"));
    expect(zero.replies).toHaveLength(2);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("is answered by the status of a rank that has left, and fails for one that is lost", () => {
    const { store, peers } = joined(3);
    const [zero, one, two] = peers as [Noting, Noting, Noting];
    send(store, zero, ask(2, 1));
    send(store, zero, ask(3, 2));
    store.gone(one, "left", "", "its status");
    store.gone(two, "lost", "the connection ended");
    send(store, zero, ask(4, 1));
    send(store, zero, ask(5, 2));
    const replies = zero.replies.filter(({ kind }) => kind !== "lost" && kind !== "joined");
    expect(replies).toMatchObject([
      { kind: "answered", id: 2, text: "its status" },
      { kind: "failed", id: 3, code: "gone", ranks: [2] },
      { kind: "answered", id: 4, text: "its status" },
      { kind: "failed", id: 5, code: "gone", ranks: [2] },
    ]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("of a rank that is gone has no receiver", () => {
    const { store, peers } = joined(2);
    const [zero, one] = peers as [Noting, Noting];
    send(store, zero, ask(2, 1));
    store.gone(zero, "lost", "the connection ended");
    send(store, one, answer(1, "late"));
    expect(zero.replies).toHaveLength(1);
    expect(vi.getTimerCount()).toBe(0);
  });
});

test("news go to the named ranks of the same generation that are there", () => {
  const { store, peers } = joined(4);
  const [zero, one, two, three] = peers as [Noting, Noting, Noting, Noting];
  store.gone(two, "left", "");
  const announce = (generation: number, ranks: readonly number[]): Request =>
    ({ kind: "announce", generation, ranks, news: "over" }) as const;
  ask(store, zero, announce(0, [0, 1, 1, 2, 9]));
  ask(store, zero, announce(7, [1, 3]));
  const news = { kind: "news", generation: 0, rank: 0, news: "over" };
  expect(one.replies.slice(1)).toEqual([news]);
  expect([zero, two, three].map(({ replies }) => replies.length)).toEqual([1, 1, 1]);
});

test("a wait in a generation that others leave fails with the ranks that continued", () => {
  const { store, peers } = joined(3);
  const [zero, one, two] = peers as [Noting, Noting, Noting];
  const barriers = [{ key: "m", ranks: [0, 1] }];
  for (const request of [
    { kind: "get", id: 2, generation: 0, key: "k", timeoutMs: 10 },
    {
      ...({ kind: "barrier", id: 3, generation: 0, barriers: all("e") } as const),
      value: bytes("0"),
      timeoutMs: 10,
    },
    { kind: "barrier", id: 4, generation: 0, barriers, value: undefined, timeoutMs: 10 },
  ] as const) {
    ask(store, zero, request);
  }
  for (const peer of [one, two]) ask(store, peer, rejoin(2, 0, [0]));
  expect(zero.replies.slice(1)).toMatchObject([
    { kind: "began", generation: 0, ranks: [1, 2] },
    ...[2, 3, 4].map((id) => ({ kind: "failed", id, code: "over", ranks: [1, 2] })),
  ]);
  expect(vi.getTimerCount()).toBe(0);
});

test("a rank past its deadline is named by the others once it is the only one that is missing", () => {
  const store = new Store({ jobId, size: 3, hosted: false });
  const [zero, one, two] = ["0", "1", "2"].map((each) => new Noting(each)) as [
    Noting,
    Noting,
    Noting,
  ];
  join(store, one, 1, 3);
  vi.advanceTimersByTime(10);
  join(store, zero, 0, 3);
  vi.advanceTimersByTime(990);
  expect(one.last).toMatchObject({ code: "timeout", ranks: [2], joined: [0, 1] });
  join(store, two, 2, 3);
  vi.advanceTimersByTime(10);
  expect(zero.last).toMatchObject({
    ...{ code: "timeout", ranks: [1], joined: [0, 2] },
    headline: "2 of 3 joined within 1000 ms, missing rank 1",
  });
});

describe("the end of the store", () => {
  test("fails all its waits", () => {
    const { store, peers } = joined(2);
    const [zero, one] = peers as [Noting, Noting];
    ask(store, zero, { kind: "get", id: 2, generation: 0, key: "k", timeoutMs: 10 });
    ask(store, one, rejoin(2, 0));
    store.close();
    expect([zero.last, one.last]).toMatchObject([
      { kind: "failed", id: 2, code: "refused" },
      { kind: "failed", id: 2, code: "refused" },
    ]);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("a process of the launcher that ends", () => {
  const failure = {
    ...{ kind: "failed", code: "gone", ranks: [1], joined: [0] },
    headline: "rank 1 ended before it joined: exit status 0",
  };

  test("before it joined fails those that wait for it, and those that come after", () => {
    const store = new Store({ jobId, size: 3, hosted: false });
    const [zero, two] = [new Noting("rank 0"), new Noting("rank 2")];
    join(store, zero, 0, 3);
    store.ended(1, "exit status 0");
    expect(zero.replies).toMatchObject([failure]);
    join(store, two, 2, 3);
    expect(two.replies).toMatchObject([{ ...failure, joined: [2] }]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("within its join fails the others once its connection is gone", () => {
    const store = new Store({ jobId, size: 3, hosted: false });
    const [zero, one] = [new Noting("rank 0"), new Noting("rank 1")];
    join(store, zero, 0, 3);
    join(store, one, 1, 3);
    store.ended(1, "exit status 0");
    expect(zero.replies).toEqual([]);
    store.gone(one, "lost", "its connection ended");
    expect(zero.replies).toMatchObject([failure]);
  });

  test("after the job it had joined fails those that start the job again", () => {
    const { store, peers } = joined(3);
    for (const peer of peers) store.gone(peer, "left", "");
    const [zero, two] = [new Noting("rank 0"), new Noting("rank 2")];
    join(store, zero, 0, 3);
    expect(zero.replies).toEqual([]);
    store.ended(1, "exit status 0");
    const headline = "rank 1 ended before it joined again: exit status 0";
    expect(zero.replies).toMatchObject([{ ...failure, headline }]);
    join(store, two, 2, 3);
    expect(two.replies).toMatchObject([{ ...failure, headline, joined: [2] }]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("after the job it had joined does not hinder a smaller one, or a rebuild", () => {
    const { store, peers } = joined(3);
    const [zero, one, two] = peers as [Noting, Noting, Noting];
    store.gone(two, "left", "");
    store.ended(2, "exit status 0");
    ask(store, zero, rejoin(2, 0));
    ask(store, one, rejoin(2, 0));
    vi.advanceTimersByTime(100);
    expect([zero.last, one.last]).toMatchObject([{ generation: 1 }, { generation: 1 }]);
    for (const peer of [zero, one]) store.gone(peer, "left", "");
    const again = [0, 1].map((rank) => new Noting(`rank ${rank}`));
    for (const [rank, peer] of again.entries()) join(store, peer, rank, 2);
    expect(again.map(({ last }) => last?.kind)).toEqual(["joined", "joined"]);
  });

  test("after its join has failed fails no other join", () => {
    const store = new Store({ jobId, size: 3, hosted: false });
    const [zero, two] = [new Noting("rank 0"), new Noting("rank 2")];
    join(store, zero, 0, 3);
    store.ended(1, "exit status 0");
    expect(zero.replies).toMatchObject([failure]);
    store.gone(zero, "lost", "its connection ended");
    store.ended(0, "exit status 0");
    join(store, two, 2, 3);
    expect(two.replies).toMatchObject([{ ...failure, joined: [2] }]);
  });

  test("after its deadline leaves the others theirs", () => {
    const store = new Store({ jobId, size: 3, hosted: false });
    const [zero, one] = [new Noting("rank 0"), new Noting("rank 1")];
    join(store, zero, 0, 3);
    vi.advanceTimersByTime(10);
    join(store, one, 1, 3);
    vi.advanceTimersByTime(990);
    expect(zero.last).toMatchObject({ code: "timeout" });
    store.gone(zero, "lost", "its connection ended");
    store.ended(0, "exit status 1");
    expect(one.replies).toEqual([]);
    vi.advanceTimersByTime(10);
    expect(one.last).toMatchObject({ code: "timeout", ranks: [2], joined: [0, 1] });
  });

  test("after its join has failed fails the others once all the other ranks have come", () => {
    const store = new Store({ jobId, size: 3, hosted: false });
    const [zero, one, two] = [0, 1, 2].map((rank) => new Noting(`rank ${rank}`)) as [
      Noting,
      Noting,
      Noting,
    ];
    join(store, one, 1, 3);
    vi.advanceTimersByTime(10);
    join(store, zero, 0, 3);
    vi.advanceTimersByTime(990);
    expect(one.last).toMatchObject({ code: "timeout" });
    store.gone(one, "lost", "its connection ended");
    store.ended(1, "exit status 0");
    expect(zero.replies).toEqual([]);
    join(store, two, 2, 3);
    expect([zero.last, two.last]).toMatchObject([
      { ...failure, joined: [0, 2] },
      { ...failure, joined: [0, 2] },
    ]);
  });

  test("after the job has formed fails the next start of the job alone", () => {
    const { store, peers } = joined(2);
    store.ended(1, "exit status 0");
    expect(peers.map(({ last }) => last?.kind)).toEqual(["joined", "joined"]);
    for (const peer of peers) store.gone(peer, "left", "left");
    const again = new Noting("rank 0");
    join(store, again, 0, 2, 1);
    const headline = "rank 1 ended before it joined again: exit status 0";
    expect(again.replies).toMatchObject([{ ...failure, headline }]);
  });
});
