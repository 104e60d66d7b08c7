/** The address of a rank on one of several machines, as it follows from the address of the store. */
import dns from "node:dns";
import { expect, test, vi } from "vitest";
import { closeAfter } from "../../../support/opened.ts";

vi.hoisted(() => vi.resetModules());

vi.mock("node:dns/promises", async (original) => {
  const promises = await original<typeof import("node:dns/promises")>();
  const lookup = (host: string) => {
    if (host === "node0") return Promise.resolve({ address: "127.0.1.1", family: 4 });
    if (host !== "unknown") return promises.lookup(host);
    const facts = { code: "EAI_AGAIN", syscall: "getaddrinfo", hostname: host };
    return Promise.reject(Object.assign(new Error("getaddrinfo EAI_AGAIN unknown"), facts));
  };
  return { ...promises, lookup };
});

const { Peers } = await import("../../../../src/backends/tcp/peers.ts");
const { TcpJob } = await import("../../../support/tcp-jobs.ts");

// As on other machines, where that name leads to another address.
const usual = dns.lookup;
const lookup = (name: string, ...rest: readonly unknown[]): void =>
  Reflect.apply(usual, dns, [name === "node0" ? "127.0.0.3" : name, ...rest]);
vi.spyOn(dns, "lookup").mockImplementation(lookup as typeof dns.lookup);
const opened = vi.spyOn(Peers, "open");

test.each([
  ["the name of this machine, which stands for a loopback address here", "node0", "node0"],
  ["an address of IPv6", "::1", "::1"],
  ["an address of IPv4", "127.0.0.1", "127.0.0.1"],
])("is found by %s", async (_, address, host) => {
  opened.mockClear();
  const job = await TcpJob.open(2, { address });
  closeAfter(() => job.close());
  expect(opened.mock.calls.map(([, settings]) => settings.host)).toEqual([host, host]);
  const sums = await job.each(async (comm, rank) => {
    const send = comm.alloc("int32", 4).fill(rank + 1);
    await comm.allReduce({ send, op: "sum" });
    return [...(await send.toHost())];
  });
  expect(sums).toEqual([
    [3, 3, 3, 3],
    [3, 3, 3, 3],
  ]);
});

test("may have the brackets of URLs where it is given", async () => {
  opened.mockClear();
  const job = await TcpJob.open(2, { host: "[::1]" });
  closeAfter(() => job.close());
  expect(opened.mock.calls.map(([, settings]) => settings.host)).toEqual(["::1", "::1"]);
});

test("is all of this machine where its own name is given", async () => {
  opened.mockClear();
  const job = await TcpJob.open(2, { host: "node0" });
  closeAfter(() => job.close());
  const place = { host: "node0", isEverywhere: true };
  expect(opened.mock.calls.map(([, settings]) => settings)).toMatchObject([place, place]);
  await job.each((comm) => comm.barrier());
});

test.each([{ host: "unknown" }, { address: "unknown" }])(
  "needs a name that can be found: %j",
  async (options) => {
    await expect(TcpJob.open(2, options)).rejects.toMatchObject({
      code: "ERR_COMM_BACKEND",
      message: expect.stringMatching(
        /rank \d cannot listen at unknown: the name server does not answer \(EAI_AGAIN\)/,
      ),
    });
  },
);
