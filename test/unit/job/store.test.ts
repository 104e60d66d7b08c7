/** The small store among the ranks of a generation: keys, exchanges, waits. */
import { getEventListeners } from "node:events";
import { describe, expect, test } from "vitest";
import { encode, type Field, listOf, shared, whole } from "../../../src/job/frames.ts";
import { Generation, type Member } from "../../../src/job/generation.ts";
import { limits, type Reply } from "../../../src/job/protocol.ts";
import { longTest } from "../../support/long-test.ts";
import { bytes, errorOf, place, text } from "./stores.ts";

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe("keys", () => {
  test("reach every rank, before or after its request", async () => {
    const [zero, one, two] = await (await place(3)).joinAll();
    const early = one!.get("id");
    const id = Uint8Array.from({ length: 128 }, (_, at) => 255 - at);
    await zero!.set("id", id);
    expect(await early).toEqual(id);
    expect(await two!.get("id")).toEqual(id);
    expect(await zero!.get("id")).toEqual(id);
  });

  test("are set once", async () => {
    const [zero, one] = await (await place(2)).joinAll();
    await zero!.set("k", bytes("first"));
    const error = await errorOf(one!.set("k", bytes("second")));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "key", rank: 1 });
    expect(text(await one!.get("k"))).toBe("first");
  });

  test("without a value time out", async () => {
    const [zero] = await (await place(1)).joinAll();
    const error = await errorOf(zero!.get("k", { timeoutMs: 30 }));
    expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", rank: 0 });
    expect(error.message).toContain('no rank has set the key "k" within 30 ms');
    await zero!.set("k", bytes("late"));
    expect(text(await zero!.get("k", { timeoutMs: 0 }))).toBe("late");
  });

  test("cancelled by a signal leave the membership usable", async () => {
    const [zero] = await (await place(1)).joinAll();
    const error = await errorOf(zero!.get("k", { signal: AbortSignal.timeout(20) }));
    expect(error).toMatchObject({ code: "ERR_COMM_ABORTED" });
    await zero!.set("k", bytes("v"));
    expect(text(await zero!.get("k"))).toBe("v");
  });

  test("remove the listener of a signal that outlives the wait", async () => {
    const [zero] = await (await place(1)).joinAll();
    const { signal } = new AbortController();
    await zero!.set("k", bytes("v"));
    await zero!.get("k", { signal });
    await zero!.exchange("e", bytes(""), { signal });
    await errorOf(zero!.get("never", { signal, timeoutMs: 10 }));
    expect(getEventListeners(signal, "abort")).toEqual([]);
  });

  test("and values of the wrong kind or size are refused before they are sent", async () => {
    const [zero] = await (await place(1)).joinAll();
    const field = async (promise: Promise<unknown>): Promise<unknown> =>
      (await errorOf(promise)).field;
    expect(await field(zero!.set("", bytes("v")))).toBe("key");
    expect(await field(zero!.set("ä".repeat(129), bytes("v")))).toBe("key");
    expect(await field(zero!.set("k", "v" as unknown as Uint8Array))).toBe("value");
    expect(await field(zero!.set("k", new Uint8Array(2 ** 20 + 1)))).toBe("value");
    expect(await field(zero!.get("k", { timeoutMs: -1 }))).toBe("timeoutMs");
    const largest = new Uint8Array(2 ** 20).fill(7);
    await zero!.set("ä".repeat(128), largest);
    const found = await zero!.get("ä".repeat(128));
    expect(Buffer.compare(found, largest)).toBe(0);
  });

  longTest("are limited in number and bytes, with an error", async () => {
    const [zero] = await (await place(1)).joinAll();
    const large = new Uint8Array(2 ** 20);
    for (let at = 0; at < 63; at += 1) await zero!.set(`k${at}`, large);
    const error = await errorOf(zero!.set("one more", large));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "value" });
  });

  test("count without a value toward that limit, those of exchanges as well", () => {
    const replies: Reply[] = [];
    const peer = { label: "rank", send: (reply: Reply) => void replies.push(reply) };
    const seats = [0, 1].map(
      (initialRank): Member => ({ peer, initialRank, state: "here", reason: "" }),
    );
    const generation = new Generation(0, seats);
    const key = (at: number) => `${at}`.padEnd(limits.keyBytes, "-");
    const none = new Uint8Array(0);
    const most = limits.storeBytes / limits.keyBytes;
    for (let at = 0; at < most; at += 1) generation.set(0, at, key(at), none);
    expect(replies.at(-1)).toMatchObject({ kind: "failed", code: "limit" });
    const barriers = [{ key: key(0), ranks: [] }];
    generation.wait(1, {
      kind: "barrier",
      id: most,
      generation: 0,
      barriers,
      value: none,
      timeoutMs: 1,
    });
    expect(replies.at(-1)).toMatchObject({ kind: "failed", code: "limit", id: most });
  });

  test("of exchanges release their memory, completed or cancelled", () => {
    const replies: Reply[] = [];
    const peer = { label: "rank", send: (reply: Reply) => void replies.push(reply) };
    const members = [0, 1].map(
      (initialRank): Member => ({ peer, initialRank, state: "here", reason: "" }),
    );
    const generation = new Generation(0, members);
    const large = new Uint8Array(2 ** 20);
    let id = 0;
    const exchange = (rank: number, key: string): void => {
      const barriers = [{ key, ranks: [] }];
      const request = { kind: "barrier", generation: 0, barriers, timeoutMs: 60_000 } as const;
      generation.wait(rank, { ...request, id: ++id, value: large });
    };
    // More than the store holds at once.
    for (let at = 0; at < 40; at += 1) {
      for (const rank of [0, 1]) exchange(rank, "k");
      expect(replies.slice(-2).map(({ kind }) => kind)).toEqual(["values", "values"]);
      exchange(0, "cancelled");
      generation.cancel(0, id);
      expect(replies.at(-1)).toEqual({ kind: "withdrawn", id });
    }
    for (let at = 0; at < 63; at += 1) generation.set(0, ++id, `k${at}`, large);
    expect(replies.at(-1)).toEqual({ kind: "done", id });
  });
});

