/** Ranks that are lost, and the generations that the survivors form. */
import { describe, expect, test } from "vitest";
import type { LostPeer, Membership } from "../../../src/job/rendezvous.ts";
import { quickTime } from "../../support/quick-time.ts";
import { launch, script } from "./launched.ts";
import { bytes, errorOf, fragile, place, text } from "./stores.ts";

quickTime();

/** The end of a connection; its exact form depends on the system. */
const ended = /^the connection (ended|was reset)$/;

/** Resolves once that many losses are known. */
function losses(member: Membership, count: number): Promise<readonly LostPeer[]> {
  return new Promise((resolve) => {
    member.onLost(() => {
      if (member.lost.length === count) resolve(member.lost);
    });
  });
}

const originsOf = async (members: readonly Membership[]): Promise<string[]> => {
  const all = await Promise.all(members.map((each) => each.exchange("o", bytes(`${each.rank}`))));
  return all.map((values) => values.map(text).join(""));
};

describe("a lost rank", () => {
  test("is reported to the others by name, with the time", async () => {
    const [zero, one, two] = await fragile(await place(3), 3);
    const began = Date.now();
    one!.cut();
    for (const { member } of [zero!, two!]) {
      const [peer] = await losses(member, 1);
      expect(peer).toMatchObject({ rank: 1, reason: expect.stringMatching(ended) });
      expect(peer!.atMs).toBeGreaterThanOrEqual(began);
      expect(peer!.atMs).toBeLessThanOrEqual(Date.now());
    }
  });

  test("is reported to a later listener too", async () => {
    const [zero, one, two] = await fragile(await place(3), 3);
    one!.cut();
    await losses(zero!.member, 1);
    two!.cut();
    await losses(zero!.member, 2);
    const seen: unknown[] = [];
    zero!.member.onLost((peer) => seen.push(peer.rank));
    expect(seen).toEqual([1, 2]);
  });

  test("fails at once the waits for it, and every later one", async () => {
    const [zero, one, two] = await fragile(await place(3), 3);
    await zero!.member.set("before", bytes("kept"));
    const waits = [
      errorOf(zero!.member.exchange("k", bytes(""))),
      errorOf(two!.member.exchange("k", bytes(""))),
      errorOf(two!.member.get("never")),
    ];
    one!.cut();
    for (const error of await Promise.all(waits)) {
      expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [1] });
      expect(error.message).toMatch(/rank 1 was lost: the connection (ended|was reset)/);
      expect(error.hint).toContain("comm.rebuild()");
    }
    expect(await errorOf(zero!.member.get("later"))).toMatchObject({ ranks: [1] });
    expect(await errorOf(zero!.member.exchange("l", bytes("")))).toMatchObject({ ranks: [1] });
    expect(text(await two!.member.get("before"))).toBe("kept");
  });

  test("still counts in an exchange that has its value", async () => {
    const [zero, one] = await fragile(await place(2), 2);
    void one!.member.exchange("k", bytes("last words")).catch(() => undefined);
    // The store answers in order: with this it has the value.
    await one!.member.set("behind it", bytes(""));
    one!.cut();
    await losses(zero!.member, 1);
    const values = await zero!.member.exchange("k", bytes("mine"));
    expect(values.map(text)).toEqual(["mine", "last words"]);
  });

  test("gets the loss of its store", async () => {
    const [, one] = await fragile(await place(2), 2);
    const waiting = errorOf(one!.member.get("k"));
    one!.cut();
    expect(await waiting).toMatchObject({ code: "ERR_COMM_RENDEZVOUS" });
    expect((await losses(one!.member, 1))[0]!.rank).toBeUndefined();
    const error = await errorOf(one!.member.rejoin());
    expect(error.message).toMatch(/rejoin: the store is gone: the connection (ended|was reset)/);
    await one!.member.leave();
  });
});

test("with a store that rank 0 hosts, rank 0 is lost", async () => {
  const ranks = await fragile(await place(3, { hosted: true }), 3);
  ranks[1]!.cut();
  expect((await losses(ranks[1]!.member, 1))[0]!.rank).toBe(0);
  await losses(ranks[0]!.member, 1);
  const [zero, two] = await Promise.all([0, 2].map((rank) => ranks[rank]!.member.rejoin()));
  ranks[2]!.cut();
  expect((await losses(two!, 1))[0]!.rank).toBe(0);
  expect((await losses(zero!, 1))[0]!.rank).toBe(1);
});

