/** A generation that is being formed: deadlines of ranks that come, go and come again, and the order of those that are in. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Generation, type Member, type Peer } from "../../../src/job/generation.ts";
import type { Reply } from "../../../src/job/protocol.ts";
import { JoinPhase, type JoinPurpose, type NewMember } from "../../../src/job/store.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A rank that records its messages. */
class Noting implements Peer {
  readonly label = "a rank";
  readonly replies: Reply[] = [];

  send(reply: Reply): void {
    this.replies.push(reply);
  }
}

function gathering(purpose: JoinPurpose) {
  const formed: (readonly NewMember[])[] = [];
  const seen = { formed, empty: 0 };
  const joinPhase = new JoinPhase(1, purpose, {
    formed: (members) => void formed.push(members),
    empty: () => {
      seen.empty += 1;
    },
  });
  return { joinPhase: joinPhase, seen };
}

/** A generation of so many, in the order in which they were joined backwards. */
function generation(size: number, peers: readonly Peer[]): Generation {
  const seat = (peer: Peer, rank: number): Member => ({
    ...{ peer, initialRank: size - 1 - rank, state: "here", reason: "" },
  });
  return new Generation(0, peers.map(seat));
}

const noting = (count: number): Noting[] => Array.from({ length: count }, () => new Noting());
const numbers = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

describe("ranks that join", () => {
  test("are admitted by their numbers, in any order and number", () => {
    const { joinPhase, seen } = gathering({ kind: "join", size: 12 });
    const peers = noting(12);
    for (const rank of numbers(12).reverse()) {
      joinPhase.add(rank, peers[rank] as Noting, 100 + rank, 1_000, 0);
    }
    const needed = numbers(12).map((rank) => ({
      peer: peers[rank],
      id: 100 + rank,
      initialRank: rank,
    }));
    expect(seen.formed).toEqual([needed]);
  });

  test("keep their initial ranks in a further generation", () => {
    const peers = noting(12);
    const from = generation(12, peers);
    const { joinPhase, seen } = gathering({ kind: "rejoin", from, without: [1] });
    for (const rank of [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 0]) {
      joinPhase.add(rank, peers[rank] as Noting, rank, 1_000, 0);
    }
    expect(seen.formed[0]?.map(({ initialRank }) => initialRank)).toEqual([
      11, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0,
    ]);
  });

  test("have no deadline any more once they are admitted, nor after a failure", () => {
    const [zero, one] = noting(2) as [Noting, Noting];
    const { joinPhase, seen } = gathering({ kind: "join", size: 2 });
    joinPhase.add(0, zero, 1, 1_000, 0);
    joinPhase.add(1, one, 1, 1_000, 0);
    expect(seen.formed).toHaveLength(1);
    joinPhase.add(0, zero, 2, 1_000, 0);
    joinPhase.fail({ code: "refused", headline: "no", hint: "" });
    expect(zero.replies).toMatchObject([{ kind: "failed", id: 2, code: "refused" }]);
    expect(seen.empty).toBe(1);
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("a rank that withdraws", () => {
  test("and joins again has only the deadline of its second join", () => {
    const [zero] = noting(1) as [Noting];
    const { joinPhase, seen } = gathering({ kind: "join", size: 2 });
    joinPhase.add(0, zero, 1, 1_000, 0);
    joinPhase.withdraw(zero, 1);
    expect(seen.empty).toBe(1);
    vi.advanceTimersByTime(900);
    joinPhase.add(0, zero, 2, 1_000, 0);
    vi.advanceTimersByTime(900);
    expect(zero.replies).toEqual([]);
    expect(joinPhase.holder(0)).toBe(zero);
    vi.advanceTimersByTime(100);
    expect(zero.replies).toMatchObject([{ kind: "failed", id: 2, code: "timeout", ranks: [1] }]);
  });

  test("is removed by its request number, or by all its requests", () => {
    const [zero] = noting(1) as [Noting];
    const { joinPhase } = gathering({ kind: "join", size: 2 });
    joinPhase.add(0, zero, 7, 1_000, 0);
    joinPhase.withdraw(zero, 6);
    expect(joinPhase.holder(0)).toBe(zero);
    joinPhase.withdraw(zero);
    expect(joinPhase.holder(0)).toBeUndefined();
  });

  test("at its deadline counts as joined for those that stay, until it joins again", () => {
    const [zero, one, two] = noting(3) as [Noting, Noting, Noting];
    const { joinPhase } = gathering({ kind: "join", size: 4 });
    joinPhase.add(0, zero, 1, 100, 0);
    joinPhase.add(1, one, 1, 200, 0);
    joinPhase.add(2, two, 1, 300, 0);
    vi.advanceTimersByTime(200);
    expect(zero.replies).toMatchObject([{ ranks: [3], joined: [0, 1, 2] }]);
    expect(one.replies).toMatchObject([{ ranks: [3], joined: [0, 1, 2] }]);
    expect((one.replies[0] as { headline: string }).headline).toMatch(/^3 of 4 joined .* rank 3$/);
    joinPhase.add(0, zero, 2, 500, 0);
    joinPhase.withdraw(zero);
    vi.advanceTimersByTime(100);
    expect(two.replies).toMatchObject([{ ranks: [0, 3], joined: [1, 2] }]);
  });
});

describe("survivors that name no lost rank", () => {
  test("wait the settle time after each further survivor", () => {
    const peers = noting(4);
    const { joinPhase, seen } = gathering({
      ...{ kind: "rejoin", from: generation(4, peers), without: undefined },
    });
    joinPhase.add(3, peers[3] as Noting, 1, 10_000, 100);
    vi.advanceTimersByTime(90);
    joinPhase.add(0, peers[0] as Noting, 1, 10_000, 100);
    vi.advanceTimersByTime(90);
    expect(seen.formed).toEqual([]);
    vi.advanceTimersByTime(10);
    expect(seen.formed[0]?.map(({ initialRank }) => initialRank)).toEqual([3, 0]);
    expect(vi.getTimerCount()).toBe(0);
  });

  test("do not wait once all have left", () => {
    const peers = noting(2);
    const { joinPhase, seen } = gathering({
      ...{ kind: "rejoin", from: generation(2, peers), without: undefined },
    });
    joinPhase.add(0, peers[0] as Noting, 1, 10_000, 100);
    joinPhase.withdraw(peers[0] as Noting);
    expect([seen.empty, vi.getTimerCount()]).toEqual([1, 0]);
  });
});