describe("exchange", () => {
  test("sends the same list to all ranks, which is encoded once", () => {
    const sent: Reply[] = [];
    const peer = { label: "rank", send: (reply: Reply) => void sent.push(reply) };
    const members = [0, 1, 2].map(
      (initialRank): Member => ({ peer, initialRank, state: "here", reason: "" }),
    );
    const generation = new Generation(0, members);
    const orders = [[], [], [], [2, 0], [2, 0]];
    for (const [id, ranks] of orders.entries()) {
      const barriers = [{ key: `${ranks}`, ranks }];
      const value = bytes(`${id}`);
      const rank = id === 4 ? 2 : id % 3;
      const request = { kind: "barrier", generation: 0, barriers, timeoutMs: 60_000 } as const;
      generation.wait(rank, { ...request, id, value });
    }
    const lists = sent.map((each) => each.kind === "values" && each.values);
    expect(lists[0]).toEqual(["0", "1", "2"].map(bytes));
    expect(lists[3]).toEqual(["4", "3"].map(bytes));
    expect([lists[1], lists[2], lists[4]]).toEqual([lists[0], lists[0], lists[3]]);
    expect(lists[1] === lists[0] && lists[2] === lists[0] && lists[4] === lists[3]).toBe(true);

    let count = 0;
    const write = (by: number): string => {
      count += by;
      return `${count}`;
    };
    const one = { read: (json: unknown) => json, write };
    const table = { list: { id: whole(0, 9), list: shared(listOf(one as Field<number>, 9)) } };
    const list = [1, 1, 1];
    for (const id of [4, 5])
      expect(String(encode(table, { kind: "list", id, list }))).toBe(
        `{"kind":"list","id":${id},"list":[1,2,3]}`,
      );
    expect(count).toBe(3);
  });

  test("gives every rank all values, by rank", async () => {
    const members = await (await place(4)).joinAll();
    const results = await Promise.all(
      members.map(async (member) => {
        await pause(10 * (3 - member.rank));
        return member.exchange("sign", bytes(`of ${member.rank}`));
      }),
    );
    for (const values of results)
      expect(values.map(text)).toEqual(["of 0", "of 1", "of 2", "of 3"]);
  });

  test("releases no rank before the last has joined it", async () => {
    const members = await (await place(3)).joinAll();
    let last = false;
    const early = [0, 1].map(async (rank) => {
      await members[rank]!.exchange("barrier", bytes(""));
      return last;
    });
    await pause(40);
    last = true;
    await members[2]!.exchange("barrier", bytes(""));
    expect(await Promise.all(early)).toEqual([true, true]);
  });

  test("may repeat its key, even before the first one is done", async () => {
    const [zero, one] = await (await place(2)).joinAll();
    const ahead = ["a", "b", "c"].map((value) => zero!.exchange("k", bytes(value)));
    for (const value of ["x", "y", "z"]) await one!.exchange("k", bytes(value));
    const seen = (await Promise.all(ahead)).map((values) => values.map(text).join(""));
    expect(seen).toEqual(["ax", "by", "cz"]);
  });

  test("names at its deadline the ranks without a value, and withdraws its own", async () => {
    const [zero, one, two] = await (await place(3)).joinAll();
    const waiting = one!.exchange("k", bytes("1"));
    const error = await errorOf(zero!.exchange("k", bytes("0"), { timeoutMs: 60 }));
    expect(error).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [2] });
    expect(error.message).toContain(
      'exchange "k": 2 of 3 ranks gave a value within 60 ms, missing rank 2',
    );
    const rest = [two!.exchange("k", bytes("2")), zero!.exchange("k", bytes("again"))];
    for (const values of [await waiting, ...(await Promise.all(rest))]) {
      expect(values.map(text)).toEqual(["again", "1", "2"]);
    }
  });

  longTest("takes more bytes than one value, up to its own limit", async () => {
    const four = await (await place(4)).joinAll();
    const value = new Uint8Array(2 ** 20).fill(3);
    const all = await Promise.all(four.map((member) => member.exchange("k", value)));
    for (const each of all.flat()) expect(Buffer.compare(each, value)).toBe(0);

    const many = await (await place(17)).joinAll();
    // The others would wait for the rank that is refused.
    const refused = new AbortController();
    const { signal } = refused;
    const fields = await Promise.all(
      many.map(async (member) => {
        const { field } = await errorOf(member.exchange("k", value, { signal }));
        if (field === "value") refused.abort();
        return field;
      }),
    );
    expect(fields.filter((field) => field === "value")).toHaveLength(1);
  });
});

describe("leaving", () => {
  test("is not reported as a loss, but waits for the departed rank fail", async () => {
    const [zero, one, two] = await (await place(3)).joinAll();
    const waiting = errorOf(zero!.exchange("k", bytes("v")));
    await two!.leave();
    const error = await waiting;
    expect(error).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [2] });
    expect(error.message).toContain("rank 2 has left");
    expect(zero!.lost).toEqual([]);
    const get = errorOf(zero!.get("k"));
    await one!.leave();
    expect((await get).message).toContain("has left");
  });

  test("is idempotent, and later requests are refused", async () => {
    const [zero] = await (await place(1)).joinAll();
    const waiting = errorOf(zero!.get("k"));
    await Promise.all([zero!.leave(), zero!.leave()]);
    await zero!.leave();
    expect(await waiting).toMatchObject({ code: "ERR_COMM_CLOSED" });
    expect(await errorOf(zero!.set("k", bytes("v")))).toMatchObject({ code: "ERR_COMM_CLOSED" });
    expect(await errorOf(zero!.rejoin())).toMatchObject({ code: "ERR_COMM_CLOSED" });
  });
});