describe("survivors", () => {
  test("rejoin twice in a row, rank 0 among the lost", async () => {
    const ranks = await fragile(await place(4), 4);
    ranks[0]!.cut();
    await losses(ranks[1]!.member, 1);
    const second = await Promise.all(
      [1, 2, 3].map((rank) => ranks[rank]!.member.rejoin({ without: [0] })),
    );
    expect(second.map(({ rank, size, generation }) => [rank, size, generation])).toEqual([
      [0, 3, 1],
      [1, 3, 1],
      [2, 3, 1],
    ]);
    expect(second[0]!.initialRanks).toEqual([1, 2, 3]);
    expect(await originsOf(second)).toEqual(["012", "012", "012"]);
    ranks[2]!.cut();
    expect((await losses(second[0]!, 1))[0]).toMatchObject({ rank: 1 });
    const third = await Promise.all([0, 2].map((rank) => second[rank]!.rejoin({ without: [1] })));
    expect(third.map(({ rank, generation }) => [rank, generation])).toEqual([
      [0, 2],
      [1, 2],
    ]);
    expect(third[1]!.initialRanks).toEqual([1, 3]);
    expect(third[0]!.lost).toEqual([]);
    expect(await originsOf(third)).toEqual(["01", "01"]);
  });

  test("that name no rank form the generation once all that remain have joined", async () => {
    const ranks = await fragile(await place(4), 4);
    const early = ranks[0]!.member.rejoin({ settleMs: 20_000 });
    ranks[2]!.cut();
    const rest = [1, 3].map((rank) => ranks[rank]!.member.rejoin({ settleMs: 20_000 }));
    const members = await Promise.all([early, ...rest]);
    expect(members.map(({ initialRanks }) => initialRanks)).toEqual([
      [0, 1, 3],
      [0, 1, 3],
      [0, 1, 3],
    ]);
  });

  test("wait at most the settle time for a silent rank", async () => {
    const members = await (await place(3)).joinAll();
    const rejoined = await Promise.all(
      [0, 1].map((rank) => members[rank]!.rejoin({ settleMs: 50 })),
    );
    expect(rejoined.map(({ size }) => size)).toEqual([2, 2]);
    const silent = await errorOf(members[2]!.set("k", bytes("v")));
    expect(silent).toMatchObject({ name: "CommClosedError", ranks: [0, 1] });
    expect(silent.message).toMatch(/generation 1 is over: generation 2 was formed of 2 ranks/);
    expect(await errorOf(members[2]!.rejoin())).toMatchObject({ code: "ERR_COMM_CLOSED" });
    expect(await originsOf(rejoined)).toEqual(["01", "01"]);
  });

  test("of one rank are one rank in the error of those without a place", async () => {
    const members = await (await place(2)).joinAll();
    await members[0]!.rejoin({ without: [1] });
    const { message } = await errorOf(members[1]!.set("k", bytes("v")));
    expect(message).toMatch(/generation 2 was formed of 1 rank\n/);
  });

  test("exclude a live rank by name", async () => {
    const members = await (await place(3)).joinAll();
    const waiting = errorOf(members[1]!.get("k"));
    const rejoined = await Promise.all(
      [0, 2].map((rank) => members[rank]!.rejoin({ without: [1] })),
    );
    expect(rejoined[1]!.rank).toBe(1);
    expect(await waiting).toMatchObject({ code: "ERR_COMM_CLOSED" });
  });

  test("get one more loss while they wait, and try again", async () => {
    const ranks = await fragile(await place(4), 4);
    ranks[3]!.cut();
    await losses(ranks[0]!.member, 1);
    const waiting = [0, 1].map((rank) => errorOf(ranks[rank]!.member.rejoin({ without: [3] })));
    // The store answers in order: with these it knows that both wait.
    await Promise.all([0, 1].map((at) => ranks[at]!.member.set(`behind ${at}`, bytes(""))));
    ranks[2]!.cut();
    for (const error of await Promise.all(waiting)) {
      expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [2] });
    }
    const again = await Promise.all(
      [0, 1].map((rank) => ranks[rank]!.member.rejoin({ without: [3, 2] })),
    );
    expect(again.map(({ initialRanks }) => initialRanks.join(""))).toEqual(["01", "01"]);
  });

  test("that disagree get both lists", async () => {
    const members = await (await place(4)).joinAll();
    const errors = await Promise.all([
      errorOf(members[0]!.rejoin({ without: [3] })),
      errorOf(members[1]!.rejoin({ without: [2, 3] })),
    ]);
    for (const error of errors) {
      expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS" });
      expect(error.message).toMatch(
        /survivors disagree: .*without ranks? (2, )?3.*without ranks? (2, )?3/,
      );
    }
    const fine = await Promise.all(
      [0, 1].map((rank) => members[rank]!.rejoin({ without: [3, 2] })),
    );
    expect(fine).toHaveLength(2);
  });

  test("name at the deadline the ranks that did not join", async () => {
    const members = await (await place(3)).joinAll();
    const error = await errorOf(members[0]!.rejoin({ without: [2], deadlineMs: 80 }));
    expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", joined: [0], missing: [1] });
    expect(error.message).toContain("1 of 2 rejoined within 80 ms, missing rank 1");
  });

  test.each([[[0]], [[3]], [[-1]], ["1"], [[0.5]]])("without %o is refused", async (without) => {
    const members = await (await place(3)).joinAll();
    const error = await errorOf(members[0]!.rejoin({ without: without as number[] }));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "without" });
  });

  test("alone continue alone", async () => {
    const ranks = await fragile(await place(2), 2);
    ranks[0]!.cut();
    await losses(ranks[1]!.member, 1);
    const alone = await ranks[1]!.member.rejoin();
    expect(alone).toMatchObject({ rank: 0, size: 1, initialRanks: [1] });
    expect(await originsOf([alone])).toEqual(["0"]);
  });
});

