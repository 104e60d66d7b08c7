/** The rendezvous over TCP as a rank sees it: joining, the small store, deadlines by name. */
import { createServer } from "node:net";
import { describe, expect, test } from "vitest";
import { StoreServer } from "../../../src/job/server.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { freePort } from "../../support/free-port.ts";
import { closeAfter } from "../../support/opened.ts";
import { quickTime } from "../../support/quick-time.ts";
import { bytes, errorOf, place, text } from "./stores.ts";

quickTime();

describe("joining", () => {
  test("gives every rank its place once all have joined", async () => {
    const { joinAll } = await place(4);
    const members = await joinAll();
    expect(members.map(({ rank }) => rank)).toEqual([0, 1, 2, 3]);
    for (const member of members) {
      expect(member).toMatchObject({
        size: 4,
        generation: 0,
        initialRanks: [0, 1, 2, 3],
        lost: [],
      });
      expect(member.jobId).toBe("test-job");
    }
  });

  test("waits for a rank that starts late", async () => {
    const { join } = await place(2);
    let isIn = false;
    const first = join(0).then(() => (isIn = true));
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(isIn).toBe(false);
    await Promise.all([first, join(1)]);
  });

  test("works for one rank", async () => {
    const { join } = await place(1);
    const member = await join(0);
    expect((await member.exchange("k", bytes("v"))).map(text)).toEqual(["v"]);
  });

  test("names at the deadline the missing ranks", async () => {
    const { join } = await place(4);
    const options = { deadlineMs: 1_500 };
    const late = [0, 1, 3].map((rank) => errorOf(join(rank, options)));
    const errors = await Promise.all(late);
    for (const error of errors) {
      const facts = { missing: [2], joined: [0, 1, 3], ranks: [2] };
      expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", ...facts });
      expect(error.message).toContain("3 of 4 joined within 1500 ms, missing rank 2");
      expect(error.message).toMatch(/127\.0\.0\.1:\d+ of job "test-job"/);
    }
  });

  test("can be tried again after a deadline", async () => {
    const { join } = await place(2);
    await errorOf(join(0, { deadlineMs: 30 }));
    const [zero, one] = await Promise.all([join(0), join(1)]);
    expect([zero.rank, one.rank]).toEqual([0, 1]);
  });

  test("is cancelled by its signal", async () => {
    const { join } = await place(2);
    const reason = new Error("enough");
    const controller = new AbortController();
    const waiting = errorOf(join(0, { signal: controller.signal }));
    setTimeout(() => controller.abort(reason), 20);
    expect(await waiting).toMatchObject({ code: "ERR_COMM_ABORTED", cause: reason });
    expect(await errorOf(join(0, { signal: AbortSignal.abort(reason) }))).toMatchObject({
      code: "ERR_COMM_ABORTED",
    });
  });

  test.each([
    [{ rank: 4 }, "rank", /rank: found 4, needs a whole number in 0\.\.3/],
    [{ rank: -1 }, "rank", /found -1/],
    [{ rank: 0.5 }, "rank", /found 0\.5/],
    [{ size: 0 }, "size", /size: found 0/],
    [{ jobId: "" }, "jobId", /jobId: found ""/],
    [{ jobId: "x".repeat(129) }, "jobId", /1 to 128 bytes/],
    [{ generation: -1 }, "generation", /generation: found -1/],
    [{ deadlineMs: Number.NaN }, "deadlineMs", /deadlineMs: found NaN/],
    [{ deadlineMs: 2 ** 31 }, "deadlineMs", /found 2147483648/],
  ])("refuses %o by name before anything is sent", async (wrong, field, message) => {
    const { join, server } = await place(4);
    const error = await errorOf(join(0, wrong));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field });
    expect(error.message).toMatch(message);
    expect(server.dropped.size).toBe(0);
  });
});

