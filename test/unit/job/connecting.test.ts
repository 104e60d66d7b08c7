/** A rank on its way to the store: what it tries leaves nothing behind, whether or not it comes there. */
import { getEventListeners } from "node:events";
import {
  type AddressInfo,
  createConnection,
  createServer,
  type Server,
  type Socket,
} from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import { faultOf } from "../../../src/job/connection.ts";
import { StoreServer } from "../../../src/job/server.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { failConnections, failListeners } from "../../support/no-files.ts";
import { closeAfter } from "../../support/opened.ts";
import { quickTime } from "../../support/quick-time.ts";
import { bytes, errorOf, place, text } from "./stores.ts";

quickTime();

afterEach(() => vi.restoreAllMocks());

/** A listener of the test; gives its port, and the connections that stand. */
async function listening(connected: (socket: Socket) => void) {
  const open = new Set<Socket>();
  const server: Server = createServer((socket) => {
    open.add(socket.on("error", () => undefined).on("close", () => open.delete(socket)));
    connected(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closeAfter(async () => {
    for (const socket of open) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return { port: (server.address() as AddressInfo).port, open };
}

/** Hands everything on between a connection and a port. */
function handOn(near: Socket, port: number): void {
  const far = createConnection({ host: "127.0.0.1", port });
  far.on("error", () => undefined).on("close", () => near.destroy());
  near.on("close", () => far.destroy());
  near.pipe(far).pipe(near);
}

test("a join removes the listeners of its signal", async () => {
  const { server, secret } = await place(1);
  await server.close();
  const { port } = server;
  const { signal } = new AbortController();
  const request = { jobId: "test-job", rank: 0, size: 1, signal };
  const joining = tcpRendezvous({ port, secret, host: "other" }).join(request);
  // No store is there yet: it pauses, and tries again.
  await new Promise((resolve) => setTimeout(resolve, 100));
  const late = await StoreServer.listen({
    jobId: "test-job",
    size: 1,
    hosted: false,
    secret,
    port,
  });
  closeAfter(() => late.close());
  const member = await joining;
  expect(getEventListeners(signal, "abort")).toEqual([]);
  await member.leave();
});

test("a process that can open no more files does not look for the store until the deadline", async () => {
  const { server, secret } = await place(1);
  failConnections();
  const rendezvous = tcpRendezvous({ port: server.port, secret, host: "other" });
  const request = { jobId: "test-job", rank: 0, size: 1, deadlineMs: 2 ** 30 };
  expect(await errorOf(rendezvous.join(request))).toMatchObject({
    code: "ERR_COMM_RENDEZVOUS",
    message: expect.stringContaining("this process can open no more files (EMFILE)"),
    hint: expect.stringContaining("ulimit -n"),
  });
});

test("a store of a process that can open no more files does not blame its address", async () => {
  failListeners(() => true);
  const opening = StoreServer.listen({ jobId: "test-job", size: 1, hosted: false });
  expect(await errorOf(opening)).toMatchObject({
    code: "ERR_COMM_RENDEZVOUS",
    message: expect.stringContaining("cannot listen: this process can open no more files (EMFILE)"),
    hint: expect.stringContaining("ulimit -n"),
  });
});

test("a store that drops each connection may have no more files", async () => {
  const { port } = await listening((socket) => socket.resetAndDestroy());
  const rendezvous = tcpRendezvous({ port, host: "other" });
  expect(
    await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 1, deadlineMs: 60 })),
  ).toMatchObject({
    message: expect.stringContaining("no store was reached within 60 ms: the connection was reset"),
    hint: expect.stringContaining("ulimit -n"),
  });
});

test("a silent connection is closed at the deadline", async () => {
  const { port, open } = await listening((socket) => socket.resume());
  const rendezvous = tcpRendezvous({ port, host: "other" });
  const error = await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 1, deadlineMs: 60 }));
  expect(error.message).toContain("no store was reached within 60 ms: no answer");
  await expect.poll(() => open.size).toBe(0);
});

test.each([
  ["ENOTFOUND", "no machine has that name (ENOTFOUND)"],
  ["EAI_AGAIN", "the name server does not answer (EAI_AGAIN)"],
])("the fault of a host's name is in words: %s", (code, words) => {
  expect(faultOf(Object.assign(new Error("getaddrinfo"), { code }))).toBe(words);
});

test("the whole limit is stated where the store ends after an earlier attempt", async () => {
  const { server, secret } = await place(2);
  const rendezvous = tcpRendezvous({ port: server.port, secret, host: "other" });
  const request = { jobId: "test-job", rank: 0, size: 2, deadlineMs: 10_000 };
  const failing = errorOf(rendezvous.join(request));
  // By then it waits at the store for rank 1.
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  await server.close();
  expect((await failing).message).toContain("no store was reached within 10000 ms: ECONNREFUSED");
});

test("the first connection is closed where the second one cannot be made", async () => {
  const at = await place(1, { handshakeMs: 60_000 });
  let count = 0;
  const { port, open } = await listening((socket) => {
    if (count++ % 2 === 0) handOn(socket, at.server.port);
    else socket.destroy();
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const request = { jobId: at.jobId, rank: 0, size: 1, deadlineMs: 200 };
  expect((await errorOf(rendezvous.join(request))).message).toContain("no store was reached");
  expect(count).toBeGreaterThan(1);
  await expect.poll(() => open.size).toBe(0);
});

test("a join retries where the first connection ends while the second is made", async () => {
  const at = await place(1);
  let first: Socket | undefined;
  let count = 0;
  const { port } = await listening((socket) => {
    count += 1;
    if (count === 1) first = socket;
    if (count !== 2) handOn(socket, at.server.port);
    else {
      // The rank notices it before it requests the second challenge from the store.
      first?.destroy();
      setTimeout(() => handOn(socket, at.server.port), 50);
    }
  });
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const member = await rendezvous.join({ jobId: at.jobId, rank: 0, size: 1 });
  expect(count).toBe(4);
  await member.set("k", bytes("v"));
  expect(text(await member.get("k"))).toBe("v");
  await member.leave();
});

test("a join leaves no connection open where the other ranks do not join", async () => {
  const at = await place(2);
  const { port, open } = await listening((socket) => handOn(socket, at.server.port));
  const rendezvous = tcpRendezvous({ port, secret: at.secret, host: "other" });
  const request = { jobId: at.jobId, rank: 0, size: 2 };
  expect(await errorOf(rendezvous.join({ ...request, deadlineMs: 300 }))).toMatchObject({
    ...{ code: "ERR_COMM_RENDEZVOUS", rank: 0 },
  });
  await expect.poll(() => open.size).toBe(0);
});