describe("fresh processes", () => {
  test("replace a broken generation, with the next number", async () => {
    const at = await place(3);
    const ranks = await fragile(at, 3);
    ranks[1]!.cut();
    await losses(ranks[0]!.member, 1);
    const back = await errorOf(at.join(1));
    expect(back.message).toMatch(/generation 0 is complete, and a rank that was lost cannot come/);
    expect((await errorOf(at.join(1, { generation: 2 }))).message).toMatch(
      /the next generation is 1, not 2/,
    );
    const next = await Promise.all([0, 1].map((rank) => at.join(rank, { generation: 1, size: 2 })));
    expect(next.map(({ size, generation }) => [size, generation])).toEqual([
      [2, 1],
      [2, 1],
    ]);
    expect(await errorOf(ranks[0]!.member.get("k"))).toMatchObject({ code: "ERR_COMM_CLOSED" });
  });
});

test("real processes: SIGKILL, a rebuild, SIGKILL again, a rebuild again", async () => {
  const path = script(
    "survive.mjs",
    `let member = await join();
     for (const victim of [0, 1]) {
       await member.exchange("ready", bytes(""));
       if (member.rank === victim) process.kill(process.pid, "SIGKILL");
       const error = await member.exchange("work", bytes("")).catch((error) => error);
       member = await member.rejoin({ without: error.ranks });
     }
     const all = await member.exchange("who", bytes(String(rank)));
     console.log(place(member), all.map(text).join(" "));
     await member.leave();
     function place({ rank, size, generation, initialRanks }) {
       return [rank, size, generation, initialRanks.join(",")].join(" ");
     }`,
  );
  const { status, lines, err } = await launch(["-n", "4", "--on-failure", "keep", path]).ended;
  expect({ status, lines }).toEqual({
    status: 137,
    lines: ["[1] 0 2 2 1,3 1 3", "[3] 1 2 2 1,3 1 3"],
  });
  expect(err).toMatch(
    /rank 0 failed first after .*: SIGKILL; rank 2 failed too: SIGKILL; ranks 1, 3 ended well/,
  );
});
