/** News that ranks push to each other, and questions to other ranks, over the connections to the store. */
import { expect, test } from "vitest";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { quickTime } from "../../support/quick-time.ts";
import { errorOf, fragile, place } from "./stores.ts";

quickTime();

test("news arrive in order, those before the first listener included, and not at their sender", async () => {
  const [zero, one, two] = await (await place(3)).joinAll();
  const seen: string[][] = [[], [], []];
  zero!.announce([0, 1, 2], "first");
  zero!.announce([1], "second");
  // Behind the news, on the same connections.
  const pass = (key: string) =>
    Promise.all([zero, one, two].map((member) => member!.exchange(key, new Uint8Array(0))));
  await pass("a");
  for (const [at, member] of [zero, one, two].entries())
    member!.onNews((news, rank) => void seen[at]?.push(`${news} of ${rank}`));
  expect(seen).toEqual([[], ["first of 0", "second of 0"], ["first of 0"]]);
  two!.announce([1], "third");
  await pass("b");
  expect(seen[1]).toEqual(["first of 0", "second of 0", "third of 2"]);
});

test("news of a past generation reach no listener of the next one", async () => {
  const [zero, one] = await (await place(2)).joinAll();
  const seen: string[] = [];
  const [next] = await Promise.all([zero, one].map((member) => member!.rejoin({ without: [] })));
  next!.onNews((news) => void seen.push(news));
  one!.announce([0], "late");
  expect(await errorOf(one!.ask(0, "question"))).toMatchObject({ code: "ERR_COMM_CLOSED" });
  expect(seen).toEqual([]);
});

test("a question is answered at once, later, or once there is an answer to give", async () => {
  const [zero, one, two] = await (await place(3)).joinAll();
  const early = zero!.ask(1, "early", { timeoutMs: 5_000 });
  const both = Promise.all([zero, two].map((member) => member!.ask(1, "later")));
  let resolve = (_: string): void => undefined;
  one!.onQuestion((question) =>
    question === "early" ? "at once" : new Promise<string>((now) => (resolve = now)),
  );
  expect(await early).toBe("at once");
  resolve("in the end");
  expect(await both).toEqual(["in the end", "in the end"]);
});

test("a question ends at its deadline, by its signal, with its rank, and where the answer fails", async () => {
  const at = await place(3);
  const [zero, one, two] = await at.joinAll();
  one!.onQuestion(() => Promise.reject(new Error("no answer")));
  const late = await errorOf(zero!.ask(1, "why", { timeoutMs: 30 }));
  expect(late).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [1] });
  expect(late.message).toContain("ask: rank 1 did not answer within 30 ms");
  const signal = AbortSignal.timeout(10);
  expect(await errorOf(zero!.ask(2, "why", { signal }))).toMatchObject({
    code: "ERR_COMM_ABORTED",
  });
  const waiting = errorOf(zero!.ask(2, "why"));
  await two!.leave();
  expect(await waiting).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [2] });
  await one!.leave("its last status");
  expect(await zero!.ask(1, "why")).toBe("its last status");
  expect(await errorOf(zero!.ask(3, "why"))).toMatchObject({ code: "ERR_COMM_ARG", field: "rank" });
});

test("a rank that the others left behind gets the ranks of the next generation", async () => {
  const [zero, one, two] = await (await place(3)).joinAll();
  const early: (readonly number[])[] = [];
  two!.onNextGeneration((ranks) => void early.push(ranks));
  zero!.onNextGeneration((ranks) => void early.push(ranks));
  await Promise.all([zero, one].map((member) => member!.rejoin({ without: [2] })));
  await expect.poll(() => early).toEqual([[0, 1]]);
  two!.onNextGeneration((ranks) => void early.push(ranks));
  expect(early).toEqual([
    [0, 1],
    [0, 1],
  ]);
});

test("an exchange among some ranks gives their values in that order", async () => {
  const [zero, , two] = await (await place(3)).joinAll();
  const bytes = (rank: number): Uint8Array => Uint8Array.of(rank);
  const ranks = [2, 0];
  const values = await Promise.all(
    [zero, two].map((member) => member!.exchange("k", bytes(member!.rank), { ranks })),
  );
  expect(values).toEqual([
    [bytes(2), bytes(0)],
    [bytes(2), bytes(0)],
  ]);
  const late = await errorOf(zero!.exchange("k", bytes(0), { ranks, timeoutMs: 20 }));
  expect(late).toMatchObject({ code: "ERR_COMM_TIMEOUT", ranks: [2] });
  expect(late.message).toContain("1 of 2 ranks gave a value within 20 ms, missing rank 2");
  for (const wrong of [
    [1, 2],
    [0, 3],
    [0.5, 0],
  ])
    expect(await errorOf(zero!.exchange("k", bytes(0), { ranks: wrong }))).toMatchObject({
      ...{ code: "ERR_COMM_ARG", field: "ranks" },
    });
});

test("questions and news to a rank that is lost end by name", async () => {
  const at = await place(2);
  const [broken, other] = await fragile(at, 2);
  const waiting = errorOf(other!.member.ask(0, "why"));
  broken!.cut();
  expect(await waiting).toMatchObject({ code: "ERR_COMM_REMOTE", ranks: [0] });
  other!.member.announce([0], "late");
  await other!.member.leave();
  const rendezvous = tcpRendezvous({ port: at.server.port, secret: at.secret, host: "other" });
  const again = await Promise.all(
    [0, 1].map((rank) => rendezvous.join({ jobId: at.jobId, rank, size: 2, deadlineMs: 5_000 })),
  );
  await Promise.all(again.map((member) => member.leave()));
});