describe("clients outside the job", () => {
  test("a second process with a taken rank is refused, and the first stays", async () => {
    const { join } = await place(2);
    const first = join(0);
    const error = await errorOf(join(0));
    expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", ranks: [0] });
    expect(error.message).toContain(`rank 0 is taken by process ${process.pid} on`);
    const [zero, one] = await Promise.all([first, join(1)]);
    const late = await errorOf(join(1));
    expect(late.message).toContain("rank 1 is taken by");
    await zero.set("k", bytes("still here"));
    expect(text(await one.get("k"))).toBe("still here");
  });

  test.each([
    [{ jobId: "yesterday" }, 'the job here is "test-job", not "yesterday"'],
    [{ size: 3 }, "this job has 2 ranks, not 3"],
  ])("%o is refused by name", async (wrong, message) => {
    const { join, joinAll } = await place(2);
    const error = await errorOf(join(0, wrong));
    expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS" });
    expect(error.message).toContain(message);
    await joinAll();
  });

  test("another secret is refused at once, without data about the job", async () => {
    const { server, joinAll } = await place(2);
    const other = tcpRendezvous({ port: server.port, secret: "x".repeat(32), host: "other" });
    const error = await errorOf(other.join({ jobId: "test-job", rank: 0, size: 2 }));
    expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS" });
    expect(error.message).toContain("the store has another secret");
    expect(server.dropped.get("wrong key")).toBe(1);
    await joinAll();
  });

  test("an address without a store is reported as such", async () => {
    const server = createServer((socket) =>
      socket.resume().end("HTTP/1.1 400 Bad Request\r\n\r\n"),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    closeAfter(() => new Promise((resolve) => server.close(resolve)));
    const { port } = server.address() as { port: number };
    const rendezvous = tcpRendezvous({ port, host: "other" });
    const error = await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 1 }));
    expect(error.message).toMatch(/what answers is no store/);
  });
});

describe("a missing store", () => {
  test("is waited for, then named", async () => {
    const [port, secret] = [await freePort(), "0123456789abcdef"];
    const rendezvous = tcpRendezvous({ port, secret, host: "other" });
    const error = await errorOf(
      rendezvous.join({ jobId: "test-job", rank: 0, size: 1, deadlineMs: 100 }),
    );
    expect(error).toMatchObject({ code: "ERR_COMM_RENDEZVOUS", address: `127.0.0.1:${port}` });
    expect(error.message).toMatch(/no store was reached within 100 ms: ECONNREFUSED/);
    const waiting = rendezvous.join({ jobId: "test-job", rank: 0, size: 1, deadlineMs: 5_000 });
    const options = { jobId: "test-job", size: 1, hosted: false, secret, port };
    const late = await StoreServer.listen(options);
    closeAfter(() => late.close());
    const member = await waiting;
    expect(member.size).toBe(1);
    await member.leave();
  });
});

describe("without a launcher", () => {
  test("rank 0 hosts, and lingers until the others have left", async () => {
    const port = await freePort();
    const rendezvous = tcpRendezvous({ port, secret: "0123456789abcdef" });
    const join = (rank: number) => rendezvous.join({ jobId: "j", rank, size: 2 });
    const [zero, one] = await Promise.all([join(0), join(1)]);
    await zero.set("k", bytes("v"));
    let hasLeft = false;
    const leaving = zero.leave().then(() => (hasLeft = true));
    expect(text(await one.get("k"))).toBe("v");
    expect(hasLeft).toBe(false);
    await one.leave();
    await leaving;
    expect(one.lost).toEqual([]);
  });

  test("a second rank 0 gets an error that the address is taken", async () => {
    const { server } = await place(2);
    const rendezvous = tcpRendezvous({ port: server.port });
    const error = await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 2 }));
    expect(error).toMatchObject({
      ...{ code: "ERR_COMM_RENDEZVOUS", rank: 0, size: 2, comm: "j" },
      address: `127.0.0.1:${server.port}`,
    });
    expect(error.message).toMatch(/of job "j": cannot listen: another process listens there/);
  });

  test.each([
    ["0.0.0.0", undefined, /without a secret only a loopback address is allowed/],
    ["::", undefined, /without a secret/],
    ["0.0.0.0", "short", /the secret has 5 characters, needs at least 16/],
    ["127.0.0.1", "short", /the secret has 5 characters/],
  ])("listening on %s with the secret %s is refused", async (address, secret, message) => {
    const options = { jobId: "j", size: 1, hosted: true, address, secret };
    const error = await errorOf(StoreServer.listen(options));
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "secret" });
    expect(error.message).toMatch(message);
    const rendezvous = tcpRendezvous({ address, port: 9, secret, host: "other" });
    expect(await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 1 }))).toMatchObject({
      field: "secret",
    });
  });
});
