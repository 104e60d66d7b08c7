/** A machine's own name, which Debian and Ubuntu map to a loopback address on that machine, and no other system does. */
import { describe, expect, test, vi } from "vitest";
import { isOwnName } from "../../../src/job/checks.ts";
import { StoreServer } from "../../../src/job/server.ts";
import { tcpRendezvous } from "../../../src/job/tcp-rendezvous.ts";
import { closeAfter } from "../../support/opened.ts";
import { errorOf } from "./stores.ts";

vi.hoisted(() => vi.resetModules());

vi.mock("node:dns/promises", async (original) => {
  const dns = await original<typeof import("node:dns/promises")>();
  const lookup = (host: string) =>
    host === "node0" ? Promise.resolve({ address: "127.0.1.1", family: 4 }) : dns.lookup(host);
  return { ...dns, lookup };
});

const secret = "0123456789abcdef";
const job = { jobId: "j", size: 1, hosted: true } as const;

test("with a secret, a store there is reached at the machine's other addresses", async () => {
  const server = await StoreServer.listen({ ...job, address: "node0", secret });
  closeAfter(() => server.close());
  expect(server.address).toBe(`node0:${server.port}`);
  // To another machine it has an address that this one's own name does not lead to.
  const rendezvous = tcpRendezvous({ port: server.port, secret, host: "other" });
  const member = await rendezvous.join({ jobId: "j", rank: 0, size: 1, deadlineMs: 2_000 });
  await member.leave();
});

test("without a secret it is refused to every rank, with the variable to set", async () => {
  const rendezvous = tcpRendezvous({ address: "node0", port: 9, host: "other" });
  for (const error of [
    await errorOf(StoreServer.listen({ ...job, address: "node0" })),
    await errorOf(rendezvous.join({ jobId: "j", rank: 0, size: 1 })),
  ]) {
    expect(error).toMatchObject({ code: "ERR_COMM_ARG", field: "secret" });
    expect(error.message).toContain("node0 is this machine's name among others");
    expect(error.message).toContain("127.0.1.1 here");
    expect(error.hint).toMatch(/set TWINCCL_SECRET .*; or, .* TWINCCL_ADDRESS=127\.0\.0\.1$/);
  }
});

test("localhost needs no secret, and is only this machine", async () => {
  const server = await StoreServer.listen({ ...job, address: "localhost" });
  closeAfter(() => server.close());
  expect(server.host).toBe("localhost");
});

describe("addresses of this machine", () => {
  test.each([
    ["node0", "127.0.1.1", true],
    ["node0.example.org", "127.0.1.1", true],
    ["localhostess", "127.0.0.1", true],
    ["node0", "::1", true],
    ["node0", "10.0.0.1", false],
    ["localhost", "127.0.0.1", false],
    ["LOCALHOST", "::1", false],
    ["any.localhost", "127.0.0.1", false],
    ["localhost.localdomain", "127.0.0.1", false],
    ["localhost6.localdomain6", "::1", false],
    ["ip6-loopback", "::1", false],
    ["127.0.1.1", "127.0.1.1", false],
    ["127.1", "127.0.0.1", false],
    ["::1", "::1", false],
    ["0:0:0:0:0:0:0:1", "::1", false],
  ])("%s at %s is a name for others: %s", (host, ip, isIt) => {
    expect(isOwnName(host, ip)).toBe(isIt);
  });
});
