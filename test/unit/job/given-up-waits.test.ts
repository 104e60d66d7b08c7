/** A wait that one rank gives up: the others' waits go on, and its message does not count. */
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";
import { within } from "../../support/planted.ts";
import { quickTime } from "../../support/quick-time.ts";
import { bytes, errorOf, place, relay, text } from "./stores.ts";

quickTime();

describe("a wait that is cancelled by its signal", () => {
  test("leaves another rank's wait with the same request number open", async () => {
    const [zero, one, two] = await (await place(3)).joinAll();
    const giveUp = new AbortController();
    const given = errorOf(zero!.get("k", { signal: giveUp.signal }));
    const waiting = one!.get("k");
    // The store answers in order: both wait there.
    await Promise.all([zero, one].map((member) => member!.set(`${member!.rank}`, bytes(""))));
    giveUp.abort();
    expect(await given).toMatchObject({ code: "ERR_COMM_ABORTED", rank: 0 });
    await zero!.set("behind it", bytes(""));
    await two!.set("k", bytes("v"));
    expect(text(await within(15_000, waiting))).toBe("v");
  });

  test("withdraws the value of an exchange", async () => {
    const [zero, one] = await (await place(2)).joinAll();
    const giveUp = new AbortController();
    const given = errorOf(zero!.exchange("e", bytes("given up"), { signal: giveUp.signal }));
    giveUp.abort();
    expect(await given).toMatchObject({ code: "ERR_COMM_ABORTED" });
    const both = [zero!.exchange("e", bytes("again")), one!.exchange("e", bytes("1"))];
    for (const values of await Promise.all(both)) expect(values.map(text)).toEqual(["again", "1"]);
  });

  test("leaves no part of an exchange with other ranks", async () => {
    const [zero, one, two] = await (await place(3)).joinAll();
    const giveUp = new AbortController();
    const patient = one!.exchange("e", bytes("1"));
    const given = errorOf(zero!.exchange("e", bytes("given up"), { signal: giveUp.signal }));
    giveUp.abort();
    await given;
    const all = [zero!.exchange("e", bytes("0")), patient, two!.exchange("e", bytes("2"))];
    for (const values of await Promise.all(all)) expect(values.map(text)).toEqual(["0", "1", "2"]);
  });
});

/** A rank of a job of one, with a store that falls silent at some moment and keeps the connections. */
async function silenced() {
  const at = await place(1);
  let isSilent = false;
  const ends: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (near) => {
    const far = createConnection({ host: "127.0.0.1", port: at.server.port });
    for (const socket of [near, far]) socket.on("error", () => undefined);
    ends.push(near);
    near.on("data", (chunk) => far.write(chunk)).on("close", () => far.destroy());
    far.on("data", (chunk) => isSilent || near.write(chunk));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closeAfter(async () => {
    for (const socket of ends) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const member = await rendezvous.join({ jobId: at.jobId, rank: 0, size: 1 });
  isSilent = true;
  return { member, ends };
}

describe("with a silent store and an open connection", () => {
  test("a rank leaves, and ends its connections", async () => {
    const { member, ends } = await silenced();
    await within(15_000, member.leave());
    expect(await errorOf(member.get("k"))).toMatchObject({ code: "ERR_COMM_CLOSED" });
    await expect.poll(() => ends.map(({ readableEnded }) => readableEnded)).toEqual([true, true]);
    expect(member.lost).toEqual([]);
  });

  test("a rank leaves a barrier that it cancels", async () => {
    const { member } = await silenced();
    const giveUp = new AbortController();
    const meeting = errorOf(
      member.awaitBarriers([{ key: "k", ranks: [0] }], { signal: giveUp.signal }),
    );
    giveUp.abort();
    expect(await within(15_000, meeting)).toMatchObject({ code: "ERR_COMM_ABORTED" });
    await member.leave();
  });
});

test("a departing rank reports no loss, although its connection ends before the farewell", async () => {
  const at = await place(1);
  const { port, cut } = await relay(at.server.port, (chunk, from) => {
    if (isLeaving && from === "rank") cut();
    return chunk;
  });
  let isLeaving = false;
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const member = await rendezvous.join({ jobId: at.jobId, rank: 0, size: 1 });
  isLeaving = true;
  await within(15_000, member.leave());
  expect(member.lost).toEqual([]);
});
